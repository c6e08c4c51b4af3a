"""Trainers: one library per file, each in a process of its own that reads texts and leaves weights.

`worker` is that process and the only one that imports torch. `process` starts it, shows its events, and defines
what the two exchange. Trainers know neither methods nor engines: `kgqa.extras.training.train` renders the texts.
"""

from kgqa.extras.training.trainers.biencoder import BiEncoderTraining
from kgqa.extras.training.trainers.lora import LoraTraining
from kgqa.extras.training.trainers.seq2seq import Seq2SeqTraining

__all__ = ["BiEncoderTraining", "LoraTraining", "Seq2SeqTraining"]

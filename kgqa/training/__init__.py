"""Trainers: one library a file, each in a process of its own that is given texts and leaves weights.

`worker` is that process, `launch` what starts and watches it; torch is imported in the first alone. `job` is what the
one tells the other, `progress` what comes back. Not here: which texts (`experiment.collect`), how they are rendered and
what becomes of the weights (`experiment.train`); neither methods nor engines are known here.

This face hands on the names that configurations use; its parts never import from it.
"""

from kgqa.training.biencoder import BiEncoderTraining
from kgqa.training.lora import LoraTraining
from kgqa.training.seq2seq import Seq2SeqTraining

__all__ = ["BiEncoderTraining", "LoraTraining", "Seq2SeqTraining"]

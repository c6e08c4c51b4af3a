"""Random models with a vocabulary of some hundred pieces: they train in no time, and are computed by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.run import SETTINGS
from kgqa.extras.training.trainers import worker
from kgqa.extras.training.trainers.process import HELD_OUT, TRAIN
from kgqa.types import Json

TOWNS = (
    "Rome",
    "Paris",
    "Oslo",
    "Lima",
    "Cairo",
    "Delhi",
    "Quito",
    "Seoul",
    "Tunis",
    "Accra",
    "Dakar",
    "Hanoi",
)
SCHEDULE: dict[str, Json] = {
    "name": None, "base": "tiny", "collect": None, "examples": None, "eval_fraction": 0.1, "epochs": 3,
    "max_steps": None, "batch_size": 2, "batch_per_device": 1, "learning_rate": 5e-3, "lr_scheduler": "cosine",
    "warmup": 0.1, "weight_decay": 0.0, "clip": 1.0, "precision": "float32", "seed": 7, "processes": 1,
    "device": "cpu", "save_minutes": 10,
}  # fmt: skip
LORA: dict[str, Json] = SCHEDULE | {
    "lora_r": 4, "lora_alpha": 8, "dropout": 0.05, "target_modules": ["all-linear"], "quantization": "none",
    "double_quantization": False, "max_length": 64, "truncation": False, "loss_on": "target",
    "activation_checkpointing": False, "group_by_length": False, "replies": 2, "reply_tokens": 4,
}  # fmt: skip


def lines(count: int = 12) -> list[dict[str, Json]]:
    return [
        {
            "id": f"q{n}",
            "prompt": f"With which letter does {town} begin?\n",
            "completion": f"{town}: {town[0]}.",
        }
        for n, town in enumerate(TOWNS[:count])
    ]


def jsonl(listed: list[dict[str, Json]]) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in listed)


def tokenizer(folder: Path) -> int:
    """Written into `folder`; gives how many pieces it has. Its end token is </s>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    model.train_from_iterator(
        [f"{line['prompt']}{line['completion']}" for line in lines()], trainer
    )
    model.save(str(folder / "tokenizer.json"))
    config = {
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return int(model.get_vocab_size())


def llama(folder: Path, positions: int = 256, width: int = 32) -> Path:
    """The wider, the lower a loss can fall: what turns states into logits is random, and stays."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer(folder), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=positions, eos_token_id=1,
        bos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def t5(folder: Path) -> Path:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(4)
    config = T5Config(
        vocab_size=tokenizer(folder), d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, pad_token_id=0,
        decoder_start_token_id=0, eos_token_id=1, tie_word_embeddings=False, dropout_rate=0.0,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def bert(folder: Path) -> Path:
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(2)
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        "?",
        ".",
        *(f"##{letter}" for letter in letters),
    ]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=128,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


def task(folder: Path, kind: str, base: Path, recipe: dict[str, Json], held_out: int = 2) -> Path:
    """Write a task with its examples, the last ones held out, and return its file."""
    rows = lines() if kind != "BiEncoderTraining" else pairs()
    (folder / TRAIN).parent.mkdir(parents=True, exist_ok=True)
    (folder / TRAIN).write_text(jsonl(rows[:-held_out]))
    (folder / HELD_OUT).write_text(jsonl(rows[-held_out:]))
    settings = {
        "kind": kind,
        "recipe": recipe,
        "base": str(base),
        "base_name": "tiny",
        "folder": str(folder),
    }
    (folder / SETTINGS).write_text(json.dumps(settings))
    return folder / SETTINGS


def pairs() -> list[dict[str, Json]]:
    """Two hops a question, next to each other."""
    listed: list[dict[str, Json]] = []
    for n, town in enumerate(TOWNS):
        question, fact, other = f"mayor of {town}?", f"{town} lies in the north.", TOWNS[n - 1]
        shared = {
            "question": f"q{n}",
            "negatives": [f"{other} lies in the south.", f"{other} has no mayor."],
        }
        listed.append({"id": f"q{n}/1", "anchor": question, "positive": fact, "hop": 1, **shared})
        passage = f"the mayor of {town} is {town[::-1].lower()}."
        listed.append(
            {
                "id": f"q{n}/2",
                "anchor": f"{question} {fact}",
                "positive": passage,
                "hop": 2,
                **shared,
            }
        )
    return listed


def train(settings: Path) -> int:
    """Train in this process and return the exit code."""
    return run(settings)[0]


def run(settings: Path) -> tuple[int, list[dict[str, Any]]]:
    """Train in this process, and return the exit code and the events."""
    out = io.StringIO()
    code = worker.main([str(settings)], out)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def train_step(settings: Path) -> int:
    """Train one more step, write a checkpoint, and return the exit code of an interruption."""
    from kgqa.extras.training.trainers.library import Progress

    def stop(progress: Any, args: Any, control: Any) -> None:
        control.should_save = control.should_training_stop = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "_save_if_due", stop)
        return train(settings)


def losses(folder: Path) -> list[float]:
    """Return the loss of each step of a finished training."""
    return [loss for _, loss in json.loads((folder / "outcome.json").read_text())["series"]["loss"]]

"""The base classes of trainers: settings, required packages, output and number of steps.

A class of this package adds its own settings and the methods that call its library. `conf/train/*.yaml` has each key
with its value and source.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from kgqa.artifacts.schema import check_json, read_lines
from kgqa.errors import ConfigError
from kgqa.extras.training.trainers.process import CHECKPOINTS, PairExample, TextExample, TrainTask
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural, NotNegative, Positive

SCHEDULERS = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
LOGGED = 1000  # points of a curve
# seconds that the other processes wait while the first one writes replies
DDP_TIMEOUT = 7200
MODULES = ("torch", "transformers", "accelerate", "datasets")  # that all trainers import
# an example as the library reads it: values by column
Row = dict[str, Any]


@dataclass
class Rows:
    """The examples that fit, each with its id, their tokens, and how many were left out or truncated."""

    rows: list[Row] = field(default_factory=list)
    tokens: int = 0
    left_out: int = 0
    cut: int = 0


@dataclass(frozen=True)
class Trainer(ABC):
    """The settings that all trainers share.

    base: PRESET or PRESET:PATH of conf/model; for encoders a choice of conf/ranker, a folder or a name on the hub.
    collect: the recipe of `kgqa collect` that makes the examples, with its settings.
    examples: the number of examples, a folder of `kgqa collect`, or a file of rendered texts. None: all of the recipe.
    eval_fraction: fraction of the questions that are held out for evaluation. From 1 on: number of questions.
    batch_size: examples per step over all processes, `batch_per_device` at a time.
    warmup: fraction of the steps. From 1 on: number of steps.
    clip: the largest norm of a gradient. 0: any.
    save_minutes: minutes between checkpoints. 0: after every step.
    """

    name: Annotated[str | None, Setting("Name of the trained model (default: dpr)")] = None
    base: Annotated[
        str,
        Setting(
            "Base model or encoder.",
            paper="supplement 8.2",
            other="a choice of ranker=, or a folder: the released code has bert-base-uncased",
        ),
    ] = "roberta_base"
    collect: Annotated[
        str | None,
        Setting("Recipe of kgqa collect that makes the examples.", paper="supplement 8.1"),
    ] = "dpr"
    examples: Annotated[
        int | str | None,
        Setting(
            "Number of examples, folder of kgqa collect, or file of texts (default: all collected examples)."
        ),
    ] = None
    eval_fraction: Annotated[
        NotNegative, Setting("Share of questions for evaluation.", ours="our choice")
    ] = 0.1
    epochs: Annotated[
        Positive, Setting("Passes over the examples.", paper="supplement 8.2, Table 4")
    ] = 2
    max_steps: Annotated[
        Count | None, Setting("Maximum number of optimizer steps, instead of epochs.")
    ] = None
    batch_size: Annotated[
        Count,
        Setting(
            "Pairs of one hop per optimizer step. The released code counts questions.",
            paper="Table 4: of 128, 256, 512",
        ),
    ] = 64
    batch_per_device: Annotated[
        Count, Setting("Examples per device in one pass: the complete batch.")
    ] = field(kw_only=True)
    learning_rate: Annotated[
        Positive, Setting("Peak learning rate.", paper="supplement 8.2, Table 4")
    ] = 0.0001
    lr_scheduler: Annotated[
        Literal["cosine", "linear", "constant"],
        Setting("Learning rate schedule.", code="released code"),
    ] = "cosine"
    warmup: Annotated[
        NotNegative, Setting("Steps with a rising learning rate.", paper="supplement 8.2, Table 4")
    ] = 0.03
    weight_decay: Annotated[
        NotNegative, Setting("Weight decay of AdamW.", code="released code")
    ] = 0.0
    clip: Annotated[
        NotNegative,
        Setting("Maximum norm of the gradients. 0: no clipping.", paper="supplement 8.2, Table 4"),
    ] = 1.0
    precision: Annotated[
        Literal["bfloat16", "float32"],
        Setting("Number type of the computation.", ours="our choice"),
    ] = "bfloat16"
    seed: Annotated[int, Setting("Random seed.", ours="our choice")] = 0
    processes: Annotated[
        Count, Setting("Number of processes. It must be 1, because the batch is one softmax.")
    ] = 1
    device: Annotated[Literal["auto", "cpu"], Setting("auto | cpu | cuda.")] = "auto"
    save_minutes: Annotated[
        NotNegative, Setting("Minutes between checkpoints.", ours="our choice")
    ] = 10

    title: ClassVar[str]  # for headings: "LoRA adapter"
    # the folder of the weights: adapter, model or encoder
    output: ClassVar[str]
    # examples are (anchor, positive, negatives) instead of prompt and completion
    learns_pairs: ClassVar[bool] = False
    not_identity: ClassVar = ("name", "base", "examples", "processes", "device", "save_minutes")

    @property
    def packages(self) -> tuple[str, tuple[str, ...]]:
        """Return the extra of kgqa, and the modules that it must bring."""
        return "train", MODULES

    @property
    @abstractmethod
    def longest(self) -> int:
        """Return the maximum number of tokens of one example."""

    def arguments(self, task: TrainTask, rows: Rows, held_out: Rows) -> dict[str, Any]:
        """Return the values for `transformers.TrainingArguments` that follow from the shared settings."""
        import torch

        processes = int(os.environ.get("WORLD_SIZE", "1"))
        cpu = self.device == "cpu" or not torch.cuda.is_available()
        return {
            "output_dir": str(task.path / CHECKPOINTS),
            "per_device_train_batch_size": self.batch_per_device,
            "per_device_eval_batch_size": self.batch_per_device,
            "gradient_accumulation_steps": self.accumulation(processes),
            "num_train_epochs": self.epochs,
            "max_steps": self.max_steps or -1,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": SCHEDULERS[self.lr_scheduler],
            "warmup_steps": self.warmup,
            "weight_decay": self.weight_decay,
            "max_grad_norm": self.clip,
            "bf16": self.precision == "bfloat16",
            "optim": "adamw_torch",
            "seed": self.seed,
            "use_cpu": cpu,
            "ddp_backend": "gloo" if cpu and processes > 1 else None,
            "ddp_find_unused_parameters": False,
            "ddp_timeout": DDP_TIMEOUT,
            "save_strategy": "no",  # `Progress` saves by the clock
            "save_total_limit": 2,
            "enable_jit_checkpoint": True,  # at SIGTERM
            "eval_strategy": "epoch" if held_out.rows else "no",
            # an evaluation before `train` would keep the model out of DistributedDataParallel
            "eval_on_start": bool(held_out.rows),
            "logging_strategy": "steps",
            "logging_steps": max(1, self.steps(len(rows.rows)) // LOGGED),
            "logging_nan_inf_filter": False,
            "report_to": "none",
            "disable_tqdm": True,
        }

    def load(self, file: Path, base: Path) -> Rows:
        """Read the examples. Raises DataError naming the line."""
        from kgqa.extras.training.trainers.library import load_tokenizer

        kind: type[TextExample | PairExample] = PairExample if self.learns_pairs else TextExample
        tokenizer, read = load_tokenizer(base, is_encoder=self.learns_pairs), Rows()
        for location, line in read_lines(file):
            example = check_json(kind, line, location)
            row, tokens, is_cut = self.tokenize(tokenizer, example)
            if row is None:
                read.left_out += 1
            else:
                read.rows.append({"id": example.id, **row})
                read.tokens += tokens
                read.cut += is_cut
        return read

    @abstractmethod
    def tokenize(self, tokenizer: Any, example: Any) -> tuple[Row | None, int, bool]:
        """Return an example as a row, its number of tokens, and whether it was truncated. None: it is left out."""

    @abstractmethod
    def build(self, task: TrainTask, rows: Rows, held_out: Rows) -> Any:
        """Return the library's trainer for these rows. Raises ConfigError: the base does not fit."""

    def reply(self, trainer: Any, held_out: Rows) -> list[str]:
        """Return the replies to the first held-out examples. An encoder has none."""
        del trainer, held_out
        return []

    @abstractmethod
    def save(self, trainer: Any, task: TrainTask, folder: Path) -> None:
        """Save the weights."""

    def accumulation(self, processes: int) -> int:
        """Return how many passes make one step. Raise ConfigError: the batch cannot be divided evenly."""
        at_once = self.batch_per_device * processes
        if self.batch_size % at_once:
            raise ConfigError(
                f"train.batch_size={self.batch_size}: must be a multiple of {at_once}, which is "
                f"train.batch_per_device={self.batch_per_device} times {processes} processes. Change one of them"
            )
        return self.batch_size // at_once

    def steps(self, examples: int) -> int:
        """Return the number of steps for this many examples."""
        return self.max_steps or math.ceil(math.ceil(examples / self.batch_size) * self.epochs)

    def passes(self, examples: int) -> float:
        """Return how often each example is seen."""
        return (
            self.max_steps * self.batch_size / examples
            if self.max_steps and examples
            else self.epochs
        )


@dataclass(frozen=True)
class TextTrainer(Trainer):
    """The settings of trainers for models that write: LoRA adapters and encoder-decoders.

    truncation: truncate longer examples. false: leave them out.
    activation_checkpointing: compute activations twice instead of storing them.
    replies: number of held-out prompts that are answered after training, in up to `reply_tokens` tokens.
    """

    truncation: Annotated[
        bool,
        Setting(
            "Truncate longer examples. false: skip them, because an example without its end teaches the model not "
            "to stop.",
            ours="our choice",
        ),
    ] = False
    activation_checkpointing: Annotated[
        bool, Setting("Recompute activations to save memory.", ours="our choice")
    ] = True
    group_by_length: Annotated[
        bool, Setting("Put examples of similar length into one batch.", ours="our choice")
    ] = True
    replies: Annotated[
        Natural,
        Setting("Held-out prompts that the model answers after training.", ours="our choice"),
    ] = 60
    reply_tokens: Annotated[
        Count, Setting("Maximum tokens of these answers.", other="method.max_evidence_tokens")
    ] = 256

    def arguments(self, task: TrainTask, rows: Rows, held_out: Rows) -> dict[str, Any]:
        return {
            **super().arguments(task, rows, held_out),
            "gradient_checkpointing": self.activation_checkpointing,
            "train_sampling_strategy": "group_by_length" if self.group_by_length else "random",
        }

    def datasets(self, task: TrainTask, rows: Rows, held_out: Rows) -> dict[str, Any]:
        """Return the values for the library's trainer: both datasets and the tokenizer."""
        from datasets import Dataset

        from kgqa.extras.training.trainers.library import load_tokenizer

        return {
            "train_dataset": Dataset.from_list(rows.rows),
            "eval_dataset": Dataset.from_list(held_out.rows) if held_out.rows else None,
            "processing_class": load_tokenizer(Path(task.base)),
        }

    def prompt_of(self, row: Row) -> list[int]:
        """Return the tokens of a prompt."""
        return list(row["input_ids"])

    def reply(self, trainer: Any, held_out: Rows) -> list[str]:
        from kgqa.extras.training.trainers.library import generate_replies

        prompts = [self.prompt_of(row) for row in held_out.rows[: self.replies]]
        return generate_replies(trainer.model, trainer.processing_class, prompts, self.reply_tokens)


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a rendered text, which already contains its special tokens."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids

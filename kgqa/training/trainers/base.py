"""The base class of trainers: settings, required packages, output and number of steps.

A class of `kgqa.training.trainers` adds its own settings and the methods that call its library. `conf/train/*.yaml` has
each key with its value and source.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from kgqa.errors import ConfigError
from kgqa.training.trainers.process import TrainTask
from kgqa.util.validators import Count, NotNegative, Positive

Precision = Literal["bfloat16", "float32"]


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

    name: str | None
    base: str
    collect: str | None
    examples: int | str | None
    eval_fraction: NotNegative
    epochs: Positive
    max_steps: Count | None
    batch_size: Count
    batch_per_device: Count
    learning_rate: Positive
    lr_scheduler: Literal["cosine", "linear", "constant"]
    warmup: NotNegative
    weight_decay: NotNegative
    clip: NotNegative
    precision: Precision
    seed: int
    processes: Count
    device: Literal["auto", "cpu"]
    save_minutes: NotNegative

    title: ClassVar[str]  # for headings: "LoRA adapter"
    output: ClassVar[str]  # the folder of the weights: adapter, model or encoder
    learns_pairs: ClassVar[bool] = False  # examples are (anchor, positive, negatives) instead of prompt and completion
    not_identity: ClassVar = ("name", "base", "examples", "processes", "device", "save_minutes")

    @property
    @abstractmethod
    def packages(self) -> tuple[str, tuple[str, ...]]:
        """Return the extra of kgqa, and the modules that it must bring."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Return the maximum number of tokens of one example."""

    @property
    def skips_long(self) -> bool:
        """Return whether examples above `longest` are left out instead of truncated."""
        return False

    @abstractmethod
    def load(self, file: Path, base: Path) -> Any:
        """Read the examples as `library.Rows`. Raises DataError naming the line."""

    @abstractmethod
    def build(self, task: TrainTask, rows: Any, held_out: Any) -> Any:
        """Return the library's trainer for these rows. Raises ConfigError: the base does not fit."""

    @abstractmethod
    def evaluate(self, trainer: Any, held_out: Any) -> tuple[dict[str, list[float]], list[str]]:
        """Return figures by name, with a value for each held-out example, and the replies to the first of them."""

    @abstractmethod
    def save(self, trainer: Any, task: TrainTask, folder: Path) -> None:
        """Save the weights."""

    def accumulation(self, processes: int) -> int:
        """Return how many passes make one step.

        Raises:
            ConfigError: the batch cannot be divided evenly.
        """
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
        return self.max_steps * self.batch_size / examples if self.max_steps and examples else self.epochs

"""What every training is told, whatever it trains; each key's value and its source stand in conf/train."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from kgqa.constraints import Count, NotNegative, Positive
from kgqa.errors import ConfigError

Precision = Literal["bfloat16", "float32"]


@dataclass(frozen=True)
class Schedule:
    """How long, in which steps, from which examples. `base`: PRESET or PRESET:PATH of conf/model.

    examples: a number takes so many of the recipe's; a path is a folder of `kgqa collect`, or a file of rendered texts.
    held_out: questions that are measured and not trained on: below 1 a share, else so many; of a collected folder, of
    those that it holds out. batch: examples a step, over all
    processes, batch_per_device at a time. warmup: below 1 a share of the steps, else so many.
    """

    name: str | None  # of what is trained: its folder below outputs/trained; None: the choice of conf/train
    base: str
    collect: str | None  # what makes the examples, as kgqa collect is told: a recipe and its settings
    examples: int | str | None  # None: all that the recipe has
    held_out: NotNegative
    epochs: Positive
    max_steps: Count | None  # in place of epochs
    batch: Count
    batch_per_device: Count
    learning_rate: Positive
    decay: Literal["cosine", "linear", "constant"]  # of the learning rate, behind the warm-up
    warmup: NotNegative
    weight_decay: NotNegative
    clip: NotNegative  # the largest norm of a gradient; 0: any
    precision: Precision
    seed: int
    processes: Count  # one a GPU
    device: Literal["auto", "cpu"]
    save_minutes: NotNegative  # between checkpoints; 0: after every step
    max_hours: Positive | None  # ends at a checkpoint; the same command goes on

    def accumulated(self, processes: int) -> int:
        """Passes a step: how often a process adds to its gradient.

        Raises:
            ConfigError: the batch cannot be dealt out evenly.
        """
        at_once = self.batch_per_device * processes
        if self.batch % at_once:
            raise ConfigError(
                f"train.batch={self.batch}: is no multiple of {at_once}, which is train.batch_per_device="
                f"{self.batch_per_device} times {processes} processes; change one of them"
            )
        return self.batch // at_once

    def steps(self, examples: int) -> int:
        """In all."""
        return self.max_steps or math.ceil(math.ceil(examples / self.batch) * self.epochs)

    def warmup_steps(self, steps: int) -> int:
        return math.ceil(self.warmup * steps) if self.warmup < 1 else int(self.warmup)

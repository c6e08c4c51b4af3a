"""Estimate the steps and hours of a training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.train.run import is_finished
from kgqa.training.trainers.base import Trainer
from kgqa.training.trainers.process import PairExample, TextExample
from kgqa.util.text import pluralize

CHARACTERS = 4  # per token
FLOPS = 6  # per parameter and token: forward, backward and, instead of the base's gradients, activations again
# FLOPs per second on one H100: 24 % of its peak in bfloat16. Measured with LoRA on a model of 7.4 billion parameters,
# 16 examples per device and activation checkpointing: 5,338 tokens per second (docs/dev/LOG.md).
H100_SPEED = 0.24 * 989e12


@dataclass(frozen=True)
class TrainCost:
    """The cost of a number of examples. `tokens`: of all together. parameters: of the base; None: unknown."""

    training: Trainer
    parameters: float | None
    examples: int
    tokens: int

    @property
    def seconds(self) -> float | None:
        """Return the time on one H100. float32 runs at half the speed, as TF32."""
        if not self.parameters:
            return None
        work = self.tokens * self.training.passes(self.examples) * FLOPS * self.parameters
        return work / H100_SPEED * (2 if self.training.precision == "float32" else 1)


@dataclass(frozen=True)
class TrainPlan:
    """The plan that `dry_run=true` shows. `too_long`: examples that are left out."""

    request: TrainRequest
    examples: ExampleSplit
    cost: TrainCost
    too_long: int = 0
    finished: Path | None = None  # the folder, if it is trained already

    @property
    def first_example(self) -> tuple[tuple[str, str], ...]:
        first = self.examples.train[0]
        if isinstance(first, TextExample):
            return (f"prompt of {first.id}", first.prompt), ("target", first.completion)
        return (f"anchor of {first.id}", first.anchor), ("positive", first.positive)

    def rows(self) -> Iterator[tuple[str, str]]:
        training, cost, split = self.request.training, self.cost, self.examples
        yield "examples", f"{pluralize(len(split.train), 'example')} of {pluralize(len(split.questions), 'question')}"
        if self.too_long:
            yield "left out", f"{self.too_long:,} of them, longer than {training.longest:,} tokens (estimated)"
        yield "held out", f"{pluralize(len(split.held_out), 'example')} of {len(split.held_out_questions):,} questions"
        steps, passes = training.steps(cost.examples), training.passes(cost.examples)
        yield "steps", f"{steps:,} of {training.batch_size} ({passes:g} epochs)"
        yield "tokens", f"{cost.tokens:,} per epoch (estimated)"
        if cost.seconds is not None:
            yield "time", f"about {hours_text(cost.seconds)} on one H100 (estimated)"
        yield "weights", "available" if self.request.base.is_here else "missing: kgqa models says how to get them"
        yield "folder", str(self.finished or self.request.name)

    @property
    def warnings(self) -> list[str]:
        """Return what will not work."""
        lines = []
        if self.examples.train and not self.cost.examples:
            lines.append("all examples are too long; raise train.max_length, or set train.truncation=true")
        if self.finished:
            lines.append(f"trained already: {self.finished}")
        return lines


def plan_training(request: TrainRequest, examples: ExampleSplit) -> TrainPlan:
    """Plan a training without loading a model. The weights can be missing."""
    training = request.training
    lengths = [1 + _characters(example) // CHARACTERS for example in examples.train]
    fitting = [min(n, training.longest) for n in lengths if n <= training.longest or not training.skips_long]
    cost = TrainCost(training, request.base.parameters, len(fitting), sum(fitting))
    folder = request.folder(examples) if request.base.is_here else None
    done = folder if folder and is_finished(folder) else None
    return TrainPlan(request, examples, cost, len(lengths) - len(fitting), done)


def _characters(example: TextExample | PairExample) -> int:
    if isinstance(example, TextExample):
        return len(example.prompt) + len(example.completion)
    return sum(map(len, (example.anchor, example.positive, *example.negatives)))


def hours_text(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{max(1, round(seconds / 60))} minutes"

"""Estimate the steps and hours of a training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.train.run import is_finished
from kgqa.training.trainers.process import TextExample
from kgqa.util.text import duration, pluralize

CHARACTERS = 4  # per token
FLOPS = 6  # per parameter and token: forward, backward and, instead of the base's gradients, activations again
# FLOPs per second on one H100: 24 % of its peak in bfloat16. Measured with LoRA on a model of 7.4 billion parameters,
# 16 examples per device and activation checkpointing: 5,338 tokens per second (docs/dev/LOG.md).
H100_SPEED = 0.24 * 989e12


def estimate_seconds(request: TrainRequest, tokens: float) -> float | None:
    """Return the time on one H100 for the tokens of all epochs. float32 runs at half the speed, as TF32."""
    if not (parameters := request.base.parameters):
        return None
    return tokens * FLOPS * parameters / H100_SPEED * (2 if request.training.precision == "float32" else 1)


@dataclass(frozen=True)
class TrainPlan:
    """The plan that `dry_run=true` shows."""

    request: TrainRequest
    examples: ExampleSplit
    fitting: int  # examples that are not left out
    tokens: int  # of these, per epoch
    finished: Path | None  # the folder, if it is trained already

    @property
    def first_example(self) -> tuple[tuple[str, str], ...]:
        first = self.examples.train[0]
        if isinstance(first, TextExample):
            return (f"prompt of {first.id}", first.prompt), ("target", first.completion)
        return (f"anchor of {first.id}", first.anchor), ("positive", first.positive)

    def rows(self) -> Iterator[tuple[str, str]]:
        training, split = self.request.training, self.examples
        yield "examples", f"{pluralize(len(split.train), 'example')} of {pluralize(len(split.questions), 'question')}"
        if left_out := len(split.train) - self.fitting:
            yield "skipped", f"{left_out:,} of them, longer than {training.longest:,} tokens (estimated)"
        yield "held out", f"{pluralize(len(split.held_out), 'example')} of {len(split.held_out_questions):,} questions"
        passes = training.passes(self.fitting)
        yield "steps", f"{training.steps(self.fitting):,} of {training.batch_size} ({passes:g} epochs)"
        yield "tokens", f"{self.tokens:,} per epoch (estimated)"
        if seconds := estimate_seconds(self.request, self.tokens * passes):
            yield "time", f"about {duration(seconds)} on one H100 (estimated)"
        yield "weights", "available" if self.request.base.is_here else "missing. See kgqa models"
        yield "folder", str(self.finished or self.request.name)

    @property
    def warnings(self) -> list[str]:
        """Return what will not work."""
        lines = (
            [] if self.fitting else ["all examples are too long. Raise train.max_length, or set train.truncation=true"]
        )
        return [*lines, *([f"trained already: {self.finished}"] if self.finished else [])]


def plan_training(request: TrainRequest, examples: ExampleSplit) -> TrainPlan:
    """Plan a training without loading a model. The weights can be missing."""
    training = request.training
    texts = [
        (each.prompt, each.completion)
        if isinstance(each, TextExample)
        else (each.anchor, each.positive, *each.negatives)
        for each in examples.train
    ]
    lengths = [1 + sum(map(len, each)) // CHARACTERS for each in texts]
    fitting = [min(n, training.longest) for n in lengths if n <= training.longest or not training.skips_long]
    folder = request.folder(examples) if request.base.is_here else None
    return TrainPlan(request, examples, len(fitting), sum(fitting), folder if folder and is_finished(folder) else None)

"""Estimate the steps, memory and hours of a training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.trained import Trained, list_trainings
from kgqa.protocols.training import ModelSize, Trainer
from kgqa.system.hardware import GB, gpus, memory, product_speed
from kgqa.training.train.request import ExampleSplit, PairExample, TextExample, TrainRequest
from kgqa.training.train.running import is_finished
from kgqa.util.text import pluralize

CHARACTERS = 4  # per token
FLOPS = 6  # per parameter and token: forward, backward and, instead of the base's gradients, activations again
H100_SPEED = 0.38 * 989e12  # FLOPs per second: the fraction of the peak in bfloat16 that is reached


@dataclass(frozen=True)
class TrainCost:
    """The cost of a number of examples. `tokens`: of all together; `longest`: of the longest."""

    training: Trainer
    parameters: float | None
    examples: int
    tokens: int
    longest: int

    @property
    def memory(self) -> dict[str, float]:
        """Return bytes by purpose; empty if the size of the base is not known."""
        return self.training.memory(ModelSize(self.parameters), self.longest) if self.parameters else {}

    def seconds(self, speed: float) -> float | None:
        """Return the time at a number of FLOPs per second. None: the size of the base is not known."""
        if not self.parameters:
            return None
        return self.tokens * self.training.passes(self.examples) * FLOPS * self.parameters / speed

    @property
    def h100_seconds(self) -> float | None:
        """Return the time on one H100. float32 runs at half the speed, as TF32."""
        return self.seconds(H100_SPEED / (2 if self.training.precision == "float32" else 1))


@dataclass(frozen=True)
class TrainPlan:
    """The plan that `dry_run=true` shows. `too_long`: examples that are left out."""

    request: TrainRequest
    examples: ExampleSplit
    cost: TrainCost
    too_long: int = 0
    finished: Path | None = None  # the folder, if it is trained already

    @property
    def first_example(self) -> Iterator[tuple[str, str]]:
        first = self.examples.train[0]
        if isinstance(first, TextExample):
            yield f"prompt of {first.id}", first.prompt
            yield "target", first.completion
        else:
            yield f"anchor of {first.id}", first.anchor
            yield "positive", first.positive

    def seconds(self) -> tuple[float, str] | None:
        """Return the time on this machine and its source. None: the size of the base is not known."""
        if rate := _measure_rate(self.request):
            passes = self.request.training.passes(self.cost.examples)
            return self.cost.tokens * passes / rate, "measured: the last training of this base on this machine"
        if gpus():
            seconds, source = self.cost.h100_seconds, "estimated: as on an H100"
        else:
            seconds, source = self.cost.seconds(product_speed()), "estimated: as fast as a matrix product here"
        return None if seconds is None else (seconds, source)

    def rows(self) -> Iterator[tuple[str, str]]:
        training, cost, split = self.request.training, self.cost, self.examples
        yield "examples", f"{pluralize(len(split.train), 'example')} of {pluralize(len(split.questions), 'question')}"
        if self.too_long:
            yield "left out", f"{self.too_long:,} of them, longer than {training.longest:,} tokens (estimated)"
        yield "held out", f"{pluralize(len(split.held_out), 'example')} of {len(split.held_out_questions):,} questions"
        steps, passes = training.steps(cost.examples), training.passes(cost.examples)
        yield "steps", f"{steps:,} of {training.batch_size} ({passes:g} epochs)"
        yield "tokens", f"{cost.tokens:,} per epoch, {cost.longest:,} in the longest example (estimated)"
        if cost.parameters:
            trainable = training.trainable(ModelSize(cost.parameters))
            yield "trainable parameters", f"{trainable:,} of {cost.parameters:,.0f} (estimated)"
        if parts := cost.memory:
            listed = ", ".join(f"{name} {size / GB:.1f}" for name, size in parts.items() if size >= GB / 20)
            yield (
                "memory",
                f"about {sum(parts.values()) / GB:.1f} GB ({listed}); here: {available_memory() / GB:.0f} GB",
            )
        if time := self.seconds():
            yield "time", f"about {hours_text(time[0])} ({time[1]})"
        if not gpus() and cost.h100_seconds:
            yield "", f"about {hours_text(cost.h100_seconds)} on one H100 (estimated)"
        yield "weights", "available" if self.request.base.is_here else "missing: kgqa models says how to get them"
        yield "folder", str(self.finished or self.request.name)

    @property
    def warnings(self) -> list[str]:
        """Return what will not work."""
        training, lines = self.request.training, []
        if sum(self.cost.memory.values()) > available_memory():
            lines.append(f"more memory than is available; {training.memory_hint}")
        if self.examples.train and not self.cost.examples:
            lines.append("all examples are too long; raise train.max_length, or set train.truncation=true")
        if self.finished:
            lines.append(f"trained already: {self.finished}")
        return lines


def plan_training(request: TrainRequest, examples: ExampleSplit) -> TrainPlan:
    """Plan a training without loading a model. The weights can be missing."""
    training = request.training
    lengths = [1 + _characters(example) // CHARACTERS for example in examples.train]
    fitting = [min(length, training.longest) for length in lengths if not _is_skipped(training, length)]
    cost = TrainCost(training, request.base.parameters, len(fitting), sum(fitting), max(fitting, default=0))
    folder = request.folder(examples) if request.base.is_here else None
    done = folder if folder and is_finished(folder) else None
    return TrainPlan(request, examples, cost, len(lengths) - len(fitting), done)


def plan_tokens(request: TrainRequest, tokens: int) -> TrainPlan:
    """Plan a training with examples of which only the number of tokens is known."""
    cost = TrainCost(request.training, request.base.parameters, 0, tokens, 0)
    return TrainPlan(request, ExampleSplit((), ()), cost)


def _is_skipped(training: Trainer, length: int) -> bool:
    return training.skips_long and length > training.longest


def _characters(example: TextExample | PairExample) -> int:
    if isinstance(example, TextExample):
        return len(example.prompt) + len(example.completion)
    return sum(map(len, (example.anchor, example.positive, *example.negatives)))


def _measure_rate(request: TrainRequest) -> float | None:
    """Return the tokens per second of the newest training of the same kind and base."""
    base = request.base.digest() if request.base.is_here else None
    for training in list_trainings() if base else ():
        if training.ended:
            trained = Trained.read(training.folder)
            if (trained.kind, trained.base_sha256) == (request.kind, base) and trained.seconds > 0:
                return trained.tokens / float(trained.seconds)
    return None


def available_memory() -> float:
    """Return the bytes of the largest GPU, or of the machine."""
    return float(max((gpu.memory for gpu in gpus()), default=memory()))


def hours_text(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{max(1, round(seconds / 60))} minutes"

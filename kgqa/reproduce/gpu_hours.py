"""Estimate the GPU hours, memory and money of a training command. These figures are not measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgqa.config.overrides import override_group, override_values, parse_override
from kgqa.reproduce.artifacts import Asks, Learns, Step, gpu
from kgqa.system.hardware import GB
from kgqa.training.train.planning import H100_SPEED, TrainCost
from kgqa.training.train.request import TrainRequest

FORWARD_FLOPS = 2  # per parameter and token that is read

FORMULA = (
    "learning is 6 FLOPs a parameter and token, reading 2, both at 38 % of the peak (float32: of half of it); "
    "writing as fast as conf/reproduce/artefacts.yaml says, where all counts and their sources stand"
)


@dataclass(frozen=True)
class Taken:
    """`hours`: of one GPU; None: the base's size is not known."""

    hours: float | None
    gigabytes: float = 0.0

    @property
    def usd(self) -> float | None:
        return None if self.hours is None else self.hours * gpu().usd_an_hour

    def __str__(self) -> str:
        if self.hours is None or self.usd is None:
            return "GPU hours not known"
        if not self.hours:
            return "no GPU"
        hours = f"{self.hours:.1f}" if self.hours >= 0.1 else f"{self.hours:.2g}"
        return f"about {hours} GPU hours, {max(1, round(self.gigabytes))} GB, {self.usd:,.2f} USD"


def estimate_hours(step: Step, words: Sequence[str]) -> Taken:
    """Return `words`: the command as it is run. Raises ConfigError: it names no recipe, key or base that there is."""
    return in_all([_asking(step.asks, words), _learning(step.learns, words)])


def in_all(each: Iterable[Taken]) -> Taken:
    """Add up steps that run one after the other: hours and money are summed, the largest memory counts."""
    listed = list(each)
    hours = [one.hours for one in listed if one.hours is not None]
    known = len(hours) == len(listed)
    return Taken(sum(hours) if known else None, max((one.gigabytes for one in listed), default=0.0))


def _asking(asks: Asks | None, words: Sequence[str]) -> Taken:
    if asks is None:
        return Taken(0.0)
    speed = gpu().answering[asks.model]
    named = override_values(words)
    times = min([asks.times, *(int(named[key]) for key in ("limit", "sample") if named.get(key, "").isdigit())])
    reading = asks.read * FORWARD_FLOPS * speed.active * 1e9 / H100_SPEED
    return Taken(times * (reading + asks.written / speed.written) / 3600, speed.gigabytes)


def _learning(learns: Learns | None, words: Sequence[str]) -> Taken:
    if learns is None:
        return Taken(0.0)
    own = [word for word in words[1:] if override_group(word) == "train" and not _is_folder(word)]
    request = TrainRequest.of(learns.recipe or words[1], own)
    size = request.base.parameters or (learns.parameters and learns.parameters * 1e9)
    if not size:
        return Taken(None)
    examples = min(learns.examples, request.count or learns.examples)
    cost = TrainCost(request.training, size, examples, examples * learns.tokens, learns.longest)
    assert cost.h100_seconds is not None
    return Taken(learns.times * cost.h100_seconds / 3600, sum(cost.memory.values()) / GB)


def _is_folder(word: str) -> bool:
    """Return the is folder of examples, which may still have to be collected."""
    parsed = parse_override(word)
    key, value = parsed.key, parsed.value
    return key == "train.examples" and not value.isdigit()

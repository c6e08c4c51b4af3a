"""What a command that makes an artefact takes of a GPU: hours, memory, money. Reckoned, never measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgqa.experiment.config.overrides import override_group, override_values
from kgqa.experiment.machine.hardware import GB
from kgqa.experiment.reproduce.artefacts import Asks, Learns, Step, gpu
from kgqa.experiment.train.reckoning import FORWARD, PEAK, SHARE, Reckoning
from kgqa.experiment.train.request import TrainRequest
from kgqa.experiment.train.shapes import reckoned

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


def taken(step: Step, words: Sequence[str]) -> Taken:
    """`words`: the command as it is run. Raises ConfigError: it names no recipe, key or base that there is."""
    return in_all([_asking(step.asks, words), _learning(step.learns, words)])


def in_all(each: Iterable[Taken]) -> Taken:
    """One after the other: the largest memory counts."""
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
    reading = asks.read * FORWARD * speed.active * 1e9 / (PEAK["H100"] * SHARE)
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
    questions = min(learns.questions, examples)
    counts = examples, questions, examples * learns.tokens, learns.longest
    reckoning = Reckoning(request.training, reckoned(size), *counts)
    assert reckoning.on_h100 is not None
    return Taken(learns.times * reckoning.on_h100 / 3600, sum(reckoning.memory.values()) / GB)


def _is_folder(word: str) -> bool:
    """Of examples, which may still have to be collected."""
    key, _, value = word.partition("=")
    return key == "train.examples" and not value.isdigit()

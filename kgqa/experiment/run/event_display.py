"""Work that tells a display what it does, told as events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kgqa.experiment.run.events import Progress, Said, Tell
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Advance, Stage, Tally

PERIOD = 0.25  # seconds between two events of one progress


@dataclass(frozen=True)
class EventDisplay:
    tell: Tell

    def line(self, text: str, *, alarm: bool = False) -> None:
        self.tell(Said(text, alarm))

    @contextmanager
    def stage(self, title: str, count: int, ledger: Ledger) -> Iterator[Stage]:
        stage = _Stage(Tally(title, count, ledger), _Seldom(self.tell))
        stage.told()
        yield stage
        self.tell(Progress(title, stage.tally.ended, count))

    @contextmanager
    def counting(self, unit: str) -> Iterator[Advance]:
        seldom, counts = _Seldom(self.tell), dict[str, int]()

        def advance(step: str, more: int, of: int | None) -> None:
            counts[step] = counts.get(step, 0) + more
            seldom(Progress(f"{step} {unit}".strip(), counts[step], of))

        yield advance

    @contextmanager
    def cells(self, sweep: Path) -> Iterator[None]:  # noqa: ARG002 - a question has none
        yield


class _Seldom:
    """Tells the first at once, and of the others one in a while."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._told = tell, -PERIOD

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._told >= PERIOD:
            self._told = now
            self._tell(progress)


@dataclass(frozen=True)
class _Stage:
    tally: Tally
    seldom: _Seldom

    def told(self) -> None:
        self.seldom(Progress(self.tally.title, self.tally.ended, self.tally.count, self.tally.seconds_left()))

    def recorded(self) -> None:
        self.told()

    def finished(self, *, failed: bool) -> None:
        self.tally.end(failed=failed)
        self.told()

"""Why a training stops before its end: somebody asked for it, who started it is gone, or its hours are over."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType

from kgqa.storage import in_use
from kgqa.training.job import LOCK

LOOK = 5.0  # seconds between two looks at who started it


class Stop:
    """Asked once a step. A signal is only noted, so that the step comes to its end and its checkpoint is whole."""

    def __init__(self, folder: Path, max_hours: float | None) -> None:
        self._lock, self._looked = folder / LOCK, time.monotonic()
        self._attended = in_use(self._lock)  # not where a person starts the trainer
        self._ends = None if max_hours is None else time.monotonic() + 3600 * max_hours
        self._asked = False

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._asked = True

    def why(self) -> str | None:
        """None to go on."""
        now = time.monotonic()
        if self._attended and now - self._looked > LOOK:
            self._looked = now
            self._asked = self._asked or not in_use(self._lock)
        if self._asked:
            return "interrupted"
        return "hours" if self._ends is not None and now > self._ends else None

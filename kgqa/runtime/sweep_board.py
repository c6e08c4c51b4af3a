"""Define how far each cell of a sweep is, read from the sweep's folder: cells of a launcher's processes are shown
alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kgqa.artifacts.predictions import PARTIAL_PREDICTIONS
from kgqa.artifacts.sweep import CellState, SweepPlan

REFRESH = 1.0  # seconds between two looks into the folder


class CellProgress(NamedTuple):
    number: int
    name: str
    status: str
    detail: str


@dataclass(frozen=True)
class SweepBoard:
    path: Path

    def states(self) -> list[CellProgress]:
        """Return the states in cell order."""
        states = []
        for cell in SweepPlan.read(self.path).cells:  # read anew: a search adds cells
            state = CellState.read(self.path, cell.number)
            status = state.status if state else "waiting"
            states.append(CellProgress(cell.number, cell.name, status, _detail(state)))
        return states

    @contextmanager
    def told(self, say: Callable[[str], None]) -> Iterator[None]:
        """Yield a line for every cell that begins or ends while the block runs."""
        stop = threading.Event()
        teller = threading.Thread(target=self._tell, args=(say, stop), name="sweep", daemon=True)
        teller.start()
        try:
            yield
        finally:
            stop.set()
            teller.join()

    def _tell(self, say: Callable[[str], None], stop: threading.Event) -> None:
        before = {cell.number: cell.status for cell in self.states()}
        while True:
            last = stop.wait(REFRESH)
            for number, name, status, detail in self.states():
                if before.get(number, "waiting") != status:
                    before[number] = status
                    say(f"cell {number} {status}: {name}" + (f" · {detail}" if detail and status != "running" else ""))
            if last:
                return


def _detail(state: CellState | None) -> str:
    if state is None:
        return ""
    if state.status == "running":
        return _so_far(Path(state.run)) if state.run else ""
    return state.error or f"{state.seconds:,.1f} s"


def _so_far(run: Path) -> str:
    """Return questions answered, from the file that a run writes as they end."""
    try:
        with (run / PARTIAL_PREDICTIONS).open("rb") as lines:
            return f"{sum(1 for _ in lines):,} questions"
    except FileNotFoundError:
        return ""

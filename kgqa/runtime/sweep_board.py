"""How far each cell of a sweep is, read from the sweep's folder: cells of a launcher's processes are shown alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kgqa.runtime.sweep_folder import read_plan, read_result
from kgqa.types import Json

REFRESH = 1.0  # seconds between two looks into the folder


class CellState(NamedTuple):
    number: int
    name: str
    status: str
    detail: str


@dataclass(frozen=True)
class SweepBoard:
    path: Path

    def states(self) -> list[CellState]:
        """In cell order."""
        states = []
        for cell in read_plan(self.path)["cells"]:  # read anew: a search adds cells
            result = read_result(self.path, cell["number"])
            status = result["status"] if result else "waiting"
            states.append(CellState(cell["number"], cell["name"], status, _detail(result)))
        return states

    @contextmanager
    def told(self, say: Callable[[str], None]) -> Iterator[None]:
        """A line for every cell that begins or ends while the block runs."""
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


def _detail(result: Mapping[str, Json] | None) -> str:
    if result is None:
        return ""
    if result["status"] == "running":
        return _so_far(Path(result["run"])) if result["run"] else ""
    return str(result["error"] or f"{result['seconds']:,.1f} s")


def _so_far(run: Path) -> str:
    """Questions answered, from the file that a run writes as they end."""
    try:
        with (run / "predictions.partial.jsonl").open("rb") as lines:
            return f"{sum(1 for _ in lines):,} questions"
    except FileNotFoundError:
        return ""

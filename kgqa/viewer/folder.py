"""The runs and sweeps of a folder as rows of one table, read again only where their files have changed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.form import read
from kgqa.artefacts.metrics import METRICS, Metrics
from kgqa.artefacts.run import SETTINGS, Chosen
from kgqa.artefacts.runs import Kept, kept_runs, kept_sweeps
from kgqa.artefacts.sweep import SWEEP, CellState, SweepPlan
from kgqa.errors import DataError
from kgqa.inert import inert
from kgqa.report.columns import COLUMNS, Measured
from kgqa.runtime.at_work import Claimed, found_claims
from kgqa.storage import outputs
from kgqa.types import Json
from kgqa.viewer.tags import read_tags

Stamp = tuple[int | None, ...]  # when each of some files was last written, in nanoseconds


@dataclass(frozen=True, slots=True)
class Listed:
    """A run or sweep by its key: its path below the folder."""

    key: str
    kept: Kept
    sweep: bool

    @property
    def stamp(self) -> Stamp:
        """Another one where the row may say something else. A sweep's cells are replaced in their folder."""
        names = (SWEEP, "cells", "report.html") if self.sweep else (METRICS, SETTINGS)
        return tuple(_written(self.kept.folder / name) for name in names)


class Folder:
    """`outputs/` or another folder in its place. Safe to ask from several threads."""

    def __init__(self, root: Path) -> None:
        """Raises DataError: there is no such folder."""
        if not root.is_dir():
            raise DataError(f"{root}: no such folder; give the outputs/ of some runs, e.g. kgqa view outputs")
        self.root = root
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[Stamp, dict[str, Json]]] = {}

    def listed(self) -> list[Listed]:
        """The last one written first."""
        found = [(kept, False) for kept in kept_runs(self.root)] + [(kept, True) for kept in kept_sweeps(self.root)]
        found.sort(key=lambda pair: -pair[0].written)
        return [Listed(self.key(kept.folder), kept, sweep) for kept, sweep in found]

    def key(self, folder: Path) -> str:
        """As it stands in addresses: what of a name is no text is spelt out."""
        return inert(folder.relative_to(self.root).as_posix())

    def find(self, key: str) -> Listed:
        """Raises DataError: none here is called so."""
        for listed in self.listed():
            if listed.key == key:
                return listed
        raise DataError(f"{key}: no run or sweep in {self.root}; it may have been removed, see kgqa runs")

    def claims(self) -> list[Claimed]:
        return found_claims(self.root)

    def rows(self, listed: Sequence[Listed]) -> list[dict[str, Json]]:
        """One for each, with tags and how it stands now. Raises DataError: the file of tags is damaged."""
        tags = read_tags(self.root)
        working = {self._place(each.claim.folder) for each in self.claims() if each.state == "working"}
        return [self._row(each, tags, each.kept.folder.resolve() in working) for each in listed]

    def _row(self, listed: Listed, tags: Mapping[str, Sequence[str]], working: bool) -> dict[str, Json]:
        stamp = listed.stamp
        with self._lock:
            known = self._rows.get(listed.key)
        if known is None or known[0] != stamp:
            known = (stamp, self._read_sweep(listed) if listed.sweep else _read_run(listed))
            with self._lock:
                self._rows[listed.key] = known
        status = "running" if working else "done" if listed.kept.ended else "not ended"
        changing = {"status": status, "written": listed.kept.written, "tags": list(tags.get(listed.key, ()))}
        return {"key": listed.key, **known[1], **changing}

    def _read_sweep(self, listed: Listed) -> dict[str, Json]:
        """`runs`: the keys of its cells' runs, as far as they have ended."""
        row: dict[str, Json] = {"kind": "sweep", "name": inert(listed.kept.parts[-1])}
        try:
            plan = SweepPlan.read(listed.kept.folder)
            states = [CellState.read(listed.kept.folder, cell.number) for cell in plan.cells]
        except DataError as error:
            return {**row, "trouble": str(error)}
        done = [state.run for state in states if state and state.status == "done" and state.run]
        failed = sum(state is not None and state.status == "failed" for state in states)
        cells = {"cells": len(states), "done": len(done), "failed cells": failed}
        return {**row, **cells, "axes": list(plan.axes), "runs": [key for run in done if (key := self._key_of(run))]}

    def _key_of(self, run: str) -> str | None:
        """Of a cell's run; None: it lies elsewhere."""
        folder = self._place(run)
        if not folder.is_relative_to(self.root.resolve()) or not (folder / METRICS).is_file():
            return None
        return inert(folder.relative_to(self.root.resolve()).as_posix())

    def _place(self, said: str) -> Path:
        """What a path in an artefact means, which begins where its command was given: there outputs/ is this folder."""
        path = Path(said)
        return (self.root.joinpath(*path.parts[1:]) if path.parts[:1] == (outputs().name,) else path).resolve()


def _read_run(listed: Listed) -> dict[str, Json]:
    """What its files say; a run that has not ended has no figures, and one that is damaged says so."""
    dataset, method, model, name = map(inert, listed.kept.parts)
    row: dict[str, Json] = {"kind": "run", "dataset": dataset, "method": method, "model": model, "name": name}
    if not listed.kept.ended:
        return row
    folder = listed.kept.folder
    try:
        metrics, chosen = Metrics.read(folder), read(Chosen, folder / SETTINGS)
    except DataError as error:
        return {**row, "trouble": str(error)}
    figures = {column.label: _figure(column.of(metrics)) for column in COLUMNS}
    settings = {**chosen.choices, **{key: value for key, value, _ in chosen.settings}}
    known = {label: figure for label, figure in figures.items() if figure}
    return {**row, "questions": metrics.questions, "figures": known, "settings": settings}


def _figure(measured: Measured | None) -> list[Json] | None:
    if measured is None:
        return None
    return [measured.value] if measured.low is None else [measured.value, measured.low, measured.high]


def _written(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None

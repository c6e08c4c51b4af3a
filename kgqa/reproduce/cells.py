"""From a published table and what a person overrides to experiments that can run here, and what they do otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kgqa.config.files import groups
from kgqa.config.overrides import merge_overrides, override_group, override_key, override_values
from kgqa.errors import ConfigError, nearest
from kgqa.reproduce.artifacts import TRAINED, in_place
from kgqa.reproduce.published import PublishedCell, PublishedTable
from kgqa.system.availability import add_engines, find_missing
from kgqa.types import Json

NEEDING = ("needs weights", "needs data", "needs weights and data")  # states of cells that run once these are here


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A published cell with the overrides it would run with here; `state` is "run" or what is in the way."""

    published: PublishedCell
    overrides: tuple[str, ...]
    state: str
    reasons: tuple[str, ...]

    @property
    def why(self) -> str:
        return "; ".join(self.reasons)

    @property
    def command(self) -> tuple[str, ...]:
        return ("kgqa", "data", "verify") if "verify" in override_values(self.overrides) else ("kgqa", "run")

    @property
    def name(self) -> str:
        return f"{self.published.row} · {self.published.column}"


def plan_cells(table: PublishedTable, given: Sequence[str], only: str | None) -> list[PlannedCell]:
    """Raise ConfigError: `only` names no row and no column, or what is given as trained is not to be used."""
    return [_plan_cell(table, cell, given) for cell in choose_cells(table, only)]


def choose_cells(table: PublishedTable, only: str | None) -> list[PublishedCell]:
    """Raise ConfigError: `only` names no row and no column."""
    rows, columns = _choose(table, only)
    return [cell for cell in table.cells if cell.row in rows and cell.column in columns]


def split_cells(given: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return what is given: overrides, and paths of what was trained by name."""
    trained = [override for override in given if override.startswith(TRAINED)]
    overrides = tuple(override for override in given if override not in trained)
    return overrides, {key.removeprefix(TRAINED): path for key, path in override_values(trained).items()}


def replace_override(own: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """Return the paper's overrides with those given; another choice in a group takes the keys of the former one
    along.
    """
    chosen = {override_key(override) for override in given} & set(groups())
    taken = {*chosen, "sample"} if "dataset" in chosen else chosen  # how many are drawn is of a data set
    stale = [override for override in own if override_group(override) in taken and override_key(override) not in chosen]
    return merge_overrides((override for override in own if override not in stale), given)


def _plan_cell(table: PublishedTable, cell: PublishedCell, given: Sequence[str]) -> PlannedCell:
    if cell.column == table.average or cell.mean_of:
        return PlannedCell(cell, (), "mean", ())
    given, artefacts = split_cells(given)
    given = (*given, *in_place(cell.trained, artefacts))
    named = {override_key(override) for override in given}
    own = merge_overrides(cell.overrides, () if "model" in named else cell.substitute)
    if "model" in named and "engine" not in named:
        own = tuple(override for override in own if override_group(override) != "engine")
    overrides = add_engines(replace_override(own, given))
    untrained = [name for key, name in cell.trained if key not in named]
    runs = cell.availability in ("run", "model retired") or bool(cell.trained and not untrained)
    if not runs:
        hints = "".join(f" {TRAINED}{name}=PATH runs it with yours." for name in untrained)
        made = f" Made by: kgqa reproduce {table.id} --make." if untrained else ""
        return PlannedCell(cell, overrides, cell.availability, (f"{cell.why}{hints}{made}",))
    if lacking := find_missing(overrides):
        kinds = {"data" if is_data(reason) else "weights" for reason in lacking}
        state = f"needs {' and '.join(sorted(kinds, reverse=True))}"
        return PlannedCell(cell, overrides, state, tuple(dict.fromkeys(lacking)))
    return PlannedCell(cell, overrides, "run", ())


def is_data(reason: str) -> bool:
    """Return whether it is a data set that is not here, of the reasons why a cell cannot run."""
    return reason.startswith("dataset=")


def _choose(table: PublishedTable, only: str | None) -> tuple[set[str], set[str]]:
    """Return rows and columns that `only` names, as one name or several; names of one kind leave the other kind
    whole.
    """
    rows, columns = set[str](), set[str]()
    whole = only is not None and _matching(only, (*table.rows, *table.columns))  # names may hold commas
    for pattern in [only] if only and whole else only.split(",") if only else ():
        found_rows, found_columns = _matching(pattern, table.rows), _matching(pattern, table.columns)
        if not found_rows and not found_columns:
            names = (*table.rows, *table.columns)
            raise ConfigError(
                f"only={pattern}: no row and no column of {table.id} is called so; {nearest(pattern, names)}"
            )
        rows |= found_rows
        columns |= found_columns
    return rows or set(table.rows), columns or set(table.columns)


def _matching(pattern: str, names: Sequence[str]) -> set[str]:
    """Return the name itself, else those that the pattern (`*`, `?`) or a part of the name matches; case does not
    count.
    """
    folded = {name: name.casefold() for name in names}
    wanted = pattern.strip().casefold()
    for match in (wanted.__eq__, lambda name: fnmatchcase(name, wanted), lambda name: bool(wanted) and wanted in name):
        if matching := {name for name, text in folded.items() if match(text)}:
            return matching
    return set()


def count_cells(states: Sequence[str]) -> Iterator[tuple[str, Json]]:
    """Yield cells by state, the one that runs first."""
    yield from (
        (state, states.count(state)) for state in sorted(set(states), key=lambda state: (state != "run", state))
    )

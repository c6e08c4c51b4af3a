"""The papers' tables: one file each under conf/reproduce, see docs/dev/TABLE_FILES.md for the form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kgqa.artifacts.schema import check_json
from kgqa.config.files import load_yaml
from kgqa.config.overrides import merge_overrides, override_values
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.experiment import Experiment
from kgqa.scoring.published_delta import PublishedMetric, Value
from kgqa.types import Json
from kgqa.util.places import package_conf

Availability = Literal["run", "needs training", "model retired", "human", "quoted", "not built"]
FORM = "See docs/dev/TABLE_FILES.md"
# as a scorer's profile: that of each dataset
DATASET = "dataset"
OneOrMore = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
]


class PaperSetting(NamedTuple):
    """A setting of the paper, our key for it ("": none), and our value if that always differs."""

    name: str
    theirs: str
    key: str
    ours: str = ""


class Strict(BaseModel):
    """A part of a file without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class Scorer(Strict):
    """A released scorer. profile: ours with the same values, or "dataset". file: in the authors' code, or "none"."""

    profile: str
    file: str
    golds: str

    @property
    def overrides(self) -> tuple[str, ...]:
        return () if self.profile == DATASET else (f"scoring={self.profile}",)


class Fate(Strict):
    """The keys of a row or of one of its cells. A cell without a key has its row's value, then that of their kinds."""

    kind: str = ""  # one of the table's kinds
    availability: Availability | None = None
    why: str = ""
    # the paper's, as far as kgqa has it
    overrides: tuple[str, ...] = ()
    # overrides that replace a retired model
    substitute: OneOrMore = ()
    # keys, and the trained model that each needs
    trained: dict[str, str] = {}
    # settings, each with the paper's value and ours
    differs: dict[str, tuple[str, str]] = {}
    # overrides of footing=shared, which puts all rows on one footing
    shared: tuple[str, ...] = ()


class PublishedCell(Fate):
    row: str
    column: str
    availability: Availability = "run"
    # in the order of the metrics; None: not in the paper's text
    values: tuple[Value | None, ...]
    # rows: this cell shows their mean; (): it has its own value
    mean_of: tuple[str, ...] = ()


class _Row(Fate):
    name: str
    published: dict[str, tuple[float | str | None, ...] | None] | None = (
        None  # None: every column without values
    )
    # standard deviations of the published values
    spread: dict[str, tuple[float | None, ...]] = {}
    cells: dict[str, Fate] = {}
    mean_of: tuple[str, ...] = ()


def _list_metrics(metrics: Mapping[str, Json]) -> list[Json]:
    """Return the metrics with their names. A metric without other keys is only a path."""
    keys = {
        name: each if isinstance(each, Mapping) else {"path": each}
        for name, each in metrics.items()
    }
    return [{"name": name, "unit": "%", "why": "", **each} for name, each in keys.items()]


class PublishedTable(Strict):
    """One table or figure, with the keys of its file. `against` is the metric on a figure's x axis; "": the columns."""

    id: str
    title: str
    paper: str
    place: str
    source: Literal["text", "plot", "mixed"]
    scorer: str  # its name in scorers.yaml
    # the copies that the values are from; "": read from the paper or its authors' pages
    second_hand: str = ""
    given: tuple[str, ...] = ()  # overrides of every cell
    metrics: Annotated[tuple[PublishedMetric, ...], BeforeValidator(_list_metrics)]
    settings: Annotated[
        tuple[PaperSetting, ...],
        BeforeValidator(lambda texts: [(name, *texts[name]) for name in texts]),
    ]
    kinds: dict[str, Fate] = {}
    axis: str = ""
    against: str = ""
    by_column: dict[str, tuple[str, ...]] = Field(alias="columns")  # overrides
    # the column that is the mean of the others; "": none
    average: str = ""
    # a mean is over the questions of all its cells, instead of over the cells
    pool: bool = False
    # the paper's number of questions, also by column or dataset
    asked: int | dict[str, int] | None = None
    entries: tuple[_Row, ...] = Field(alias="rows")

    @cached_property
    def released(self) -> Scorer:
        """Return its scorer. Raises DataError: scorers.yaml has no such name."""
        scorers: dict[str, Scorer] = read_conf("scorers.yaml", dict[str, Scorer])
        if self.scorer not in scorers:
            raise DataError(
                f"{self.id}: scorer: {self.scorer}: not in scorers.yaml. {nearest(self.scorer, scorers)}"
            )
        return scorers[self.scorer]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.by_column, *([self.average] if self.average else []))

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.entries)

    @cached_property
    def cells(self) -> tuple[PublishedCell, ...]:
        return tuple(cell for row in self.entries for cell in _cells(self, row))

    def questions(self, column: str, overrides: Sequence[str]) -> int | None:
        """Return the number of questions of a published value, None if the paper does not give it."""
        if column == self.average:
            counts = [self.questions(name, others) for name, others in self.by_column.items()]
            return sum(count for count in counts if count) if all(counts) else None
        if not isinstance(self.asked, dict):
            return self.asked
        return self.asked.get(column, self.asked.get(override_values(overrides).get("dataset", "")))


def table_ids() -> list[str]:
    """Return `paper/table1`, papers by name, tables before figures, both in the order of their numbers."""
    folder = package_conf() / "reproduce"
    names = (
        file.relative_to(folder).with_suffix("").as_posix() for file in folder.glob("*/*.yaml")
    )
    matches = [
        match for name in names if (match := re.fullmatch(r"(\w+)/(table|figure)(\d+)", name))
    ]
    return [
        match[0]
        for match in sorted(
            matches, key=lambda match: (match[1], match[2] != "table", int(match[3]))
        )
    ]


def load_table(table_id: str) -> PublishedTable:
    """Read a table of conf/reproduce.

    Raises ConfigError: there is none of that id. DataError: its file does not have the form of docs/dev/TABLE_FILES.md.
    The message names file and key.
    """
    names = table_ids()
    if table_id not in names:
        raise ConfigError(
            f"{table_id}: no such table or figure. {nearest(table_id, names)} List them with: kgqa reproduce --list"
        )
    return read_table(package_conf() / "reproduce" / f"{table_id}.yaml", table_id)


def choose_footing(table: PublishedTable, footing: str) -> PublishedTable:
    """Return the table with the overrides of footing=shared, which gives all rows the same examples.

    Raises ConfigError: the table has no such overrides.
    """
    if footing == "own":
        return table
    if not any(cell.shared for cell in table.cells):
        raise ConfigError(
            f"footing={footing}: {table.id} has no examples for all rows. Remove footing="
        )
    cells = (
        cell.model_copy(update={"overrides": merge_overrides(cell.overrides, cell.shared)})
        for cell in table.cells
    )
    return table.model_copy(update={"cells": tuple(cells)})


def read_table(file: Path, table_id: str) -> PublishedTable:
    """Read a table. Raises DataError as `load_table`."""
    return check_json(PublishedTable, {**_with_base(file), "id": table_id}, str(file), FORM)


@cache
def read_conf(name: str, kind: Any) -> Any:
    """Read a file of conf/reproduce that has no table. Raises DataError: it does not have the form of `kind`."""
    file = package_conf() / "reproduce" / name
    return check_json(kind, load_yaml(file), str(file), FORM)


def find_published(table_id: str, experiment: Experiment) -> dict[str, float]:
    """Return the published values for a dataset and split by the last part of their path, {} if there are none."""
    wanted, table = (
        (experiment.name("dataset"), experiment.config["dataset"].get("split", "dev")),
        load_table(table_id),
    )
    for cell in table.cells:
        named = override_values(cell.overrides)
        if (named.get("dataset"), named.get("dataset.split", "dev")) == wanted:
            pairs = zip(table.metrics, cell.values, strict=True)
            return {
                (metric.path or "").rpartition(".")[2]: value.number
                for metric, value in pairs
                if value
            }
    return {}


def _with_base(file: Path) -> Mapping[str, Json]:
    """Return a table merged with the file that its key `base` names. Its own keys win, settings are merged."""
    table = load_yaml(file)
    if "base" not in table:
        return dict(table)
    base = _with_base(file.with_name(table.pop("base")))
    return {**base, **table, "settings": {**base.get("settings", {}), **table.get("settings", {})}}


def _cells(table: PublishedTable, row: _Row) -> Iterator[PublishedCell]:
    for column, values in (
        dict.fromkeys(table.by_column) if row.published is None else row.published
    ).items():
        own = row.cells.get(column, Fate())
        fates = [fate for each in (row, own) for fate in (table.kinds.get(each.kind, Fate()), each)]
        # the last value that is not empty
        keys = {
            key: value
            for fate in fates
            for key, value in fate
            if value and key in Fate.model_fields
        }
        models = keys.get("trained", {}) if keys.get("availability") == "needs training" else {}
        own_overrides = (fate.overrides for fate in fates)
        overrides = merge_overrides(
            table.released.overrides, table.given, table.by_column.get(column, ()), *own_overrides
        )
        asked = table.questions(column, overrides)
        asked = asked * len(row.mean_of) if asked and row.mean_of and table.pool else asked
        nothing = (None,) * len(table.metrics)
        keys |= {
            "overrides": overrides,
            "trained": {key: name.format(column=column) for key, name in models.items()},
            "differs": {**row.differs, **own.differs},
            "values": tuple(
                map(Value.of, values or nothing, row.spread.get(column) or nothing, repeat(asked))
            ),
        }
        yield PublishedCell(**keys, row=row.name, column=column, mean_of=row.mean_of)

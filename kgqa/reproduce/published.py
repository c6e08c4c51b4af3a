"""The published tables as types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kgqa.scoring.published_delta import Metric, Value

Availability = Literal["run", "needs training", "model retired", "human", "quoted", "not built"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the paper, our key for it ("": none), and our value if that always differs."""

    name: str
    theirs: str
    key: str
    ours: str


@dataclass(frozen=True, slots=True)
class PublishedCell:
    row: str
    column: str
    overrides: tuple[str, ...]  # the paper's, as far as we have it
    substitute: tuple[str, ...]  # what takes the place of a model that is retired
    values: tuple[Value | None, ...]  # in the metrics' order; None: not given in the paper's text
    availability: Availability
    why: str
    trained: tuple[tuple[str, str], ...]  # keys, and what must be trained for each
    mean_of: tuple[str, ...]  # the rows whose mean it is; (): it is a value of its own
    differs: tuple[tuple[str, str, str], ...]  # setting, the paper's value, ours


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table or figure. `against` is the metric that is a figure's x axis; "": the columns are."""

    id: str
    title: str
    place: str
    source: str
    metrics: tuple[Metric, ...]
    settings: tuple[Setting, ...]
    axis: str
    against: str
    columns: tuple[str, ...]
    average: str  # the column that is the mean of the others; "": none
    rows: tuple[str, ...]
    cells: tuple[PublishedCell, ...]

"""The rows of a sweep's report: a finished cell each, or the repeats of a cell as one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from pathlib import Path

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import SET, Cell, row_key
from kgqa.report.columns import Column, Measured, measure_score, name_by_settings
from kgqa.report.section import FILES, MarkedCell
from kgqa.report.shares import RunShares, Shares, read_shares
from kgqa.scoring.repeats import Repeated, repeated_estimate


@dataclass(frozen=True)
class DoneCell:
    """A finished cell with its run."""

    cell: Cell
    run: FinishedRun

    @property
    def metrics(self) -> Metrics:
        return self.run.metrics

    @cached_property
    def read(self) -> RunShares:
        return read_shares(self.run)

    @property
    def key(self) -> tuple[str, ...]:
        """Return dataset, profile and question ids. Cells with equal keys can be compared."""
        return self.read.key

    def link(self, base: Path) -> str:
        """Return the address of the cell's own report, from the folder `base`."""
        return Path(os.path.relpath(self.run.folder / FILES["html"], base)).as_posix()

    @property
    def is_sampled(self) -> bool:
        """Return whether calls of the method are sampled."""
        values = {key: value for key, value, _ in self.run.settings if key.startswith("method.")}
        return any(
            key.endswith("temperature") and _is_positive(value) for key, value in values.items()
        )


@dataclass(frozen=True)
class SweepRow:
    """A row of the report. repeats: one cell, or all repeats of it."""

    repeats: Sequence[DoneCell]

    @property
    def first(self) -> DoneCell:
        return self.repeats[0]

    @property
    def is_repeated(self) -> bool:
        return len(self.repeats) > 1

    @property
    def numbers(self) -> str:
        return ", ".join(str(each.cell.number) for each in self.repeats)

    @property
    def metrics(self) -> Sequence[Metrics]:
        return [each.metrics for each in self.repeats]

    @property
    def is_constant(self) -> bool:
        """Return whether all repeats have the same scores of every question, and not by chance."""
        few_shot_sets = {each.cell.values.get(SET) for each in self.repeats}
        return (
            self.is_repeated
            and not self.first.is_sampled
            and len(few_shot_sets) == 1
            and all(each.read.by_score == self.first.read.by_score for each in self.repeats)
        )

    def shares(self, score: str | None) -> Sequence[Shares]:
        """Return the share of each question in each repeat, or nothing if a repeat lacks the score."""
        return collect_shares([each.read for each in self.repeats], score)

    @property
    def failed(self) -> frozenset[str]:
        """Return the ids of the questions that failed in some repeat."""
        return frozenset().union(*(each.read.failed for each in self.repeats))

    def repeated(self, score: str | None) -> Repeated | None:
        return repeated_estimate(self.shares(score))

    def measure(self, column: Column) -> Measured | None:
        """Return the figure of a column. Of repeats, a score is their mean, and a cost is the mean per run."""
        if not self.is_repeated:
            has_score = column.score is None or bool(self.shares(column.score))
            return column.measure(self.first.metrics) if has_score else None
        shares = self.shares(column.score) if column.score else ()
        return measure_repeats(column, self.metrics, shares)

    def name(self, axes: Sequence[str]) -> str:
        values = self.first.cell.values
        return (
            name_by_settings({axis: values[axis] for axis in axes if axis in values})
            or self._whole_name
        )

    @property
    def _whole_name(self) -> str:
        """Return the name of a row in which no setting differs from the others."""
        count = len(self.repeats)
        return f"mean of {count} runs" if self.is_repeated else self.first.cell.name

    def values(self, axes: Sequence[str], base: Path) -> list[MarkedCell]:
        """Return the values that differ. The first one links to the cell's own report, from the folder `base`.

        A mean has no link to one of its repeats.
        """
        link = "" if self.is_repeated else self.first.link(base)
        cell = self.first.cell
        first, *others = [cell.values.get(axis, "") for axis in axes] or [self._whole_name]
        return [MarkedCell(first, link=link), *map(MarkedCell, others)]


def join_repeats(cells: Iterable[DoneCell], axes: Collection[str]) -> list[SweepRow]:
    """Return the rows of cells: those with equal values of all axes but `repeat` are one."""
    groups: dict[tuple[str, ...], list[DoneCell]] = {}
    for cell in cells:
        groups.setdefault(row_key(cell.cell, axes), []).append(cell)
    return [SweepRow(group) for group in groups.values()]


def find_frontier(points: Mapping[int, tuple[float, float]]) -> list[int]:
    """Return the keys of the points (cost, score) that no other point beats, cheapest first.

    A point beats another one if it costs no more and scores no less, and is better in one of both.
    """

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] <= other[0] and one[1] >= other[1]

    best = [
        key
        for key, point in points.items()
        if not any(beats(other, point) for other in points.values())
    ]
    return sorted(best, key=lambda key: points[key])


def _is_positive(value: object) -> bool:
    try:
        return float(str(value)) > 0
    except ValueError:
        return False


def measure_repeats(
    column: Column, metrics: Sequence[Metrics], shares: Sequence[Shares]
) -> Measured | None:
    """Return the figure of a column over repeats: the mean score with the spread between runs, or the mean cost.

    shares: of `collect_shares`, not needed for a cost.
    """
    if column.score is None:
        return _average([column.measure(each) for each in metrics])
    repeated = repeated_estimate(shares)
    estimate = repeated.estimate if repeated else None
    return measure_score(estimate, metrics[0].questions) if estimate else None


def collect_shares(read: Sequence[RunShares], score: str | None) -> Sequence[Shares]:
    """Return the share of each question in each run, or nothing if a run lacks the score."""
    shares = [each.of(score or "") for each in read]
    return shares if all(shares) else ()


def _average(figures: Sequence[Measured | None]) -> Measured | None:
    """Return the mean of costs, or the sum of counts, of which None is 0. Otherwise None.

    The mean of corrected scores has no interval, and costs that one run lacks have no mean.
    """
    present = [figure for figure in figures if figure is not None]
    if not present or any(figure.low is not None for figure in present):
        return None
    total = fsum(figure.value for figure in present)
    if present[0].of is not None:
        # all repeats answer the same questions
        return Measured(total, of=present[0].of * len(figures))
    if len(present) < len(figures):
        return None
    return Measured(total / len(present), digits=present[0].digits)

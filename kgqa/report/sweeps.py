"""Build the report of a sweep: cells next to each other, what differs, what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import question_ids, run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import CellState, ListedCell, SweepPlan, in_use, questions_asked
from kgqa.artifacts.trace import read_questions
from kgqa.artifacts.verdicts import read_verdicts
from kgqa.errors import DataError
from kgqa.report.columns import COLUMNS, Measured, dollars, tokens
from kgqa.report.matrix import Matrix, matrix_of
from kgqa.report.plots import Plot, Point, Series
from kgqa.report.splits import Answered, Shares, split_by_knowledge
from kgqa.scoring.comparison import ALPHA, compare, holm
from kgqa.scoring.questions import score_question
from kgqa.types import Json
from kgqa.util.text import pluralize

Mark = Literal["", "best", "second"]


@dataclass(frozen=True)
class CellRun:
    """A cell beside its run, which is None until it has ended well."""

    number: int
    name: str
    overrides: Mapping[str, str]  # key to value
    status: str  # waiting, running, interrupted, done, changed, failed, not run
    error: str | None
    run: FinishedRun | None


@dataclass(frozen=True)
class Entry:
    """`worse`: significantly, than the best of the column."""

    text: str
    mark: Mark
    worse: bool
    measured: Measured | None


@dataclass(frozen=True)
class SweepTable:
    """Cells that answered the same questions."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[CellRun, Sequence[Entry]]]
    plot: Plot | None  # of score against cost
    known: Sequence[tuple[str, str, str]]  # see `split_by_knowledge`
    matrix: Matrix


@dataclass(frozen=True)
class SweepReport:
    path: Path
    command: Sequence[str]
    axes: Mapping[str, Sequence[Json]]
    cells: Sequence[CellRun]
    differing: Sequence[tuple[str, Sequence[tuple[str, Sequence[int]]]]]  # a key, its values, the cells with each
    plotted: str | None  # a score against cost; None: the first that all cells have and that tells them apart

    @classmethod
    def read(cls, path: Path, plotted: str | None = None) -> SweepReport:
        """
        Raises:
            DataError: not a sweep's folder, one of another version, or one with a damaged run.
        """
        plan = SweepPlan.read(path)
        if plan.command[1:2] == ("reproduce",):
            raise DataError(f"{path}: of kgqa reproduce; the same command writes its report.html again")
        cells = [_cell(path, listed) for listed in plan.cells]
        return cls(path, plan.command, plan.axes, cells, _by_value(plan.differing or {}), plotted)

    @property
    def title(self) -> str:
        done = sum(cell.run is not None for cell in self.cells)
        return f"Sweep {self.path.name}: {done} of {len(self.cells)} cells"

    def failures(self) -> list[tuple[str, str, str, str]]:
        """Number, name, status and reason of every cell without figures."""
        return [(str(c.number), c.name, c.status, c.error or "") for c in self.cells if c.run is None]


def tables(report: SweepReport) -> list[SweepTable]:
    """Return one for each set of questions, in the order of the cells."""
    groups: dict[tuple[str, ...], list[CellRun]] = {}
    for cell in report.cells:
        if cell.run is not None:
            key = (cell.run.choices["dataset"], cell.run.metrics.profile, *question_ids(cell.run.folder))
            groups.setdefault(key, []).append(cell)
    return [_table(key, cells, report) for key, cells in groups.items()]


def _table(key: tuple[str, ...], cells: Sequence[CellRun], report: SweepReport) -> SweepTable:
    dataset, profile, *questions = key
    shown = [axis for axis in report.axes if len({c.overrides.get(axis) for c in cells}) > 1]
    named = [_texts([cell.overrides.get(axis, "") for axis in shown] or [cell.name]) for cell in cells]
    shares = [_shares(cell) for cell in cells]
    columns, entries = [], []
    for column in COLUMNS:
        figures = [column.of(_metrics(cell)) for cell in cells]
        if any(figure is not None for figure in figures):
            columns.append(column.label)
            entries.append(mark_best(figures, [by_score.get(column.shares or "") for by_score in shares]))
    rows = [(cell, [*named[n], *(entry[n] for entry in entries)]) for n, cell in enumerate(cells)]
    title = f"{dataset}, {pluralize(len(questions), 'question')}, {profile} profile"
    if made_up := [str(cell.number) for cell in cells if cell.run and cell.run.simulation_note]:
        title += f" · cells {', '.join(made_up)} made up: engine=scripted is no model"
    header = ("cell", *(shown or ["settings"]), *columns)
    known = split_by_knowledge([_count_answered(cell, shown, each) for cell, each in zip(cells, shares, strict=True)])
    runs = [
        (cell.number, cell.name, cell.run, each["em"]) for cell, each in zip(cells, shares, strict=True) if cell.run
    ]
    return SweepTable(title, header, rows, _plot(title, cells, shown, report.plotted), known, matrix_of(runs))


def _count_answered(cell: CellRun, axes: Sequence[str], shares: Mapping[str, Shares]) -> Answered:
    assert cell.run is not None
    choices = cell.run.choices
    return Answered(
        f"{cell.number} {_point_name(cell, axes)}", choices["method"], choices.get("model", ""), shares["em"]
    )


def mark_best(figures: Sequence[Measured | None], shares: Sequence[Shares | None]) -> list[Entry]:
    """Return the best and second best of the scores; `worse` by the paired test against the best, after Holm's
    correction.
    """
    is_score = any(figure is not None and figure.low is not None for figure in figures)
    ranked = sorted({_round(figure) for figure in figures if figure is not None}, reverse=True)
    marks: dict[float, Mark] = {ranked[0]: "best", ranked[1]: "second"} if is_score and len(ranked) > 1 else {}
    worse = _worse(figures, shares) if marks else set()
    return [
        Entry("–", "", False, None)
        if figure is None
        else Entry(_figure(figure), marks.get(_round(figure), ""), place in worse, figure)
        for place, figure in enumerate(figures)
    ]


def _worse(figures: Sequence[Measured | None], shares: Sequence[Shares | None]) -> set[int]:
    known = [n for n, figure in enumerate(figures) if figure is not None and shares[n] is not None]
    if len(known) < 2:
        return set()
    best = max(known, key=lambda n: _round(figures[n]))
    first = shares[best] or {}
    p_values = {}
    for other in known:
        second = shares[other] or {}
        tested = compare({"": {"best": list(first.values()), "other": [second.get(key) for key in first]}}, seed=0)
        if other != best and tested:  # over the questions that both define, the best may be the worse one
            p_values[other] = tested[0].p if tested[0].difference > 0 else 1.0
    adjusted = holm(list(p_values.values()))
    return {other for other, p in zip(p_values, adjusted, strict=True) if p < ALPHA}


def _shares(cell: CellRun) -> dict[str, Shares]:
    """Return what each question's part in the cell's scores is."""
    assert cell.run is not None
    folder, metrics = cell.run.folder, cell.run.metrics
    questions = {question.id: question for question in read_questions(folder)}
    by_score: dict[str, dict[str, float | None]] = {
        score: {} for score in ("em", "f1", "containment", "support_recall", "judge")
    }
    for prediction in run_predictions(folder):
        scored = score_question(questions[prediction.question_id], prediction, metrics.profile)
        by_score["em"][scored.id], by_score["f1"][scored.id] = scored.em, scored.f1
        by_score["containment"][scored.id] = scored.containment
        by_score["support_recall"][scored.id] = scored.support_recall
    if metrics.judge:
        by_score["judge"] = {key: judgement.share for key, judgement in read_verdicts(folder).items()}
    return {name: shares for name, shares in by_score.items() if shares}


def _point_name(cell: CellRun, axes: Sequence[str]) -> str:
    """Return a point's name: the values that differ, each with the last part of its key, or the method."""
    assert cell.run is not None
    given = {axis: cell.overrides[axis] for axis in axes if axis in cell.overrides}
    named = [value if axis == "method" else f"{axis.rpartition('.')[2]}={value}" for axis, value in given.items()]
    return " ".join(named) or cell.run.choices["method"]


def _plot(title: str, cells: Sequence[CellRun], axes: Sequence[str], plotted: str | None) -> Plot | None:
    """Return the wanted score against dollars where all cells are priced, else tokens.

    Without a wish it is the first score that all cells have and that tells them apart: one that is 0
    in all tells nothing.
    """
    measured = [_metrics(cell) for cell in cells]
    wanted = [column for column in COLUMNS if column.shares and plotted in (None, column.label)]
    known = [column for column in wanted if all(column.of(metrics) for metrics in measured)]
    telling = (column for column in known if len({_round(column.of(metrics)) for metrics in measured}) > 1)
    scored = next(telling, known[0] if known else None)
    if scored is None or len(cells) < 2:
        return None
    priced = all(metrics.cost.method.usd is not None for metrics in measured)
    label, cost = ("USD per question", dollars) if priced else ("tokens per question", tokens)
    points = []
    for cell, metrics in zip(cells, measured, strict=True):
        spent, reached = cost(metrics), scored.of(metrics)
        if spent is not None and reached is not None:
            points.append(Point(spent.value, reached.value, reached.low, reached.high, _point_name(cell, axes)))
    best = [replace(point, low=None, high=None, label="") for point in frontier(points)]
    series = [Series("cells", points, 0, line=False), Series("no cell is both better and cheaper", best, 1)]
    return Plot(f"{scored.label} against cost: {title}", label, scored.label, series)


def frontier(points: Sequence[Point]) -> list[Point]:
    """Return the points that cost less than every better one, cheapest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.x, -point.y)):
        if not kept or point.y > kept[-1].y:
            kept.append(point)
    return kept


def _cell(path: Path, listed: ListedCell) -> CellRun:
    given = (override.lstrip("+~").partition("=") for override in listed.overrides)
    overrides = {key: value for key, _, value in given}
    state = CellState.read(path, listed.number)
    if state is None:
        return CellRun(listed.number, listed.name, overrides, "waiting", None, None)
    status: str = state.status
    error, run = state.error, None
    if status == "running" and not in_use(path):
        status, error = "interrupted", "no command works on this sweep now; the sweep's command goes on"
    if status == "done" and state.run is not None:
        run = FinishedRun.read(Path(state.run))
        if state.asked not in (None, questions_asked(run.folder)):
            status, run = "changed", None
            error = "another command has asked its run other questions since; run the sweep's command again"
    return CellRun(listed.number, listed.name, overrides, status, error, run)


def _by_value(differing: Mapping[str, Sequence[Json]]) -> list[tuple[str, list[tuple[str, list[int]]]]]:
    grouped = []
    for key, values in differing.items():
        cells: dict[str, list[int]] = {}
        for number, value in enumerate(values):
            cells.setdefault(str(value), []).append(number)
        grouped.append((key, list(cells.items())))
    return grouped


def _metrics(cell: CellRun) -> Metrics:
    assert cell.run is not None
    return cell.run.metrics


def _texts(values: Sequence[str]) -> list[Entry]:
    return [Entry(value, "", False, None) for value in values]


def _round(figure: Measured | None) -> float:
    return -1.0 if figure is None else round(figure.value, 6)


def _figure(figure: Measured) -> str:
    if figure.low is not None and figure.high is not None:
        return f"{figure.value:.1f} [{figure.low:.1f}, {figure.high:.1f}]"
    return f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.4g}"

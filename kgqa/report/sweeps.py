"""The report of a sweep: its cells next to each other with marks, the settings that differ, the failures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from kgqa.artifacts.predictions import question_ids, run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import SweepCell, SweepPlan, questions_asked
from kgqa.artifacts.trace import read_questions
from kgqa.artifacts.verdicts import read_verdicts
from kgqa.errors import DataError
from kgqa.report.columns import Measured, columns, dollars, name_by_settings, tokens
from kgqa.report.page import sections_page
from kgqa.report.plots import Bar, BarPlot, Plot, Point, Series
from kgqa.report.run_report import notices
from kgqa.report.section import FILES, MarkedCell, Section, csv_text, latex, markdown
from kgqa.scoring.comparison import ALPHA, compare, holm
from kgqa.scoring.questions import METRICS, score_questions
from kgqa.types import Json
from kgqa.util.fs import is_locked, replace_file
from kgqa.util.jsonio import encode_json
from kgqa.util.text import pluralize

NOTE = (
    "Scores in percent with 95 % bootstrap intervals over questions. Best: bold. Second best: underlined. *: "
    "significantly below the best of its column (paired test over the same questions, p < 0.05 after Holm's "
    "correction over the column). Costs are computed as if no reply had been cached."
)
Shares = Mapping[str, float | None]  # by question


@dataclass(frozen=True)
class SweepReport:
    path: Path
    plan: SweepPlan

    @classmethod
    def read(cls, path: Path) -> SweepReport:
        """Read a sweep. Raises DataError: not a sweep's folder, or one with a damaged run."""
        plan = SweepPlan.read(path)
        if plan.command[1:2] == ("reproduce",):
            raise DataError(f"{path}: of kgqa reproduce. The same command writes its report.html again.")
        return cls(path, plan.replace(cells=tuple(_read_cell(path, cell) for cell in plan.cells)))

    @property
    def cells(self) -> Sequence[SweepCell]:
        return self.plan.cells

    @property
    def title(self) -> str:
        done = sum(cell.finished is not None for cell in self.cells)
        return f"Sweep {self.path.name}: {done} of {len(self.cells)} cells"

    def failures(self) -> list[tuple[str, str, str, str]]:
        """Return number, name, status and reason of the cells without figures."""
        return [(str(c.number), c.name, c.status, c.error or "") for c in self.cells if not c.finished]

    def tables(self, out: Path | None = None) -> list[Section]:
        """Return a table for each set of questions. `out`: the file with the links."""
        groups: dict[tuple[str, ...], list[SweepCell]] = {}
        for cell in self.cells:
            if cell.finished is not None:
                key = (cell.finished.choices["dataset"], cell.metrics.profile, *question_ids(cell.finished.folder))
                groups.setdefault(key, []).append(cell)
        return [self._table(key, cells, out or self.path / FILES["html"]) for key, cells in groups.items()]

    def _table(self, key: tuple[str, ...], cells: Sequence[SweepCell], out: Path) -> Section:
        dataset, profile, *questions = key
        axes = [axis for axis in self.plan.axes if len({cell.values.get(axis) for cell in cells}) > 1]
        rows = [[MarkedCell(str(cell.number)), *_values(cell, axes, out)] for cell in cells]
        shares, header = [_shares(cell) for cell in cells], ["cell", *(axes or ["settings"])]
        for column in columns():
            figures = [
                column.measure(cell.metrics) if column.score is None or column.score in by_score else None
                for cell, by_score in zip(cells, shares, strict=True)
            ]
            if any(figures):
                header.append(column.label)
                of_column = [by_score.get(column.score or "") for by_score in shares]
                marked = mark_best(figures, of_column, lower_is_better=column.lower_is_better)
                for row, entry in zip(rows, marked, strict=True):
                    row.append(entry)
        title = f"{dataset}, {pluralize(len(questions), 'question')}, {profile} profile"
        return Section(title, header, rows, (NOTE,), plots=_plots(cells, axes))

    def notices(self) -> list[str]:
        """Return each notice once, with its cells."""
        found: dict[str, list[int]] = {}
        for cell in self.cells:
            for notice in notices(cell.finished) if cell.finished else ():
                found.setdefault(notice, []).append(cell.number)
        return [
            notice if len(numbers) == len(self.cells) else f"{notice} ({_cells(numbers)})"
            for notice, numbers in found.items()
        ]

    def sections(self, out: Path) -> list[Section]:
        values = (self.plan.differing or {}).items()
        differing = [(key, _by_value(each)) for key, each in values if key not in self.plan.axes]
        listed = [
            Section("Cells without results", ("cell", "settings", "status", "why"), self.failures()),
            Section("Settings that differ", ("key", "values"), differing, is_folded=True),
        ]
        return [*self.tables(out), *(section for section in listed if section.rows)]

    def csv(self) -> str:
        """Return one line per cell with figures as numbers. A score has columns for the ends of its interval."""
        shown = columns()
        ends = [f"{column.label} {end}" for column in shown if column.score for end in ("low", "high")]
        header = ["cell", "name", *self.plan.axes, "status", "questions", *(column.label for column in shown)]
        rows: list[list[object]] = [[*header, *ends, "run"]]
        for cell in self.cells:
            run = cell.finished
            figures = [column.measure(run.metrics) if run else None for column in shown]
            of_scores = [figure for figure, column in zip(figures, shown, strict=True) if column.score]
            rows.append(
                [
                    cell.number,
                    cell.name,
                    *(cell.values.get(axis) for axis in self.plan.axes),
                    cell.status,
                    run.metrics.questions if run else None,
                    *(figure.value if figure else None for figure in figures),
                    *(end for each in of_scores for end in ((each.low, each.high) if each else (None, None))),
                    str(run.folder) if run else None,
                ]
            )
        return csv_text(rows)


def write_sweep_report(path: Path, form: str, out: Path | None = None) -> Path:
    """Write a sweep's report in one of `FILES`, by default into its folder, and return the file."""
    report, out = SweepReport.read(path), out or path / FILES[form]
    command = " ".join(report.plan.command)
    match form:
        case "csv":
            text = report.csv()
        case "latex":
            text = latex(report.title, report.tables(out))
        case "md":
            opening = Section("", (), (), (f"`{command}`",))
            text = markdown(report.title, [opening, *report.sections(out)], report.notices())
        case _:
            text = sections_page(report.title, command, report.sections(out), report.notices())
    return replace_file(out, text)


def mark_best(
    figures: Sequence[Measured | None], shares: Sequence[Shares | None], *, lower_is_better: bool = False
) -> list[MarkedCell]:
    """Return the cells of a column. A score has its best and second best marked, and what is significantly worse.

    Each cell is tested against the best over the questions that both define, with Holm's correction.
    """
    sign = -1 if lower_is_better else 1
    values = [-inf if figure is None else sign * round(figure.value, 6) for figure in figures]
    is_score = any(figure is not None and figure.low is not None for figure in figures)
    ranked = sorted({value for value, figure in zip(values, figures, strict=True) if figure is not None}, reverse=True)
    marks = dict(zip(ranked, ("best", "second"), strict=False)) if is_score and len(ranked) > 1 else {}
    marks = {value: mark for value, mark in marks.items() if mark == "best" or values.count(value) == 1}
    worse = _find_worse(values, figures, shares, sign) if marks else set()
    return [
        MarkedCell("–") if figure is None else MarkedCell(str(figure), marks.get(values[n], ""), worse=n in worse)
        for n, figure in enumerate(figures)
    ]


def _find_worse(
    values: Sequence[float], figures: Sequence[Measured | None], shares: Sequence[Shares | None], sign: int
) -> set[int]:
    known = [n for n, figure in enumerate(figures) if figure is not None and shares[n] is not None]
    if len(known) < 2:
        return set()
    best = max(known, key=lambda n: values[n])
    first = shares[best] or {}
    p_values = {}
    for other in known:
        second = shares[other] or {}
        tested = compare({"": {"best": list(first.values()), "other": [second.get(key) for key in first]}}, seed=0)
        if other != best and tested:  # over the questions that both define, the best one can be worse
            p_values[other] = tested[0].p if sign * tested[0].difference > 0 else 1.0
    adjusted = holm(list(p_values.values()))
    return {other for other, p in zip(p_values, adjusted, strict=True) if p < ALPHA}


def _shares(cell: SweepCell) -> dict[str, Shares]:
    """Return the share of each question by score, without support scores if the method reads no passages."""
    assert cell.finished is not None
    folder = cell.finished.folder
    predictions = {prediction.question_id: prediction for prediction in run_predictions(folder)}
    rows = score_questions(read_questions(folder), predictions, cell.metrics.profile)
    reads_passages = any(prediction.evidence for prediction in predictions.values())
    shares: dict[str, Shares] = {
        name: {row.id: metric.share(row) for row in rows}
        for name, metric in METRICS.items()
        if metric.column and (metric.of_answer or reads_passages)
    }
    if cell.metrics.judge:
        shares["judge"] = {key: judgement.share for key, judgement in read_verdicts(folder).items()}
    return shares


def _plots(cells: Sequence[SweepCell], axes: Sequence[str]) -> list[Plot | BarPlot]:
    """Return a score as bars, and against dollars if all cells have a price, otherwise tokens.

    It is the first score that all cells have and that differs.
    """
    measured = [cell.metrics for cell in cells]
    known = [column for column in columns() if column.score and all(map(column.measure, measured))]
    if not known or len(cells) < 2:
        return []
    score = next((column for column in known if len(set(map(column.measure, measured))) > 1), known[0])
    priced = all(metrics.cost.method.usd is not None for metrics in measured)
    label, cost = ("USD per question", dollars) if priced else ("tokens per question", tokens)
    bars, points = list[Bar](), list[Point]()
    for cell in cells:
        name = name_by_settings({axis: cell.values[axis] for axis in axes if axis in cell.values})
        reached, spent = score.measure(cell.metrics), cost(cell.metrics)
        assert reached
        assert spent
        bars.append(Bar(name or cell.name, reached.value, reached.low, reached.high))
        points.append(Point(spent.value, reached.value, reached.low, reached.high, name or cell.name))
    against = Plot(
        f"{score.label} against cost", label, score.label, [Series("", points, 0, line=False)], x_is_cost=True
    )
    return [BarPlot(f"{score.label} with 95 % intervals", bars), against]


def _read_cell(path: Path, cell: SweepCell) -> SweepCell:
    """Return a cell with its run, unless it is not finished."""
    state = cell.state
    if state and state.status == "running" and not is_locked(path / ".lock"):
        why = "no command is running this sweep. Run the sweep's command again to resume."
        return cell.replace(state=state.replace(status="interrupted", error=why))
    if state is None or state.status != "done" or state.run is None:
        return cell
    if state.asked not in (None, questions_asked(Path(state.run))):
        why = "another command has run its questions with another selection. Run the sweep's command again."
        return cell.replace(state=state.replace(status="changed", error=why))
    return cell.replace(finished=FinishedRun.read(Path(state.run)))


def _values(cell: SweepCell, axes: Sequence[str], out: Path) -> list[MarkedCell]:
    """Return the values that differ. The first one links to the cell's own report."""
    assert cell.finished is not None
    link = Path(os.path.relpath(cell.finished.folder / FILES["html"], out.parent)).as_posix()
    first, *others = [cell.values.get(axis, "") for axis in axes] or [cell.name]
    return [MarkedCell(first, link=link), *map(MarkedCell, others)]


def _by_value(values: Sequence[Json]) -> str:
    """Return the values of a setting, each with its cells."""
    numbers: dict[str, list[int]] = {}
    for number, value in enumerate(values):
        text = value if isinstance(value, str) else encode_json(value).decode()
        numbers.setdefault(text, []).append(number)
    return "; ".join(f"{value} ({_cells(cells)})" for value, cells in numbers.items())


def _cells(numbers: Sequence[int]) -> str:
    return f"cell {', '.join(map(str, numbers[:12]))}{' …' if len(numbers) > 12 else ''}"

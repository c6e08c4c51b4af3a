"""The report of a sweep: its cells next to each other with marks, the settings that differ, the failures."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import Cell, Sweep, questions_asked
from kgqa.errors import DataError
from kgqa.report.columns import Measured, columns, dollars, name_by_settings, tokens
from kgqa.report.page import sections_page
from kgqa.report.plots import Bar, BarPlot, Plot, Point, Series
from kgqa.report.run_report import notices
from kgqa.report.section import FILES, MarkedCell, Section, csv_text, latex, markdown
from kgqa.report.shares import RunShares, Shares, read_shares
from kgqa.scoring.comparison import ALPHA, compare, holm
from kgqa.types import Json
from kgqa.util.fs import is_locked, replace_file
from kgqa.util.jsonio import encode_json
from kgqa.util.text import pluralize

NOTE = (
    "Scores in percent with 95 % intervals over questions. Best: bold. Second best: underlined. *: "
    "significantly below the best of its column (paired test over the same questions, p < 0.05 after Holm's "
    "correction over the column). Costs are computed as if no reply had been cached."
)


@dataclass(frozen=True)
class DoneCell:
    """A finished cell with its run."""

    cell: Cell
    run: FinishedRun

    @cached_property
    def metrics(self) -> Metrics:
        """Return the run's metrics, with the judge of a later `kgqa evaluate`."""
        return self.run.metrics.replace(judge=self.read.judge)

    @cached_property
    def read(self) -> RunShares:
        return read_shares(self.run)

    @property
    def key(self) -> tuple[str, ...]:
        """Return dataset, profile and question ids. Cells with equal keys can be compared."""
        return self.read.key

    @property
    def shares(self) -> Mapping[str, Shares]:
        """Return the share of each question by score."""
        return self.read.by_score

    def values(self, axes: Sequence[str], base: Path) -> list[MarkedCell]:
        """Return the values that differ. The first one links to the cell's own report, from the folder `base`."""
        link = Path(os.path.relpath(self.run.folder / FILES["html"], base)).as_posix()
        first, *others = [self.cell.values.get(axis, "") for axis in axes] or [self.cell.name]
        return [MarkedCell(first, link=link), *map(MarkedCell, others)]


@dataclass(frozen=True)
class SweepReport:
    """The report of a sweep that runs here or was read. `base`: the folder from which links start."""

    sweep: Sweep
    base: Path

    @classmethod
    def read(cls, path: Path, base: Path | None = None) -> SweepReport:
        """Read a sweep. Raises DataError: not a sweep's folder, or one with a damaged run."""
        sweep = Sweep.read(path)
        if sweep.command[1:2] == ("reproduce",):
            raise DataError(f"{path}: of kgqa reproduce. The same command writes its report.html again.")
        for cell in sweep.cells:
            _read_run(path, cell)
        return cls(sweep, base or path)

    @property
    def cells(self) -> Sequence[Cell]:
        return self.sweep.cells

    @cached_property
    def done(self) -> list[DoneCell]:
        return [DoneCell(cell, cell.finished) for cell in self.cells if cell.is_finished and cell.finished]

    @property
    def title(self) -> str:
        return f"Sweep {self.sweep.path.name}: {len(self.done)} of {len(self.cells)} cells"

    def failures(self) -> list[tuple[str, str, str, str]]:
        """Return number, name, status and reason of the cells without figures."""
        numbers = {each.cell.number for each in self.done}
        return [(str(c.number), c.name, c.status, c.error or "") for c in self.cells if c.number not in numbers]

    @cached_property
    def tables(self) -> list[Section]:
        """Return a table for each set of questions."""
        groups: dict[tuple[str, ...], list[DoneCell]] = {}
        for cell in self.done:
            groups.setdefault(cell.key, []).append(cell)
        return [self._table(key, cells) for key, cells in groups.items()]

    def _table(self, key: tuple[str, ...], cells: Sequence[DoneCell]) -> Section:
        dataset, _, *questions = key
        axes = [axis for axis in self.sweep.axes if len({cell.cell.values.get(axis) for cell in cells}) > 1]
        rows = [[MarkedCell(str(cell.cell.number)), *cell.values(axes, self.base)] for cell in cells]
        header = ["cell", *(axes or ["settings"])]
        for column in columns():
            figures = [
                column.measure(cell.metrics) if column.score is None or column.score in cell.shares else None
                for cell in cells
            ]
            if any(figures):
                header.append(column.label)
                shares = [cell.shares.get(column.score or "") for cell in cells]
                marked = mark_best(figures, shares, lower_is_better=column.lower_is_better)
                for row, entry in zip(rows, marked, strict=True):
                    row.append(entry)
        title = f"{dataset}, {pluralize(len(questions), 'question')}, {cells[0].metrics.profile_text}"
        return Section(title, header, rows, (NOTE,), plots=_plots(cells, axes))

    def notices(self) -> list[str]:
        """Return each notice once, with its cells."""
        groups = _group((notice, cell.cell.number) for cell in self.done for notice in notices(cell.run))
        return [
            notice if len(numbers) == len(self.cells) else f"{notice} ({_cells(numbers)})"
            for notice, numbers in groups.items()
        ]

    def sections(self) -> list[Section]:
        values = (self.sweep.differing or {}).items()
        differing = [(key, _by_value(each)) for key, each in values if key not in self.sweep.axes]
        listed = [
            Section("Cells without results", ("cell", "settings", "status", "why"), self.failures()),
            Section("Settings that differ", ("key", "values"), differing, is_folded=True),
        ]
        return [*self.tables, *(section for section in listed if section.rows)]

    def csv(self) -> str:
        """Return one line per cell with figures as numbers. A score has columns for the ends of its interval."""
        shares, axes = columns(), self.sweep.axes
        ends = [f"{column.label} {end}" for column in shares if column.score for end in ("low", "high")]
        header = [
            "cell",
            "name",
            *axes,
            "status",
            "questions",
            *(column.label for column in shares),
            *ends,
            "run",
        ]
        runs = {each.cell.number: each.run for each in self.done}
        rows: list[list[object]] = [[*header]]
        for cell in self.cells:
            row: dict[str, object] = {**cell.values, "cell": cell.number, "name": cell.name, "status": cell.status}
            if run := runs.get(cell.number):
                row |= {"questions": run.metrics.questions, "run": str(run.folder)}
                for column in shares:
                    if figure := column.measure(run.metrics):
                        row |= {column.label: figure.value}
                        row |= {f"{column.label} low": figure.low, f"{column.label} high": figure.high}
            rows.append([row.get(name) for name in header])
        return csv_text(rows)

    def write(self, form: str, out: Path | None = None) -> Path:
        """Write the report in one of `FILES`, by default into the sweep's folder, and return the file."""
        command = " ".join(self.sweep.command)
        match form:
            case "csv":
                text = self.csv()
            case "latex":
                text = latex(self.title, self.tables)
            case "md":
                opening = Section("", (), (), (f"`{command}`",))
                text = markdown(self.title, [opening, *self.sections()], self.notices())
            case _:
                text = sections_page(self.title, command, self.sections(), self.notices())
        return replace_file(out or self.sweep.path / FILES[form], text)


def write_sweep_report(path: Path, form: str, out: Path | None = None) -> Path:
    """Write a sweep's report in one of `FILES`, by default into its folder, and return the file."""
    return SweepReport.read(path, out.parent if out else None).write(form, out)


def mark_best(
    figures: Sequence[Measured | None], shares: Sequence[Shares | None], *, lower_is_better: bool = False
) -> list[MarkedCell]:
    """Return the cells of a column. A score has its best and second best marked, and what is significantly worse.

    Each cell is tested against the best over the questions that both define, with Holm's correction.
    """
    sign = -1 if lower_is_better else 1
    values = {n: sign * round(figure.value, 6) for n, figure in enumerate(figures) if figure}
    ranked = sorted(values.values(), reverse=True)
    is_score = any(figure is not None and figure.low is not None for figure in figures)
    marks, worse = dict[float, str](), set[int]()
    if is_score and ranked[0] > ranked[-1]:
        second = next(value for value in ranked if value < ranked[0])
        marks = {ranked[0]: "best"} | ({second: "second"} if ranked.count(second) == 1 else {})
        worse = _find_worse({n: value for n, value in values.items() if shares[n] is not None}, shares, sign)
    return [
        MarkedCell("–")
        if figure is None
        else MarkedCell(str(figure), marks.get(values[n], ""), worse=n in worse, brief=figure.brief)
        for n, figure in enumerate(figures)
    ]


def _find_worse(values: Mapping[int, float], shares: Sequence[Shares | None], sign: int) -> set[int]:
    if len(values) < 2:
        return set()
    best = max(values, key=lambda n: values[n])
    first = shares[best] or {}
    p_values = {}
    for other in values:
        second = shares[other] or {}
        tested = compare({"": {"best": list(first.values()), "other": [second.get(key) for key in first]}}, seed=0)
        # over the questions that both define, the best one can be worse
        if other != best and tested:
            p_values[other] = tested[0].p if sign * tested[0].difference > 0 else 1.0
    adjusted = holm(list(p_values.values()))
    return {other for other, p in zip(p_values, adjusted, strict=True) if p < ALPHA}


def _plots(cells: Sequence[DoneCell], axes: Sequence[str]) -> list[Plot | BarPlot]:
    """Return a score as bars, and against dollars if all cells have a price, otherwise tokens.

    It is the first score that all cells have and that differs.
    """
    measured = [each.metrics for each in cells]
    plain = [column for column in columns() if column.score and all(map(column.measure, measured))]
    if not plain or len(cells) < 2:
        return []
    score = next((column for column in plain if len(set(map(column.measure, measured))) > 1), plain[0])
    priced = all(metrics.cost.method.usd is not None for metrics in measured)
    label, cost = ("USD per question", dollars) if priced else ("tokens per question", tokens)
    bars, points = list[Bar](), list[Point]()
    for each in cells:
        cell = each.cell
        name = name_by_settings({axis: cell.values[axis] for axis in axes if axis in cell.values})
        reached, costs = score.measure(each.metrics), cost(each.metrics)
        assert reached
        assert costs
        bars.append(Bar(name or cell.name, reached.value, reached.low, reached.high))
        points.append(Point(costs.value, reached.value, reached.low, reached.high, name or cell.name))
    against = Plot(
        f"{score.label} against cost", label, score.label, [Series("", points, 0, line=False)], x_is_cost=True
    )
    return [BarPlot(f"{score.label} with 95 % intervals", bars), against]


def _read_run(sweep: Path, cell: Cell) -> None:
    """Read the run of a cell that is done, unless it has other questions now."""
    if cell.status == "running" and not is_locked(sweep / ".lock"):
        cell.status = "interrupted"
        cell.error = "no command is running this sweep. Run the sweep's command again to resume."
    if cell.status != "done" or cell.run is None:
        return
    if cell.asked not in (None, questions_asked(cell.run)):
        cell.status = "changed"
        cell.error = "another command has run its questions with another selection. Run the sweep's command again."
        return
    cell.read_result()


def _by_value(values: Sequence[Json]) -> str:
    """Return the values of a setting, each with its cells."""
    texts = (value if isinstance(value, str) else encode_json(value).decode() for value in values)
    groups = _group((text, number) for number, text in enumerate(texts))
    return "; ".join(f"{value} ({_cells(cells)})" for value, cells in groups.items())


def _group(texts: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the cells of each text."""
    groups = defaultdict[str, list[int]](list)
    for text, number in texts:
        groups[text].append(number)
    return groups


def _cells(numbers: Sequence[int]) -> str:
    return f"cell {', '.join(map(str, numbers[:12]))}{' …' if len(numbers) > 12 else ''}"

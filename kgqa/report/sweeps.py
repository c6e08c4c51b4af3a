"""The report of a sweep: its cells next to each other with marks, the settings that differ, the failures."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import UPPER_BOUNDS, FinishedRun, choose_named
from kgqa.artifacts.sweep import REPEAT, Cell, Sweep
from kgqa.config.overrides import override_values
from kgqa.errors import DataError
from kgqa.report.columns import (
    JUDGE_ACCURACY,
    MIXED_JUDGES,
    SEPARATOR,
    Column,
    Measured,
    columns,
    describe_costs,
    dollars,
    group_judges,
    group_texts,
    list_judges,
    tokens,
)
from kgqa.report.evaluation import (
    ANSWERED,
    ANSWERED_TEXT,
    CORRECTED_P,
    difference_text,
    p_text,
)
from kgqa.report.page import sections_page
from kgqa.report.plots import Bar, BarPlot, Plot, Point, Series
from kgqa.report.run_report import notices
from kgqa.report.section import FILES, MarkedCell, Section, Value, csv_text, latex, markdown
from kgqa.report.shares import Shares
from kgqa.report.sweep_rows import DoneCell, SweepRow, find_frontier, join_repeats
from kgqa.report.warnings import find_warnings
from kgqa.scoring.comparison import HOLM, Difference, correct, explain_direction
from kgqa.scoring.questions import METRICS
from kgqa.scoring.repeats import compare_repeats, pass_at
from kgqa.types import Json
from kgqa.util.fs import replace_file
from kgqa.util.jsonio import encode_json
from kgqa.util.text import pluralize, score_text

NOTE = (
    "Scores in percent with 95 % intervals over questions. Best: bold. Second best: underlined. *: "
    "significantly worse than the best of its column (paired test over the same questions, p < 0.05 after Holm's "
    "correction over the column). Costs are computed as if no reply had been cached."
)
FEWER_NOTE = (
    "of N: only N questions define the score. It is never the best one if others are over more questions, "
    "unless a judge gave fewer verdicts. Tests are over the questions that both rows have."
)
UPPER_BOUND = "golden reads the gold passages. It is an upper bound, and not ranked."


REPEATS_NOTE = (
    "A row with several cells is the mean of repeated runs. Its interval contains the spread between runs, and so do "
    "the tests. Repeats are not tested against each other."
)
CONSTANT = "all repeats have the same scores: no call is sampled, and no few-shot set is random. One run is enough"


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
            raise DataError(
                f"{path}: of kgqa reproduce. The same command writes its report.html again."
            )
        for cell in sweep.cells:
            _read_run(cell)
        return cls(sweep, base or path)

    @property
    def cells(self) -> Sequence[Cell]:
        return self.sweep.cells

    @cached_property
    def done(self) -> list[DoneCell]:
        return [
            DoneCell(cell, cell.finished)
            for cell in self.cells
            if cell.is_finished and cell.finished
        ]

    @property
    def title(self) -> str:
        return f"Sweep {self.sweep.path.name}: {len(self.done)} of {len(self.cells)} cells"

    def failures(self) -> list[tuple[str, str, str, str]]:
        """Return number, name, status and reason of the cells without figures."""
        numbers = {each.cell.number for each in self.done}
        return [
            (str(c.number), c.name, c.status, c.error or "")
            for c in self.cells
            if c.number not in numbers
        ]

    @cached_property
    def groups(self) -> list[tuple[str, list[str], list[SweepRow]]]:
        """Return for each set of questions its title, the keys with values that differ, and its rows."""
        by_key: dict[tuple[str, ...], list[DoneCell]] = {}
        for cell in self.done:
            by_key.setdefault(cell.key, []).append(cell)
        groups = []
        for (dataset, _, *questions), cells in by_key.items():
            varied = [axis for axis in self.sweep.axes if axis != REPEAT]
            axes = [
                axis for axis in varied if len({cell.cell.values.get(axis) for cell in cells}) > 1
            ]
            count = f"{pluralize(len(questions), 'question')}{_find_shard(cells)}"
            title = f"{dataset}, {count}, {cells[0].metrics.profile_text}"
            # a single row has nothing that differs, but the sweep varied it
            groups.append((title, axes or varied, join_repeats(cells, self.sweep.axes)))
        return groups

    @cached_property
    def tables(self) -> list[Section]:
        """Return a table for each set of questions."""
        return [self._table(*group) for group in self.groups]

    def _table(self, title: str, axes: Sequence[str], group: Sequence[SweepRow]) -> Section:
        rows = [[MarkedCell(row.numbers), *row.values(axes, self.base)] for row in group]
        header = ["cell", *(axes or ["settings"])]
        bounds = _find_bounds(group)
        judges = _list_judges(group)
        for column in columns():
            figures = [row.measure(column) for row in group]
            # the title names the judge, also if it gave no verdict
            if any(figures) or (column.label == JUDGE_ACCURACY and judges):
                header.append(column.title)
                shares = [row.shares(column.score) for row in group]
                marked = mark_best(
                    figures,
                    shares,
                    lower_is_better=column.lower_is_better,
                    unranked=_find_unranked(group, column),
                    is_judged=column.label == JUDGE_ACCURACY,
                )
                for row, entry in zip(rows, marked, strict=True):
                    row.append(entry)
        notes = [NOTE, *explain_direction(header)]
        notes += [REPEATS_NOTE] if any(row.is_repeated for row in group) else []
        notes += [UPPER_BOUND] if bounds else []
        scores = [
            row.measure(column) for row in group for column in columns() if column.score in METRICS
        ]
        notes += [FEWER_NOTE] if any(score and score.fewer for score in scores) else []
        if len(judges) > 1:
            notes.append(f"{MIXED_JUDGES}: {list_judges(judges, 'cell ')}.")
        notes += describe_costs(_name_runs(group, axes))
        full_title = SEPARATOR.join([*_list_common(group), title])
        return Section(full_title, header, rows, notes, plots=_plots(group, axes))

    def _differences(self, title: str, axes: Sequence[str], group: Sequence[SweepRow]) -> Section:
        """Return the difference of each row from the best one, for each score in which the rows are tested."""
        rows: list[tuple[Value, ...]] = [
            (
                column.title,
                other.name(axes),
                best.name(axes),
                each.n,
                difference_text(each),
                p_text(each.adjusted, each.alpha),
            )
            for column, other, best, each in _compare_rows(group)
        ]
        command = shlex.join(["kgqa", "compare", str(self.sweep.path)])
        texts = (
            "Row minus the best one of this score, in points with 95 % intervals, over the questions that define both.",
            "p: of the paired test that the row is worse, with Holm's correction over the rows of this score.",
            f"All pairs, corrected over all of their tests, and the questions needed: {command}",
        )
        header = ("score", "row", "best", "questions", "difference", CORRECTED_P[HOLM][0])
        return Section(f"Differences from the best: {title}", header, rows, texts)

    def _repeats(self, title: str, axes: Sequence[str], group: Sequence[SweepRow]) -> Section:
        """Return the tested scores of each repeat, the spread between them, and pass@k where calls are sampled.

        The score of a repeat links to its report.
        """
        tested = {metric.name: metric.title for metric in METRICS.values() if metric.tested} | {
            "judge": JUDGE_ACCURACY
        }
        count = max(len(row.repeats) for row in group)
        rows = list[tuple[Value, ...]]()
        for row in group:
            links = [each.link(self.base) for each in row.repeats]
            for name, label in tested.items():
                if not (repeated := row.repeated(name) if row.is_repeated else None):
                    continue
                runs = [
                    MarkedCell(score_text(mean), link=link)
                    for mean, link in zip(repeated.means, links, strict=True)
                ]
                missing = [None] * (count - len(runs))
                spread = score_text(repeated.deviation)
                several = " ".join(_pass_at(row, name)) or "–"
                rows.append((row.name(axes), label, spread, *runs, *missing, several))
        numbered = [f"run {number}" for number in range(1, count + 1)]
        header = ("settings", "score", "SD between runs", *numbered, f"pass@1 to pass@{count}")
        texts = (
            "SD: standard deviation. Runs: the score of each, with a link to its report.",
            "pass@k: the share of questions that at least one of k runs has right, if sampled.",
        )
        return Section(f"Repeats: {title}", header, rows, texts)

    def _sensitivity(self, title: str, axes: Sequence[str], group: Sequence[SweepRow]) -> Section:
        """Return these differences over the questions that both answered, if one of both failed some."""
        rows = list[tuple[Value, ...]]()
        for column, other, best, each in _compare_rows(group):
            failed = other.failed | best.failed
            own, reference = (_omit(row.shares(column.score), failed) for row in (other, best))
            answered = compare_repeats(own, reference)
            if answered and answered.n < each.n:
                counts = f"{len(other.failed):,}  {len(best.failed):,}"
                names = (other.name(axes), best.name(axes), counts)
                p = p_text(answered.p, answered.alpha)
                rows.append((column.title, *names, answered.n, difference_text(answered), p))
        header = ("score", "row", "best", "failed", "questions", "difference", "p")
        return Section(f"{ANSWERED}: {title}", header, rows, (ANSWERED_TEXT,))

    def notices(self) -> list[str]:
        """Return each notice once, with its cells."""
        constant = (text[:1].upper() + text[1:] for text in self.note_constant())
        return [*self._list_once(notices), *constant]

    def note_constant(self) -> list[str]:
        """Return a note if the repeats of a cell have the same scores, so that one run is enough."""
        constant = [row.numbers for _, _, rows in self.groups for row in rows if row.is_constant]
        return [f"{CONSTANT} (cell {'; '.join(constant)})"] if constant else []

    def warnings(self) -> list[str]:
        """Return each warning about scores once, with its cells, and each failed metric with its first error."""
        first: dict[str, str] = {}
        for cell in self.done:
            first = {**(cell.metrics.failed_metrics or {}), **first}

        def list_warnings(run: FinishedRun) -> list[str]:
            failed = {name: first[name] for name in run.metrics.failed_metrics or ()}
            return find_warnings(
                replace(run, metrics=run.metrics.replace(failed_metrics=failed or None))
            )

        return self._list_once(list_warnings)

    def _list_once(self, list_texts: Callable[[FinishedRun], list[str]]) -> list[str]:
        groups = group_texts(
            (cell.cell.number, text) for cell in self.done for text in list_texts(cell.run)
        )
        return [
            text if len(numbers) == len(self.cells) else f"{text} ({_cells(numbers)})"
            for text, numbers in groups.items()
        ]

    def sections(self) -> list[Section]:
        values = (self.sweep.differing or {}).items()
        differing = [(key, _by_value(each)) for key, each in values if key not in self.sweep.axes]
        listed = [
            Section(
                "Cells without results", ("cell", "settings", "status", "why"), self.failures()
            ),
            Section("Settings that differ", ("key", "values"), differing, is_folded=True),
        ]
        details = [
            section
            for group in self.groups
            for section in (
                self._differences(*group),
                self._sensitivity(*group),
                _frontier(*group),
                self._repeats(*group),
            )
        ]
        return [*self.tables, *(section for section in (*details, *listed) if section.rows)]

    def csv(self) -> str:
        """Return one line per cell with figures as numbers.

        A score has columns for the ends of its interval, and for the number of questions that define it.

        As in the tables, scores that no cell has are omitted: noise is one of method=verify only.
        """
        axes = self.sweep.axes
        shares = [
            column
            for column in columns()
            if not column.score or any(column.measure(each.metrics) for each in self.done)
        ]
        ends = [
            f"{column.label} {end}"
            for column in shares
            if column.score
            for end in ("low", "high", "questions")
        ]
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
            row: dict[str, object] = {
                **cell.values,
                "cell": cell.number,
                "name": cell.name,
                "status": cell.status,
            }
            if run := runs.get(cell.number):
                row |= {"questions": run.metrics.questions, "run": str(run.folder)}
                for column in shares:
                    if figure := column.measure(run.metrics):
                        row |= {column.label: figure.value}
                        row |= {
                            f"{column.label} low": figure.low,
                            f"{column.label} high": figure.high,
                            f"{column.label} questions": figure.fewer or run.metrics.questions,
                        }
            rows.append([row.get(name) for name in header])
        return csv_text(rows)

    def html(self) -> str:
        command = " ".join(self.sweep.command)
        return sections_page(self.title, command, self.sections(), self.notices())

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
                text = self.html()
        return replace_file(out or self.sweep.path / FILES[form], text)


def write_sweep_report(path: Path, form: str, out: Path | None = None) -> Path:
    """Write a sweep's report in one of `FILES`, by default into its folder, and return the file."""
    return SweepReport.read(path, out.parent if out else None).write(form, out)


def _name_runs(group: Iterable[SweepRow], axes: Sequence[str]) -> list[tuple[str, Metrics]]:
    """Return the name of its row and the metrics of each run."""
    return [(row.name(axes), metrics) for row in group for metrics in row.metrics]


def _list_common(group: Sequence[SweepRow]) -> list[str]:
    """Return the method, the model, the engine and the judge, each if all runs that have one have the same."""
    common: list[str] = []
    for name in ("method", "model", "engine"):
        choices = [choose_named(each.run.choices) for row in group for each in row.repeats]
        values = {chosen[name] for chosen in choices if name in chosen}
        common += values if len(values) == 1 else []
    judges = {f"judge {each.judge.judge}" for row in group for each in row.metrics if each.judge}
    return [*common, *(judges if len(judges) == 1 else [])]


def _list_judges(group: Sequence[SweepRow]) -> dict[str, list[str]]:
    """Return each judge with its models, and the numbers of its cells."""
    return group_judges((row.numbers, each.judge) for row in group for each in row.metrics)


def _find_shard(cells: Sequence[DoneCell]) -> str:
    """Return " (shard 1 of 2)" for cells that answered such a part of the questions."""
    shards = {override_values(each.cell.overrides).get("shard") for each in cells}
    (shard, *others) = shards
    return "" if others or not shard else f" (shard {shard.replace('/', ' of ')})"


def _find_bounds(group: Sequence[SweepRow]) -> set[int]:
    """Return the numbers of the rows that are not ranked: upper bounds, unless there is nothing else to rank."""
    methods = [row.first.run.choices["method"] for row in group]
    bounds = {n for n, method in enumerate(methods) if method in UPPER_BOUNDS}
    return bounds if len(bounds) < len(group) else set()


def _find_unranked(group: Sequence[SweepRow], column: Column) -> Collection[int]:
    """Return the numbers of the rows that are not ranked in a column: upper bounds, or all by different judges."""
    if column.label == JUDGE_ACCURACY and len(_list_judges(group)) > 1:
        return range(len(group))
    return _find_bounds(group)


def _compare_rows(
    group: Sequence[SweepRow],
) -> Iterator[tuple[Column, SweepRow, SweepRow, Difference]]:
    """Yield each score with a row, the best row of this score, and their difference."""
    for column in columns():
        tested = compare_with_best(
            [row.measure(column) for row in group],
            [row.shares(column.score) for row in group],
            lower_is_better=column.lower_is_better,
            unranked=_find_unranked(group, column),
            is_judged=column.label == JUDGE_ACCURACY,
        )
        for (best, other), each in tested.items():
            yield column, group[other], group[best], each


def _omit(runs: Sequence[Shares], questions: Collection[str]) -> list[Shares]:
    """Return the shares of some runs without these questions."""
    return [
        {key: None if key in questions else share for key, share in run.items()} for run in runs
    ]


def mark_best(
    figures: Sequence[Measured | None],
    shares: Sequence[Sequence[Shares]],
    *,
    lower_is_better: bool = False,
    unranked: Collection[int] = (),
    is_judged: bool = False,
) -> list[MarkedCell]:
    """Return the cells of a column. Marks: the best, the second best (but no 0), and what is significantly worse.

    Each cell is tested against the best over the questions that both define, with Holm's correction. shares: those of
    the runs of each cell. unranked: the numbers of cells that are neither marked nor tested. is_judged: see
    `_find_complete`.
    """
    values = _rank(figures, lower_is_better=lower_is_better, unranked=unranked)
    values = _find_complete(figures, values, is_judged=is_judged)
    ranked = sorted(values.values(), reverse=True)
    is_score = any(figure is not None and figure.low is not None for figure in figures)
    marks = dict[float, str]()
    if is_score and ranked and ranked[0] > ranked[-1]:
        second = next(value for value in ranked if value < ranked[0])
        marks = {ranked[0]: "best"} | ({second: "second"} if ranked.count(second) == 1 else {})
        marks.pop(0.0, None)
    tested = compare_with_best(
        figures,
        shares,
        lower_is_better=lower_is_better,
        unranked=unranked,
        is_judged=is_judged,
    )
    worse = {other for (_, other), difference in tested.items() if difference.significant}
    return [
        MarkedCell("–")
        if figure is None
        else MarkedCell(
            str(figure),
            marks.get(values[n], "") if n in values else "",
            worse=n in worse,
            brief=figure.brief,
        )
        for n, figure in enumerate(figures)
    ]


def _rank(
    figures: Sequence[Measured | None], *, lower_is_better: bool, unranked: Collection[int]
) -> dict[int, float]:
    """Return the values of ranked cells, of which the highest is the best."""
    sign = -1 if lower_is_better else 1
    return {
        n: sign * round(figure.value, 6)
        for n, figure in enumerate(figures)
        if figure and n not in unranked
    }


def _find_complete(
    figures: Sequence[Measured | None], values: Mapping[int, float], *, is_judged: bool
) -> dict[int, float]:
    """Return the values of the cells over most questions, one of which is the best.

    A score over fewer questions does not count those on which the method failed. A missing verdict of a judge is no
    failure of the method, so that all judged cells can be the best.
    """
    counts = {n: figure.fewer or inf for n in values if (figure := figures[n])}
    most = max(counts.values(), default=inf)
    return {n: value for n, value in values.items() if is_judged or counts[n] == most}


def compare_with_best(
    figures: Sequence[Measured | None],
    shares: Sequence[Sequence[Shares]],
    *,
    lower_is_better: bool = False,
    unranked: Collection[int] = (),
    is_judged: bool = False,
) -> dict[tuple[int, int], Difference]:
    """Return the difference of each cell of a column from the best one, by the numbers of both, if any differ.

    figures, shares, unranked, is_judged: see `mark_best`. A cell with a better score over the questions that
    both define is omitted: none of the two is the best.
    """
    values = _rank(figures, lower_is_better=lower_is_better, unranked=unranked)
    values = {n: value for n, value in values.items() if shares[n]}
    if len(set(values.values())) < 2:
        return {}
    complete = _find_complete(figures, values, is_judged=is_judged)
    best = max(complete, key=lambda n: complete[n])
    differences = {
        (best, other): tested
        for other in values
        if other != best and (tested := compare_repeats(shares[other], shares[best]))
    }
    sign = -1 if lower_is_better else 1
    worse = {pair: each for pair, each in differences.items() if sign * each.difference <= 0}
    return dict(zip(worse, correct(list(worse.values())), strict=True))


def _pass_at(row: SweepRow, score: str) -> list[str]:
    if score not in ("em", "judge") or not row.first.is_sampled:
        return []
    estimates = [pass_at(k, row.shares(score)) for k in range(1, len(row.repeats) + 1)]
    return [
        score_text(estimate.mean)
        for estimate in estimates
        if estimate and estimate.mean is not None
    ]


def choose_axes(group: Sequence[SweepRow]) -> tuple[Column, Column] | None:
    """Return a score and a cost that all rows have: the first score that differs, and dollars or tokens."""
    plain = [column for column in _list_scores(group) if not column.lower_is_better]
    if not plain or len(group) < 2:
        return None
    score = next(
        (column for column in plain if len({row.measure(column) for row in group}) > 1), plain[0]
    )
    priced = all(metrics.cost.method.usd is not None for row in group for metrics in row.metrics)
    cost = Column("USD per question", dollars) if priced else Column("tokens per question", tokens)
    return score, cost


def _list_scores(group: Sequence[SweepRow]) -> list[Column]:
    """Return the scores that all rows have."""
    return [
        column for column in columns() if column.score and all(row.measure(column) for row in group)
    ]


def _frontier(title: str, axes: Sequence[str], group: Sequence[SweepRow]) -> Section:
    """Return the rows that no other row beats in both score and cost, without upper bounds."""
    compared = choose_axes(group)
    points = _points(group, *compared) if compared else {}
    if not compared or not points:
        return Section("", (), ())
    score, cost = compared
    header = ("settings", score.label, cost.label)
    rows = [
        (group[n].name(axes), str(group[n].measure(score)), str(group[n].measure(cost)))
        for n in find_frontier(points)
    ]
    text = "No other row has a higher score for the same cost or less. The intervals say whether the order is certain."
    notes = (text, *describe_costs(_name_runs(group, axes)))
    return Section(f"Cost–accuracy frontier: {title}", header, rows, notes)


def _points(
    group: Sequence[SweepRow], score: Column, cost: Column
) -> dict[int, tuple[float, float]]:
    """Return the cost and the score of each ranked row."""
    points, bounds = {}, _find_bounds(group)
    for n, row in enumerate(group):
        reached, paid = row.measure(score), row.measure(cost)
        if reached and paid and n not in bounds:
            points[n] = paid.value, reached.value
    return points


def _plots(group: Sequence[SweepRow], axes: Sequence[str]) -> list[Plot | BarPlot]:
    """Return each score as bars, and against the cost with the frontier as a line.

    The score of the frontier is first. A page shows one score at a time.
    """
    compared = choose_axes(group)
    if compared is None:
        return []
    first, cost = compared
    numbers = _swept_numbers(group, axes)
    if numbers:
        group = [
            row for _, row in sorted(zip(numbers, group, strict=True), key=lambda pair: pair[0])
        ]
    # those with a short name are tested
    others = [each for each in _list_scores(group) if each.brief and each.score != first.score]
    return [
        plot
        for score in (first, *others)
        for plot in _plot(group, axes, score, cost, in_order=bool(numbers))
    ]


def _swept_numbers(group: Sequence[SweepRow], axes: Sequence[str]) -> list[float]:
    """Return the number of each row if only one key differs and all its values are numbers, otherwise nothing."""
    values = [[row.first.cell.values.get(axis, "") for row in group] for axis in axes]
    varied = [each for each in values if len(set(each)) > 1]
    try:
        return [float(value) for value in varied[0]] if len(varied) == 1 else []
    except ValueError:
        return []


def _plot(
    group: Sequence[SweepRow], axes: Sequence[str], score: Column, cost: Column, *, in_order: bool
) -> tuple[BarPlot, Plot]:
    bars, points = list[Bar](), list[Point]()
    for row in group:
        reached, paid = row.measure(score), row.measure(cost)
        assert reached
        assert paid
        bars.append(Bar(row.name(axes), reached.value, reached.low, reached.high))
        points.append(Point(paid.value, reached.value, reached.low, reached.high, row.name(axes)))
    ranked = _points(group, score, cost)
    sign = -1 if score.lower_is_better else 1
    frontier = find_frontier({n: (x, sign * y) for n, (x, y) in ranked.items()})
    best = [Point(*ranked[n]) for n in frontier]
    series = [Series("runs" if len(best) > 1 else "", points, 0, line=False)]
    if len(best) > 1:
        series.append(Series("frontier", best, 1, hollow=True))
    label = score.title
    return (
        BarPlot(f"{label} with 95 % intervals", bars, label, in_order),
        Plot(f"{label} against cost", cost.label, label, series, x_is_cost=True, choice=label),
    )


def _read_run(cell: Cell) -> None:
    """Read the run of a cell that is done, unless it has other questions now."""
    if cell.status != "done" or cell.run is None:
        return
    if cell.is_changed:
        cell.status = "changed"
        cell.error = "another command has run its questions with another selection. Run the sweep's command again."
        return
    cell.read_result()


def _by_value(values: Sequence[Json]) -> str:
    """Return the values of a setting, each with its cells."""
    texts = (value if isinstance(value, str) else encode_json(value).decode() for value in values)
    groups = group_texts(enumerate(texts))
    return "; ".join(f"{value} ({_cells(cells)})" for value, cells in groups.items())


def _cells(numbers: Sequence[int]) -> str:
    return f"cell {join_numbers(numbers)}"


def join_numbers(numbers: Sequence[int]) -> str:
    """Return up to twelve numbers of cells as a list."""
    return f"{', '.join(map(str, numbers[:12]))}{' …' if len(numbers) > 12 else ''}"

"""A table for a paper: rows are methods, columns are datasets and metrics, with marks and tests against a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum
from pathlib import Path
from typing import NamedTuple

from kgqa.artifacts.metrics import UNDEFINED, Estimate
from kgqa.artifacts.run import SWEEP, UPPER_BOUNDS, FinishedRun
from kgqa.artifacts.sweep import REPEAT, SET, Cell, Sweep, row_key
from kgqa.config.overrides import override_values
from kgqa.config.run_keys import SEARCH_GROUPS, RunSettings
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.report.changes import NamedRun, add_changes
from kgqa.report.columns import (
    CORRECTED_ACCURACY,
    COSTS,
    JUDGE_ACCURACY,
    MIXED_JUDGES,
    Measured,
    can_change_files,
    describe_costs,
    group_judges,
    list_judges,
    list_missing,
    name_by_settings,
)
from kgqa.report.evaluation import CORRECTED_P, describe_tests
from kgqa.report.names import DATASETS, title_model, title_retriever, title_row, title_rules
from kgqa.report.section import MarkedCell, csv_text, escape_latex, escape_markdown
from kgqa.report.shares import RunShares, Shares, read_shares
from kgqa.report.warnings import name_doubts
from kgqa.scoring.comparison import ALPHA, HOLM, adjust, explain_direction, permutation
from kgqa.scoring.questions import METRICS, show_score
from kgqa.scoring.repeats import compare_repeats, repeated_estimate
from kgqa.util.settings import declared_fields
from kgqa.util.text import pluralize, score_text

BETTER, WORSE = "†", "‡"
MEAN = "mean"
DEFAULT_METRICS = ("em", "f1")
# keys of commands that change no answer, with those below them
NOT_IN_ROWS = {
    *(name for name, key in declared_fields(RunSettings).items() if key.marks and name != "roles"),
    "sweep",
    REPEAT,
    "repeats",
    "budget",
    "hydra/launcher",
    "hydra",
    "judge",
    "server",
    "tracker",
}
OF_DATASET = "dataset."
# scores without an entry in METRICS
OTHERS = {"judge": JUDGE_ACCURACY, "corrected": CORRECTED_ACCURACY}
FEWER = (
    "of N: only N questions define the score. It is never the best one if others are over more questions, "
    "unless a judge gave fewer verdicts. Tests use the common questions."
)
COST_LABELS = {"calls": "calls", "tokens": "tokens", "seconds": "model s", "usd": "USD"}
_FILES = {"latex": "table.tex", "md": "table.md", "csv": "table.csv"}
_LATEX = r"""%% needs \usepackage{booktabs}
\begin{%s}[t]
\centering
\begin{tabular}{l%s}
\toprule
%s
%s
%s
\midrule
%s
\bottomrule
\end{tabular}
\caption{%s}
\end{%s}
"""


@dataclass(frozen=True)
class Entry:
    """A run of the table, or several repeats of it.

    settings: values of the command by key, without those of the dataset. others: the further repeats.
    """

    run: FinishedRun
    settings: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[FinishedRun] = field(default=(), kw_only=True)

    @property
    def method(self) -> str:
        return self.run.choices["method"]

    @property
    def dataset(self) -> str:
        return self.run.choices["dataset"]

    def value(self, key: str) -> str | None:
        """Return the value of a key, which is a default if the command has no such key, or None."""
        defaults = {**self.run.choices, **{name: value for name, value, _ in self.run.settings}}
        return self.settings.get(key, defaults.get(key))

    @cached_property
    def shares(self) -> RunShares:
        return read_shares(self.run)

    @cached_property
    def repeats(self) -> Sequence[RunShares]:
        return [self.shares, *map(read_shares, self.others)]

    def by_repeat(self, metric: str) -> list[Shares]:
        """Return the share of each question in each repeat. Empty if a repeat has no such score."""
        shares = [repeat.of(metric) for repeat in self.repeats]
        return shares if all(shares) else []

    def cost(self, name: str) -> Measured | None:
        """Return a cost per question, the mean of the repeats, or None if a run does not have it."""
        figures = [COSTS[name].measure(run.metrics) for run in (self.run, *self.others)]
        known = [figure for figure in figures if figure]
        if len(known) < len(figures):
            return None
        return replace(known[0], value=fsum(figure.value for figure in known) / len(known))

    def estimate(self, metric: str) -> Estimate:
        """Return a score or cost of the run, or the mean of its repeats. UNDEFINED if it has none."""
        if metric in COSTS:
            figure = self.cost(metric)
            return Estimate(mean=figure.value, low=None, high=None, n=0) if figure else UNDEFINED
        if self.others:
            repeated = repeated_estimate(self.by_repeat(metric))
            return repeated.estimate if repeated else UNDEFINED
        if metric in METRICS:
            return show_score(self.run.metrics, metric)
        judge = self.shares.judge
        estimates = {"judge": judge.accuracy, "corrected": judge.corrected} if judge else {}
        return estimates.get(metric) or UNDEFINED


class CellTest(NamedTuple):
    """The test of a cell against the baseline. difference: positive if the row is better.

    is_exact: whether it is McNemar's. has_spread: whether p contains the spread between repeats.
    """

    p: float
    difference: float
    is_exact: bool
    has_spread: bool


@dataclass(frozen=True)
class PaperTable:
    """The table of some runs.

    metrics: names of `METRICS` or `COSTS`, judge or corrected. baseline: the row that all others are tested against, or
    None. alpha, correction: of the tests, see `scoring.comparison`. intervals: whether scores have theirs. missing: the
    cells of sweeps without results. fixed: names of entries by id, if they are not those among these entries. shown:
    the names to show by row, if they are not those of papers.
    """

    entries: Sequence[Entry]
    metrics: Sequence[str] = DEFAULT_METRICS
    baseline: str | None = None
    alpha: float = ALPHA
    correction: str = HOLM
    intervals: bool = False
    missing: Sequence[Cell] = ()
    fixed: Mapping[int, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the metrics, the baseline and the rows.

        Raises ConfigError: no such metric or row, two runs are in one cell, or a dataset has several sets of questions.
        """
        for metric in self.metrics:
            known = (*METRICS, *OTHERS, *COSTS)
            if metric not in known:
                raise ConfigError(f"metrics={metric}: no such score. {nearest(metric, known)}")
        if self.baseline is not None and self.baseline not in self.rows:
            raise ConfigError(
                f"baseline={self.baseline}: no such row. {nearest(self.baseline, self.rows)}"
            )
        places = Counter((self.names[id(entry)], entry.dataset) for entry in self.entries)
        row, dataset = max(places, key=lambda place: places[place])
        if places[row, dataset] > 1:
            raise ConfigError(
                f"{places[row, dataset]} runs of {row} on {dataset}: they differ in no setting that names a row. "
                "Name only one of them"
            )
        for name in self.datasets:
            own = [
                repeat.key
                for entry in self.entries
                if entry.dataset == name
                for repeat in entry.repeats
            ]
            if len(set(own)) > 1:
                raise ConfigError(
                    f"dataset={name}: the runs have different questions. Name runs over the same questions"
                )

    @cached_property
    def names(self) -> dict[int, str]:
        """Return the row of each entry by its id."""
        return dict(self.fixed) or name_entries(self.entries)

    def choose(self, rows: Mapping[str, str]) -> PaperTable:
        """Return the table of some rows in this order. The values are the names to show, "" for the name of the row.

        Raises ConfigError: there is no such row, or the baseline is not among them.
        """
        rows = {self.find(row): name for row, name in rows.items()}
        for row in rows:
            if row not in self.rows:
                raise ConfigError(f"rows={row}: no such row. {nearest(row, self.rows)}")
        if self.baseline is not None and self.baseline not in rows:
            raise ConfigError(f"baseline={self.baseline}: not in rows=. Add it to the list")
        entries = [entry for row in rows for entry in self.entries if self.names[id(entry)] == row]
        titles = {row: name for row, name in rows.items() if name}
        return replace(self, entries=entries, fixed=self.names, shown=titles)

    @cached_property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(self.names[id(entry)] for entry in self.entries))

    @cached_property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(entry.dataset for entry in self.entries))

    @cached_property
    def upper_bounds(self) -> list[str]:
        """Return the rows that are not ranked, if there are others."""
        bounds = {
            self.names[id(each)]: None for each in self.entries if each.method in UPPER_BOUNDS
        }
        return list(bounds) if len(bounds) < len(self.rows) else []

    @property
    def groups(self) -> list[str]:
        """Return the groups of columns: the datasets, and their mean."""
        return [*self.datasets, *([MEAN] if len(self.datasets) > 1 else [])]

    def show(self, row: str) -> str:
        """Return the name of a row in the table."""
        return self.shown.get(row, title_row(row))

    def find(self, text: str) -> str:
        """Return the row with this name, or with this name in the table. Otherwise the text."""
        return next((row for row in self.rows if text in (row, self.show(row))), text)

    def title(self, metric: str) -> str:
        return METRICS[metric].title if metric in METRICS else {**OTHERS, **COST_LABELS}[metric]

    def entry(self, row: str, dataset: str) -> Entry | None:
        return next(
            (
                each
                for each in self.entries
                if (self.names[id(each)], each.dataset) == (row, dataset)
            ),
            None,
        )

    def value(self, row: str, group: str, metric: str) -> float | None:
        """Return a mean in percent. The mean of datasets is only defined for a row with all of them."""
        if group != MEAN:
            entry = self.entry(row, group)
            return entry.estimate(metric).mean if entry else None
        values = [self.value(row, dataset, metric) for dataset in self.datasets]
        numbers = [value for value in values if value is not None]
        return fsum(numbers) / len(numbers) if len(numbers) == len(values) else None

    @cached_property
    def tests(self) -> dict[tuple[str, str, str], CellTest]:
        """Return the tests against the baseline by row, group and metric."""
        others = [row for row in self.rows if self.baseline is not None and row != self.baseline]
        places = [
            (row, group, metric)
            for row in others
            for group in self.groups
            for metric in self.metrics
            if not self._has_mixed_judges(group, metric)
        ]
        return {place: tested for place in places if (tested := self._test(*place))}

    @cached_property
    def significant(self) -> dict[tuple[str, str, str], str]:
        """Return the mark of each row, group and metric that differs from the baseline after Holm's correction."""
        families = [row in self.upper_bounds for row, _, _ in self.tests]
        adjusted = adjust([test.p for test in self.tests.values()], families, self.correction)
        return {
            place: BETTER if test.difference > 0 else WORSE
            for (place, test), p in zip(self.tests.items(), adjusted, strict=True)
            if p < self.alpha
        }

    def _test(self, row: str, group: str, metric: str) -> CellTest | None:
        sign = -1 if metric in METRICS and METRICS[metric].lower_is_better else 1
        if group != MEAN:
            own, base = self.entry(row, group), self.entry(self.baseline or "", group)
            tested = (
                compare_repeats(own.by_repeat(metric), base.by_repeat(metric))
                if own and base
                else None
            )
            if tested is None:
                return None
            difference = sign * tested.difference
            return CellTest(tested.p, difference, tested.binary, has_spread=tested.has_spread)
        pairs = [self._pairs(row, dataset, metric) for dataset in self.datasets]
        if self.has_repeats or not all(pairs):
            return None
        # each dataset has the same weight in the mean
        moved = [(mine - theirs) / len(pair) for pair in pairs for mine, theirs in pair]
        return CellTest(permutation(moved, seed=0), sign * fsum(moved), False, has_spread=False)

    def _pairs(self, row: str, dataset: str, metric: str) -> list[tuple[float, float]]:
        """Return the shares of a row and of the baseline on the questions that define both."""
        own, base = self.entry(row, dataset), self.entry(self.baseline or "", dataset)
        if own is None or base is None:
            return []
        mine, theirs = own.shares.of(metric), base.shares.of(metric)
        pairs = [(share, theirs.get(key)) for key, share in mine.items()]
        return [
            (first, second) for first, second in pairs if first is not None and second is not None
        ]

    @cached_property
    def cells(self) -> dict[str, list[MarkedCell]]:
        """Return the cells of each row. The best of a column and the second best are marked, but never a 0."""
        columns = [self._column(group, metric) for group in self.groups for metric in self.metrics]
        return {row: [column[number] for column in columns] for number, row in enumerate(self.rows)}

    def _column(self, group: str, metric: str) -> list[MarkedCell]:
        values = [self.value(row, group, metric) for row in self.rows]
        if metric in COSTS:
            return [self._cost_cell(metric, value) for value in values]
        sign = -1 if metric in METRICS and METRICS[metric].lower_is_better else 1
        numbers = [None if value is None else float(score_text(value)) for value in values]
        unranked = self.rows if self._has_mixed_judges(group, metric) else self.upper_bounds
        counts = [self._count(row, group, metric) for row in self.rows]
        fewer = [row for row, count in zip(self.rows, counts, strict=True) if count < max(counts)]
        # a missing verdict of a judge is no failure of the method
        unranked = [*unranked, *(fewer if metric not in OTHERS else [])]
        contest = {
            sign * value
            for row, value in zip(self.rows, numbers, strict=True)
            if value is not None and row not in unranked
        }
        ranked = sorted(contest, reverse=True)
        marks = dict(zip(ranked, ("best", "second"), strict=False)) if len(contest) > 1 else {}
        return [
            MarkedCell("–")
            if value is None
            else MarkedCell(
                f"{score_text(value)}{f' of {count:,}' if count < self._count_questions(group) else ''}"
                f"{self._interval(row, group, metric)}"
                f"{self.significant.get((row, group, metric), '')}",
                marks.get(sign * value, "") if value and row not in unranked else "",
            )
            for row, value, count in zip(self.rows, numbers, counts, strict=True)
        ]

    def _count(self, row: str, group: str, metric: str) -> int:
        """Return the number of questions of a score, of all datasets for their mean."""
        datasets = self.datasets if group == MEAN else [group]
        entries = (self.entry(row, dataset) for dataset in datasets)
        return sum(entry.estimate(metric).n for entry in entries if entry)

    def _count_questions(self, group: str) -> int:
        """Return the number of questions of a dataset, of all datasets for their mean."""
        datasets = self.datasets if group == MEAN else [group]
        return sum(len(self._first(dataset).shares.key[2:]) for dataset in datasets)

    def _cost_cell(self, metric: str, value: float | None) -> MarkedCell:
        """Return a cost with the digits of the other reports. Costs are not marked."""
        if value is None:
            return MarkedCell("–")
        figures = [entry.cost(metric) for entry in self.entries]
        known = next(figure for figure in figures if figure)
        return MarkedCell(str(replace(known, value=value)))

    def _interval(self, row: str, group: str, metric: str) -> str:
        """Return the interval of a cell, "" if the table shows none. The mean of datasets has none."""
        entry = self.entry(row, group)
        if not self.intervals or entry is None:
            return ""
        interval = entry.estimate(metric).interval
        return f" {interval}" if interval else ""

    @property
    def caption(self) -> str:
        """Return the caption: the model, the retriever, the questions, the rules of scoring, the test and warnings."""
        named = list_used(self.entries)
        counts = [
            f"{DATASETS.get(name, name)} {self._count_questions(name)}" for name in self.datasets
        ]
        profiles = list(
            dict.fromkeys(
                title_rules(self._first(name).run.metrics.profile) for name in self.datasets
            )
        )
        parts = [
            f"Scores in percent with {named}." if named else "Scores in percent.",
            f"Questions: {', '.join(counts)}. Scored by the rules of {', '.join(profiles)}.",
            "In brackets: 95% intervals."
            if self.intervals
            else f"95% intervals: at most ±{score_text(self._widest())} points.",
            "Best: bold. Second best: underlined.",
            *explain_direction(map(self.title, self.metrics)),
        ]
        bounds = " and ".join(map(self.show, self.upper_bounds))
        if bounds:
            parts.append(f"{bounds}: an upper bound that reads the gold passages, and not ranked.")
        if self.tests:
            correction = CORRECTED_P[self.correction][1]
            apart = sum(row in self.upper_bounds for row, _, _ in self.tests)
            families = f"{pluralize(len(self.tests) - apart, 'test')}"
            families += f", and over the {apart} of {bounds}" if apart else ""
            tests = self.tests.values()
            named = describe_tests(
                [test.is_exact for test in tests], has_spread=any(test.has_spread for test in tests)
            )
            parts.append(
                f"{BETTER} ({WORSE}): significantly better (worse) than {self.show(self.baseline or '')} ({named}, "
                f"p < {self.alpha:g} after {correction} over {families})."
            )
        if any(metric in COSTS for metric in self.metrics):
            parts.append("Costs are per answered question, as if no reply had been cached.")
            parts += describe_costs((name, run.metrics) for name, run in self._name_runs())
        return " ".join([*parts, *self.warnings])

    @property
    def warnings(self) -> list[str]:
        """Return what a reader of the table must know."""
        judged = (
            [entry.shares.judge for entry in self.entries if entry.shares.judge]
            if "judge" in self.metrics
            else []
        )
        return [
            *warn_of_simulation(self.entries),
            *name_doubts((name, run.metrics) for name, run in self._name_runs()),
            *self._name_judges(),
            *self._note_repeats(),
            *([list_missing(self.missing)] if self.missing else []),
            *list_failed(self._name_entries()),
            *([FEWER] if self._has_fewer else []),
            *(f"{name} is scored {lacking}." for name, lacking in self._missing_golds().items()),
            *(["The judge is the reader."] if any(judge.warnings for judge in judged) else []),
            *(
                ["The judge is not calibrated."]
                if judged and "corrected" not in self.metrics
                else []
            ),
        ]

    @property
    def _has_fewer(self) -> bool:
        """Return whether some question does not define a score."""
        return any(
            self.value(row, group, metric) is not None
            and self._count(row, group, metric) < self._count_questions(group)
            for row in self.rows
            for group in self.groups
            for metric in self.metrics
            if metric not in COSTS
        )

    def _judges(self, dataset: str | None = None) -> dict[str, list[str]]:
        """Return each judge of a dataset, or of the table, with the names of its rows."""
        return group_judges(
            (name, judge)
            for name, entry in self._name_entries()
            if dataset in (None, entry.dataset)
            for judge in (repeat.judge for repeat in entry.repeats)
        )

    def _has_mixed_judges(self, group: str, metric: str) -> bool:
        """Return whether the rows of a column have accuracies by different judges, which cannot be compared."""
        datasets = self.datasets if group == MEAN else [group]
        return metric == "judge" and any(len(self._judges(each)) > 1 for each in datasets)

    def _name_judges(self) -> list[str]:
        """Return a sentence with the judge, or with the rows of each judge if there are several."""
        if not {"judge", "corrected"} & {*self.metrics}:
            return []
        judges = self._judges()
        if len(judges) < 2:
            return [f"Judge: {judge}." for judge in judges]
        columns = [(group, metric) for group in self.groups for metric in self.metrics]
        is_mixed = any(self._has_mixed_judges(*column) for column in columns)
        return [f"{MIXED_JUDGES if is_mixed else 'Judges'}: {list_judges(judges)}."]

    def _name_runs(self) -> Iterator[tuple[str, FinishedRun]]:
        """Yield each run with the name of its row, and of its dataset if there are several."""
        for name, entry in self._name_entries():
            for run in (entry.run, *entry.others):
                yield name, run

    def _name_entries(self) -> Iterator[tuple[str, Entry]]:
        for entry in self.entries:
            name = self.show(self.names[id(entry)])
            if len(self.datasets) > 1:
                name = f"{name} on {DATASETS.get(entry.dataset, entry.dataset)}"
            yield name, entry

    @property
    def has_repeats(self) -> bool:
        return any(entry.others for entry in self.entries)

    def _note_repeats(self) -> list[str]:
        """Return a note on repeats, and on means over datasets without a test."""
        untested = self.has_repeats and MEAN in self.groups and self.baseline is not None
        return [
            *note_repeats(self.entries),
            *(["Means of repeats over datasets are not tested."] if untested else []),
        ]

    def _missing_golds(self) -> dict[str, str]:
        """Return what the gold answers of a dataset lack."""
        lacking = {name: self._first(name).run.metrics.missing_golds for name in self.datasets}
        return {DATASETS.get(name, name): text for name, text in lacking.items() if text}

    def _first(self, dataset: str) -> Entry:
        return next(entry for entry in self.entries if entry.dataset == dataset)

    def _widest(self) -> float:
        """Return the largest distance of a score from an end of its interval."""
        scores = [entry.estimate(metric) for entry in self.entries for metric in self.metrics]
        ends = [(each.mean, end) for each in scores for end in (each.low, each.high)]
        return max(
            (abs(end - mean) for mean, end in ends if mean is not None and end is not None),
            default=0.0,
        )

    def header(self) -> list[str]:
        """Return the names of the columns on one line."""
        return [
            "method",
            *(
                f"{DATASETS.get(group, group)} {self.title(metric)}"
                for group in self.groups
                for metric in self.metrics
            ),
        ]

    def markdown(self) -> str:
        formats = {"best": "**{}**", "second": "<u>{}</u>"}
        lines = [self.header(), ["---", *["---:"] * (len(self.header()) - 1)]]
        lines += [
            [
                escape_markdown(self.show(row)),
                *(formats.get(cell.mark, "{}").format(cell) for cell in cells),
            ]
            for row, cells in self.cells.items()
        ]
        return (
            "".join(f"| {' | '.join(line)} |\n" for line in lines)
            + f"\n{escape_markdown(self.caption)}\n"
        )

    def csv(self) -> str:
        """Return the values as numbers, with columns for the mark of the test, the model and the retriever."""
        columns = ("metric", "value", "low", "high", "n", "mark", "model", "retriever")
        header = ["method", "dataset", *columns]
        rows: list[list[object]] = [[*header]]
        for row in self.rows:
            for group in self.groups:
                for metric in self.metrics:
                    entry = self.entry(row, group)
                    estimate = entry.estimate(metric) if entry else UNDEFINED
                    ends = [estimate.low, estimate.high, estimate.n or None]
                    mark = self.significant.get((row, group, metric), "")
                    retriever = title_retriever(entry.run) if entry else ""
                    used = [self._name_model(row, group), retriever]
                    value = self.value(row, group, metric)
                    rows.append([self.show(row), group, metric, value, *ends, mark, *used])
        return csv_text(rows)

    def _name_model(self, row: str, group: str) -> str:
        """Return the model of a cell, "no model" if engine=scripted answered, "" for a mean or without a model."""
        datasets = self.datasets if group == MEAN else [group]
        entries = [entry for name in datasets if (entry := self.entry(row, name))]
        if any(entry.run.simulation_note and not title_model(entry.run) for entry in entries):
            return "no model"
        return title_model(entries[0].run) if entries and group != MEAN else ""

    def latex(self) -> str:
        """Return the table for the package booktabs."""
        width = len(self.metrics)
        heads = [
            rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(DATASETS.get(group, group))}}}"
            for group in self.groups
        ]
        rules = [
            rf"\cmidrule(lr){{{2 + width * n}-{1 + width * (n + 1)}}}"
            for n in range(len(self.groups))
        ]
        labels = [escape_latex(self.title(metric)) for _ in self.groups for metric in self.metrics]
        body = [
            " & ".join([escape_latex(self.show(row)), *map(_latex_cell, cells)]) + r" \\"
            for row, cells in self.cells.items()
        ]
        # as wide as the page, also where a page has two columns
        environment = "table*" if self.intervals else "table"
        return _LATEX % (
            environment,
            "r" * (width * len(self.groups)),
            " & ".join(["", *heads]) + r" \\",
            " ".join(rules),
            " & ".join(["Method", *labels]) + r" \\",
            "\n".join(body),
            _latex_marks(escape_latex(self.caption)),
            environment,
        )

    def text(self, form: str) -> str:
        """Return the table as latex, md or csv. Raises ConfigError for another format."""
        writers = {"latex": self.latex, "md": self.markdown, "csv": self.csv}
        if form not in writers:
            raise ConfigError(f"--format {form}: not with --table paper. {nearest(form, writers)}")
        return writers[form]()


def read_entries(places: Sequence[Path]) -> list[Entry]:
    """Read runs, and the finished cells of sweeps. Raises DataError: one is neither, or no cell is finished."""
    entries = []
    for place in places:
        if not (place / SWEEP).is_file():
            run = FinishedRun.read(place)
            values = _read_command(run.manifest.command)
            # a key without effect names no run
            without = [
                key
                for key in values
                if (group := key.partition(".")[0]) in SEARCH_GROUPS and group not in run.choices
            ]
            settings = _choose_settings(values, {"method", *without})
            entries.append(Entry(run, settings))
            continue
        entries += _read_cells(Sweep.read(place))
    return entries


def read_entry(folders: Sequence[Path]) -> Entry:
    """Read a run, or the repeats of one. Raises DataError: a file is damaged."""
    first, *others = (read_entries([folder])[0] for folder in folders)
    # sets of examples vary with the repeat
    changed = {key for other in others for key in (SET,) if other.value(key) != first.value(key)}
    settings = {key: value for key, value in first.settings.items() if key not in changed}
    return Entry(first.run, settings, others=[other.run for other in others])


def _read_cells(sweep: Sweep) -> list[Entry]:
    """Return the entries of the finished cells. Those with equal values of all axes but `repeat` are one."""
    axes = sweep.axes
    cells = [cell for cell in sweep.cells if cell.status == "done" and cell.run is not None]
    if not cells:
        raise DataError(f"{sweep.path}: no cell of this sweep is finished. Run its command again")
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(row_key(cell, axes), []).append(cell)
    entries = []
    for first, *others in groups.values():
        # sets of examples vary with the repeat
        omitted = {"method", *([SET] if REPEAT in axes and SET not in axes else [])}
        runs = [FinishedRun.read(cell.run) for cell in (first, *others) if cell.run]
        values = {**_read_command(sweep.command), **first.values}
        entries.append(Entry(runs[0], _choose_settings(values, omitted), others=runs[1:]))
    return entries


def name_entries(entries: Sequence[Entry]) -> dict[int, str]:
    """Return a name of each entry by its id: its method, and the settings that differ among the runs of this method.

    Settings of a dataset count if they differ among the runs on this dataset. Prompts and files that differ are only
    in names that would be equal without them.
    """
    named = []
    for entry in entries:
        same = [other for other in entries if other.method == entry.method]
        on_dataset = [other for other in same if other.dataset == entry.dataset]
        keys = dict.fromkeys(key for other in same for key in other.settings)
        differing = [
            key for key in keys if _differs(key, on_dataset if key.startswith(OF_DATASET) else same)
        ]
        own = {key: value for key in differing if (value := entry.value(key)) is not None}
        engine = entry.run.choices.get("engine")
        minor = {key: own.pop(key) for key in [*own] if not can_change_files(key, engine)}
        name = name_by_settings({"method": entry.method, **own})
        named.append(
            NamedRun(name, entry.method, entry.run.folder, entry.dataset, name_by_settings(minor))
        )
    return dict(zip(map(id, entries), add_changes(named), strict=True))


def list_used(entries: Sequence[Entry]) -> str:
    """Return the models and the retrievers of the entries, such as "model NAME, retriever NAME"."""
    parts = []
    for group, title in (("model", title_model), ("retriever", title_retriever)):
        names = dict.fromkeys(name for entry in entries if (name := title(entry.run)))
        if names:
            parts.append(f"{group} {', '.join(names)}")
    return ", ".join(parts)


def note_repeats(entries: Sequence[Entry]) -> list[str]:
    """Return a note if an entry is the mean of several runs."""
    counts = sorted({1 + len(entry.others) for entry in entries})
    if counts[-1:] in ([], [1]):
        return []
    number = " or ".join(map(str, counts))
    return [
        f"Scores are means of {number} runs.",
        "If repeats differ by more than their questions explain, 95% intervals contain this spread, by Student's t.",
    ]


def warn_of_simulation(entries: Sequence[Entry]) -> list[str]:
    """Return a warning if a run called no model, with the names of these runs if others did."""
    simulated = [entry for entry in entries if entry.run.simulation_note]
    if len(simulated) == len(entries):
        return ["No model was called: the scores are meaningless."] if entries else []
    names = name_entries(entries)
    listed = ", ".join(dict.fromkeys(names[id(entry)] for entry in simulated))
    return [f"No model was called in {listed}: their scores are meaningless."] if listed else []


def list_failed(rows: Iterable[tuple[str, Entry]]) -> list[str]:
    """Return one sentence on the failed questions of each named row in all its repeats, or nothing."""
    counts = [
        f"{name} {failed:,} of {sum(run.questions for run in runs):,}"
        for name, runs in (
            (name, [run.metrics for run in (entry.run, *entry.others)]) for name, entry in rows
        )
        if (failed := sum(run.failed for run in runs))
    ]
    return [f"Failed questions count as wrong: {', '.join(counts)}."] if counts else []


def _read_command(command: Sequence[str]) -> dict[str, str]:
    """Return the values of a command by key."""
    return override_values(argument for argument in command if "=" in argument)


def _choose_settings(values: Mapping[str, str], omitted: Collection[str]) -> dict[str, str]:
    """Return the values of a command that can name a row."""
    return {
        key: value
        for key, value in values.items()
        if key not in {*omitted, "dataset"} and key.partition(".")[0] not in NOT_IN_ROWS
    }


def _differs(key: str, entries: Sequence[Entry]) -> bool:
    return len({entry.value(key) for entry in entries}) > 1


def table_file(form: str) -> str:
    """Return the name of a table's file."""
    return _FILES.get(form, _FILES["md"])


def _latex_cell(cell: MarkedCell) -> str:
    commands = {"best": "textbf", "second": "underline"}
    value = cell.rstrip(BETTER + WORSE)
    text = escape_latex(value)
    text = rf"\{commands[cell.mark]}{{{text}}}" if cell.mark in commands else text
    return text + _latex_marks(cell[len(value) :])


def _latex_marks(text: str) -> str:
    return text.replace(BETTER, r"$^\dagger$").replace(WORSE, r"$^\ddagger$")

"""The table of `kgqa compare --out` for a paper: one row per metric and pair of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from kgqa.artifacts.sweep import Cell
from kgqa.report.columns import JUDGE_ACCURACY, list_missing
from kgqa.report.evaluation import BOUNDS, CORRECTED_P, describe_tests_of, p_text
from kgqa.report.names import DATASETS, title_row, title_rules
from kgqa.report.paper import (
    Entry,
    list_failed,
    list_used,
    name_entries,
    note_repeats,
    warn_of_simulation,
)
from kgqa.report.section import (
    TABULAR,
    MarkedCell,
    Section,
    choose_latex_size,
    escape_latex,
    latex_cell,
)
from kgqa.report.warnings import name_doubts
from kgqa.scoring.comparison import HOLM, Difference, explain_direction
from kgqa.util.text import pluralize, score_text

# by column: in Markdown and in LaTeX
HEADER = {
    "metric": "Metric",
    "run a": "Run a",
    "run b": "Run b",
    "n": "$n$",
    "mean a": "Mean a",
    "mean b": "Mean b",
    "a − b [95% interval]": r"a $-$ b [95\% interval]",
}
# a table as wide as the page, also where a page has two columns
_LATEX = r"""%% needs \usepackage{%s}
\begin{table*}[t]
\centering%s
%s
\caption{%s}
\end{table*}
"""
# only if it is still wider than the page
_SHRUNK = r"""\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%%
%s}"""


@dataclass(frozen=True)
class ComparisonTable:
    """The table of some compared runs.

    entries: the runs by letter. profile: the rules of scoring. correction: a name of `CORRECTIONS`. missing: the cells
    of sweeps without results. baseline: the letter of the run that all others are compared with.
    """

    differences: Sequence[Difference]
    entries: Mapping[str, Entry]
    profile: str
    correction: str = HOLM
    missing: Sequence[Cell] = ()
    baseline: str | None = None

    @property
    def header(self) -> dict[str, str]:
        """Return the heads of the columns, in Markdown and in LaTeX. The baseline is the head of its means."""
        label = CORRECTED_P[self.correction][0]
        heads = HEADER
        if self.baseline is not None:
            name = self.names[self.baseline]
            heads = {
                "metric": "Metric",
                "run": "Run",
                "n": "$n$",
                "mean": "Mean",
                name: escape_latex(name),
                "difference [95% interval]": r"Difference [95\% interval]",
            }
        return {**heads, label: label.replace("p", "$p$", 1)}

    @cached_property
    def names(self) -> dict[str, str]:
        """Return the name of each run by letter, with its folder if another one has the same name."""
        by_id = name_entries(list(self.entries.values()))
        names = {letter: title_row(by_id[id(entry)]) for letter, entry in self.entries.items()}
        counts = Counter(names.values())
        return {
            letter: f"{name} ({self.entries[letter].run.folder})" if counts[name] > 1 else name
            for letter, name in names.items()
        }

    def row(self, each: Difference) -> list[str]:
        """Return the cells of a row. The p-value of a significant difference is marked."""
        ends = f"[{_points(each.low)}, {_points(each.high)}]"
        return [
            each.title,
            self.names[each.first],
            *([self.names[each.second]] if self.baseline is None else []),
            f"{each.n:,}",
            *map(score_text, each.means),
            f"{_points(each.difference)} {ends}",
            MarkedCell(p_text(each.adjusted, each.alpha), "best" if each.significant else ""),
        ]

    @property
    def caption(self) -> str:
        """Return the caption: the questions, the rules of scoring, the model, the tests and warnings."""
        runs = [entry.run for entry in self.entries.values()]
        datasets = dict.fromkeys(run.choices["dataset"] for run in runs)
        named = ", ".join(DATASETS.get(name, name) for name in datasets)
        used = list_used(list(self.entries.values()))
        rows = "Pairs of runs"
        if self.baseline is not None:
            rows = f"Each run minus {self.names[self.baseline]}"
        parts = [
            f"{rows} on the same questions of {named}{f' with {used}' if used else ''}.",
            f"Means in percent by the rules of {title_rules(self.profile)}, differences in points with 95% intervals.",
            f"n: questions that define the score in both. p: {describe_tests_of(self.differences)},",
            f"with {CORRECTED_P[self.correction][1]} over {self._count_families()}.",
            f"Bold: p < {self.differences[0].alpha:g}.",
            *explain_direction(each.title for each in self.differences),
        ]
        return " ".join([*parts, *note_repeats(list(self.entries.values())), *self.warnings])

    def _count_families(self) -> str:
        """Return the number of tests that are corrected together, and of those with an upper bound."""
        apart = sum(each.upper_bound for each in self.differences)
        others = len(self.differences) - apart
        if not apart or not others:
            return pluralize(apart + others, "test")
        return f"{pluralize(others, 'test')}, and over the {apart} with {BOUNDS}"

    @property
    def warnings(self) -> list[str]:
        """Return what a reader of the table must know."""
        runs = [
            (self.names[letter], run)
            for letter, entry in self.entries.items()
            for run in (entry.run, *entry.others)
        ]
        files = {run.manifest.dataset.sha256 for _, run in runs}
        judges = [entry.shares.judge for entry in self._judged]
        golds = dict.fromkeys(run.metrics.missing_golds for _, run in runs)
        return [
            *warn_of_simulation(list(self.entries.values())),
            *name_doubts((name, run.metrics) for name, run in runs),
            *list_failed((self.names[letter], entry) for letter, entry in self.entries.items()),
            *([list_missing(self.missing)] if self.missing else []),
            *(["The runs read different data files."] if len(files) > 1 else []),
            *(f"Scored {lacking}." for lacking in golds if lacking),
            *dict.fromkeys(f"Judge: {judge.judge}." for judge in judges if judge),
            *(["The judge is the reader."] if any(j and j.warnings for j in judges) else []),
            *(["The judge's errors are not corrected."] if judges else []),
        ]

    @property
    def _judged(self) -> list[Entry]:
        """Return the runs with verdicts that are compared."""
        is_judged = any(each.metric == JUDGE_ACCURACY for each in self.differences)
        return list(self.entries.values()) if is_judged else []

    def section(self) -> Section:
        rows = list(map(self.row, self.differences))
        return Section("Table", list(self.header), rows, (self.caption,))

    def latex(self) -> str:
        """Return the table for the package booktabs. There is some space between metrics."""
        lines = [_line(map(latex_cell, self.row(each))) for each in self.differences]
        for number, (one, other) in enumerate(pairwise(self.differences)):
            lines[number] += "\n\\addlinespace" if one.metric != other.metric else ""
        texts = "lll" if self.baseline is None else "ll"
        tabular = TABULAR % (
            texts + "r" * (len(self.header) - len(texts)),
            _line(self.header.values()),
            "\n".join(lines),
        )
        size = choose_latex_size([list(self.header), *map(self.row, self.differences)])
        return _LATEX % (
            "booktabs,graphicx" if size else "booktabs",
            size or "\n\\small",
            _SHRUNK % tabular if size else tabular,
            escape_latex(self.caption),
        )


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _points(value: float) -> str:
    return score_text(value, "+").replace("-", "−")

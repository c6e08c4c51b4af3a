"""What `kgqa evaluate`, `compare` and `judge calibrate` show: sections like those of a run's report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgqa.artefacts.evaluation import Evaluation
from kgqa.report.content import Section, breakdown_sections, figure, judge_sections
from kgqa.report.summary import answer_rows
from kgqa.scoring.comparison import Difference, questions_needed

if TYPE_CHECKING:
    from rich.console import Console


_FIGURES = "0123456789+-–"  # what a cell begins with that is read as a number
_WARNING = "**Warning**"


def evaluation_sections(evaluation: Evaluation) -> list[Section]:
    text = (
        f"Scored by the `{evaluation.scores.profile}` profile, in percent; brackets: 95 % bootstrap intervals.",
        "Failed questions count as wrong.",
        *evaluation.notes,
    )
    found = [
        Section("Scores", (), answer_rows(evaluation.scores, evaluation.judge), text),
        *judge_sections(evaluation.judge),
        *breakdown_sections(evaluation.scores),
    ]
    return [section for section in found if section.rows]


def comparison_section(differences: Sequence[Difference], wanted: float) -> Section:
    """Who wins where. `wanted`: the difference, in points, whose number of questions is told."""
    header = ("metric", "runs", "means", "difference", "better on", "p", "p (Holm)", "effect", f"n for {wanted:g}", "")
    text = (
        "Means in percent, the difference in points with its 95 % bootstrap interval, over the same questions. p: "
        "McNemar's exact test for right or wrong, a paired permutation test for the rest; Holm's correction over all "
        f"rows. Effect: odds of the first where the two differ, or Cohen's d. n for {wanted:g}: questions that would "
        f"show a difference of {wanted:g} points with power 0.8."
    )
    return Section("Differences", header, [_difference_row(each, wanted) for each in differences], (text,))


def print_sections(console: Console, title: str, sections: Sequence[Section]) -> None:
    """As tables in a terminal; nothing of it is taken for markup."""
    from rich.markup import escape
    from rich.table import Table

    console.print(title, style="bold", markup=False, highlight=False, soft_wrap=True)
    for section in sections:
        table = Table(show_header=bool(section.header), box=None, padding=(0, 2, 0, 0))
        columns = zip(section.header or ("",) * len(section.rows[0]), zip(*section.rows, strict=True), strict=True)
        for name, cells in columns:
            figures = bool(section.header) and all(cell[:1] in _FIGURES for cell in cells)
            table.add_column(escape(name), justify="right" if figures else "left", overflow="fold")
        for row in section.rows:
            table.add_row(*(escape(_printable(cell)) for cell in row))
        console.print(f"\n{section.title}", style="bold", markup=False, highlight=False, soft_wrap=True)
        console.print(table, highlight=False)
        for text in section.text:
            style = "red" if text.startswith(_WARNING) else "dim"
            console.print(text.replace("**", ""), style=style, markup=False, highlight=False, soft_wrap=True)


def _printable(text: str) -> str:
    """Models may write half a character, which no terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _difference_row(each: Difference, wanted: float) -> tuple[str, ...]:
    needed = questions_needed(wanted, each.deviation)
    winner = each.first if each.difference > 0 else each.second
    return (
        each.metric,
        f"{each.first} – {each.second}",
        f"{each.means[0]:.1f}  {each.means[1]:.1f}",
        f"{each.difference:+.1f} [{each.low:+.1f}, {each.high:+.1f}]",
        f"{each.wins[0]} : {each.wins[1]}",
        _p(each.p),
        _p(each.adjusted),
        "–" if each.effect is None else f"{'odds' if each.binary else 'd'} {each.effect:.2f}",
        figure(needed),
        f"{winner} wins" if each.significant else "no difference shown",
    )


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"

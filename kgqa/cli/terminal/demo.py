"""Print the result of `kgqa demo`: three methods side by side, and the chain of TRACE for every question."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from kgqa.artifacts.trace import TracedQuestion
from kgqa.cli.terminal.console import Terminal
from kgqa.experiment.run.demo import DemoResult, leading_chain
from kgqa.util.text import pluralize


def show_demo(results: Sequence[DemoResult], terminal: Terminal) -> None:
    """Print scores in percent, the answers of each method, and a note about the number of questions."""
    table = Table("method", box=None, padding=(0, 3, 0, 0), header_style="bold")
    for header in ("EM", "F1", "model seconds"):
        table.add_column(header, justify="right")
    for each in results:
        triples = f" + {each.triple_seconds:.0f} for triples" if each.triple_seconds else ""
        table.add_row(escape(each.method), f"{each.em:.1f}", f"{each.f1:.1f}", f"{each.seconds:.0f}{triples}")
    terminal.line("")
    terminal.show(table)
    for place in range(len(results[0].questions)):
        _question(place, results, terminal)
    count = len(results[0].questions)
    verb = "shows" if count == 1 else "show"
    terminal.line(
        f"\n{pluralize(count, 'question')} {verb} how answers are found, not how good a method is: "
        f"one right answer more is {100 / count:.0f} points of EM."
    )


def _question(place: int, results: Sequence[DemoResult], terminal: Terminal) -> None:
    question = results[0].questions[place].question
    terminal.line(f"\n{question.text}", style="bold")
    width = max(len(each.method) for each in results)
    terminal.line(f"  {'gold':{width}}  {' | '.join(question.answers)}")
    for each in results:
        prediction, right = each.questions[place].prediction, each.scored[place].em == 1
        text = f"failed: {prediction.error}" if prediction.error else prediction.answer or "(nothing)"
        terminal.line(
            f"  {each.method:{width}}  {text}{'   (right)' if right else ''}", style="green" if right else None
        )
        _chain(each.questions[place], " " * (width + 4), terminal)


def _chain(traced: TracedQuestion, margin: str, terminal: Terminal) -> None:
    for head, relation, tail in leading_chain(traced):
        terminal.line(f"{margin}{head} — {relation} → {tail}")
    if "chains" in traced.notes:
        passages = len(traced.question.passages)
        titles = ", ".join(traced.prediction.evidence_titles) or "none"
        terminal.line(f"{margin}passages of its chains: {titles} (of {passages})", style="dim")

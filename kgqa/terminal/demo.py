"""What `kgqa demo` ends with: three methods side by side, and for every question the chain that TRACE read."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from kgqa.artefacts.trace import TracedQuestion
from kgqa.counting import counted
from kgqa.experiment.run.showing import Shown, leading_chain
from kgqa.terminal.console import Terminal


def show_demo(shown: Sequence[Shown], terminal: Terminal) -> None:
    """Scores in percent, answers of each method, and what the figures are worth."""
    table = Table("method", box=None, padding=(0, 3, 0, 0), header_style="bold")
    for header in ("EM", "F1", "model seconds"):
        table.add_column(header, justify="right")
    for each in shown:
        triples = f" + {each.triple_seconds:.0f} for triples" if each.triple_seconds else ""
        table.add_row(escape(each.method), f"{each.em:.1f}", f"{each.f1:.1f}", f"{each.seconds:.0f}{triples}")
    terminal.line("")
    terminal.show(table)
    for place in range(len(shown[0].questions)):
        _question(place, shown, terminal)
    count = len(shown[0].questions)
    tells = "shows" if count == 1 else "show"
    terminal.line(
        f"\n{counted(count, 'question')} {tells} how answers are found, not how good a method is: "
        f"one right answer more is {100 / count:.0f} points of EM."
    )


def _question(place: int, shown: Sequence[Shown], terminal: Terminal) -> None:
    question = shown[0].questions[place].question
    terminal.line(f"\n{question.text}", style="bold")
    width = max(len(each.method) for each in shown)
    terminal.line(f"  {'gold':{width}}  {' | '.join(question.answers)}")
    for each in shown:
        prediction, right = each.questions[place].prediction, each.scored[place].em == 1
        said = f"failed: {prediction.error}" if prediction.error else prediction.answer or "(nothing)"
        terminal.line(
            f"  {each.method:{width}}  {said}{'   (right)' if right else ''}", style="green" if right else None
        )
        _chain(each.questions[place], " " * (width + 4), terminal)


def _chain(traced: TracedQuestion, margin: str, terminal: Terminal) -> None:
    for head, relation, tail in leading_chain(traced):
        terminal.line(f"{margin}{head} — {relation} → {tail}")
    if "chains" in traced.notes:
        passages = len(traced.question.passages)
        titles = ", ".join(traced.prediction.evidence_titles) or "none"
        terminal.line(f"{margin}passages of its chains: {titles} (of {passages})", style="dim")

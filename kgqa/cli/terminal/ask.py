"""The lines that `kgqa ask` prints: the answer and the sentences that support it."""

from __future__ import annotations

from kgqa.artifacts.saved_answer import SavedAnswer
from kgqa.runtime.display import Display


def show_answer(answer: SavedAnswer, display: Display) -> None:
    """Print the answer, each quoted sentence with its place, and a warning if no sentence supports it."""
    if answer.error is not None:
        display.line(f"failed: {answer.error}", alarm=True)
        return
    display.line(f"answer: {answer.answer or 'none'}  ({answer.seconds:.0f} s)")
    for number, step in enumerate(answer.steps, start=1):
        indent = f"  {number}. "
        if step.triple:
            display.line(f"{indent}<{'; '.join(step.triple)}>")
            indent = "     "
        display.line(f"{indent}“{' '.join(step.sentence.split())}” {step.where}")
    if not answer.steps:
        display.line("  no passage of the documents supports it: check it", alarm=True)
    elif not answer.supported:
        display.line("  none of these sentences contains the answer: check it", alarm=True)

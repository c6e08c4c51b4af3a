"""An example as it will be trained on: what is asked, and what shall be written."""

from __future__ import annotations

from rich.rule import Rule

from kgqa.artifacts.examples import Example, Positive
from kgqa.cli.terminal.console import Terminal


def show_example(example: Example | Positive, terminal: Terminal) -> None:
    parts = [("anchor", example.anchor), ("positive", example.positive)] if isinstance(example, Positive) else []
    if isinstance(example, Positive):
        parts += [(f"negative {number}", text) for number, text in enumerate(example.negatives, start=1)]
    else:
        parts += [(message.role, message.content) for message in example.prompt.messages]
        parts += [("the reply begins", example.prompt.prefill)] if example.prompt.prefill else []
        parts += [("target", example.target)]
    for name, text in parts:
        terminal.show(Rule(f"{example.id}: {name}".replace("[", "\\["), align="left"))
        terminal.line(text)
    terminal.show(Rule())

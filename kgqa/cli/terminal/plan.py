"""Output of a dry run: the first prompt of each template, shortened, and the expected calls."""

from __future__ import annotations

from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from kgqa.cli.terminal.console import Terminal
from kgqa.experiment.run.estimating import estimate_roles, measure_rates
from kgqa.experiment.run.planning import Plan
from kgqa.util.text import pluralize

BEGINNING, ENDING = 6, 12  # lines of a prompt that a plan shows


def show_plan(plan: Plan, questions: int, terminal: Terminal) -> None:
    """Show each prompt as the model gets it, then calls by role with time and costs."""
    for role in plan.values():
        for template, call in role.first.items():
            terminal.show(Rule(f"{template} ({call.role})", align="left"))
            terminal.line(_shorten(role.render(call)))
    table = Table("role", "calls", "in the cache", "prompt tokens", "generated tokens", title_justify="left")
    table.title = f"{pluralize(questions, 'question')}, planned with made-up replies"
    for name, role in sorted(plan.items()):
        table.add_row(
            escape(name),
            f"{role.calls:,}",
            f"{role.calls - role.new_calls:,}",
            f"about {role.prompt_tokens:,}",
            f"{role.output_tokens:,}",
        )
    terminal.show(Rule())
    terminal.console.print(table)
    for line in estimate_roles(plan.values(), measure_rates()).lines():
        terminal.line(line)
    calls, new_calls = (sum(getattr(role, count) for role in plan.values()) for count in ("calls", "new_calls"))
    terminal.line(f"{calls:,} model calls, {new_calls:,} of them to be asked")


def _shorten(prompt: str) -> str:
    """Return the start and the end of a prompt; few-shot examples are between them."""
    lines = prompt.splitlines()
    left_out = len(lines) - BEGINNING - ENDING
    if left_out <= 1:
        return prompt
    more = f"… {left_out:,} lines more; all of them, of a run: kgqa show RUN QUESTION --calls"
    return "\n".join([*lines[:BEGINNING], more, *lines[-ENDING:]])

"""The output of `dry_run=true` and `--plan`: first prompts, calls, time and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kgqa.cli.terminal import Terminal
from kgqa.experiment.dry_run import Plan
from kgqa.experiment.estimates import Estimated, estimate_plan, format_range, format_time
from kgqa.sweeps.cells import FINISHED, Cell, estimate_cells
from kgqa.util.text import pluralize

PLANNED_QUESTIONS = 5  # of each run that `--plan` looks at
FIGURES = ("calls", "new calls", "new tokens", "time", "USD")


def show_plan(
    plan: Plan,
    count: int,
    terminal: Terminal,
    method: str = "",
    unit: str = "question",
    *,
    with_prompts: bool = False,
) -> None:
    """Show calls by role with time and costs, or before them the first prompt of each template as the model gets it."""
    for role in plan.values() if with_prompts else ():
        for template, call in role.first.items():
            terminal.heading(f"{template} ({call.role})")
            terminal.line(role.render(call))
    rows = [
        (
            name,
            f"{role.every.calls:,}",
            f"{role.every.calls - role.new.calls:,}",
            f"about {role.every.usage.prompt_tokens:,}",
            f"{role.every.usage.output_tokens:,}",
        )
        for name, role in sorted(plan.items())
    ]
    if with_prompts:
        terminal.line("")
    title = f"{pluralize(count, unit)}, planned with simulated replies"
    terminal.table(("role", "calls", "in the cache", "prompt tokens", "generated tokens"), rows, title=title)
    terminal.lines(estimate_plan(plan, method).lines())
    calls = sum(role.every.calls for role in plan.values())
    new_calls = sum(role.new.calls for role in plan.values())
    terminal.line(f"{calls:,} model calls, {new_calls:,} of them new")


def show_estimates(cells: Sequence[Cell], terminal: Terminal) -> int:
    """Plan every cell and show the plans and their sum. Return 2 if a cell cannot run."""
    estimates = estimate_cells(cells)
    runnable = [estimate for estimate in estimates if isinstance(estimate, Estimated)]
    total, rows, reasons = Estimated.sum(runnable), list[Sequence[str]](), list[str]()
    for cell, estimate in zip(cells, estimates, strict=True):
        if isinstance(estimate, str):
            figures = ("cannot run", "", "", "", "")
            reasons.append(f"cell {cell.number} ({cell.name}): {estimate}")
        else:
            figures = ("finished", "0", "0", "", "") if estimate is FINISHED else _figures(estimate)
        rows.append((str(cell.number), cell.name, *figures))
    rows.append(("all", f"{len(runnable)} cells that can run", *_figures(total)))
    terminal.table(("cell", "settings", *FIGURES), rows, title="planned with simulated replies")
    terminal.lines(reasons, alarm=True)
    terminal.lines(total.lines())
    return 2 if reasons else 0


def show_stages(stages: Mapping[str, Sequence[Cell]], terminal: Terminal) -> int:
    """Show runs, calls, tokens, hours and costs of each stage. Return 2 if a run is impossible."""
    rows = []
    total, reasons, runs, questions = list[Estimated](), list[str](), 0, 0
    for stage, cells in stages.items():
        estimates = estimate_cells(cells, PLANNED_QUESTIONS)
        runnable = [estimate for estimate in estimates if isinstance(estimate, Estimated)]
        count = sum(len(replace(cell.experiment).questions) for cell in cells)
        rows.append((stage, f"{len(cells):,}", f"{count:,}", *_figures(Estimated.sum(runnable))))
        runs, questions = runs + len(cells), questions + count
        total += runnable
        reasons += [estimate for estimate in estimates if isinstance(estimate, str)]
    rows.append(("all", f"{runs:,}", f"{questions:,}", *_figures(Estimated.sum(total))))
    terminal.table(("stage", "runs", "questions", *FIGURES), rows)
    terminal.lines(Estimated.sum(total).lines())
    terminal.lines(
        (f"{reasons.count(reason):,} runs are impossible: {reason}" for reason in dict.fromkeys(reasons)), alarm=True
    )
    terminal.line(
        f"planned with simulated replies to the first {PLANNED_QUESTIONS} questions of each run, times their number"
    )
    return 2 if reasons else 0


def _figures(estimate: Estimated) -> tuple[str, str, str, str, str]:
    usd = "–" if estimate.usd is None else format_range(estimate.usd, "{:,.2f}")
    tokens = format_range(estimate.tokens, "{:,.0f}")
    return f"{estimate.calls:,}", f"{estimate.new_calls:,}", tokens, format_time(estimate.seconds), usd

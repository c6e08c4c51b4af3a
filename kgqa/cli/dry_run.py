"""The output of `dry_run=true` and `--plan`: first prompts, calls, time and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kgqa.artifacts.sweep import Cell
from kgqa.cli.tables import Cells
from kgqa.cli.terminal import Terminal
from kgqa.experiment.devices import GpuPlan
from kgqa.experiment.dry_run import CallPlan
from kgqa.experiment.estimates import (
    Estimated,
    estimate_plan,
    format_range,
    format_time,
    list_call_settings,
)
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.placement import GB
from kgqa.sweeps.cells import FINISHED, estimate_cells, experiment_of
from kgqa.util.text import pluralize

# of each run that `--plan` looks at
PLANNED_QUESTIONS = 5
FIGURES = ("calls", "new calls", "new tokens", "time", "USD")


def show_plan(
    plan: CallPlan,
    count: int,
    terminal: Terminal,
    experiment: Experiment | None = None,
    unit: str = "question",
    *,
    with_prompts: bool = False,
) -> None:
    """Show calls by role with time and costs, or before them the first prompt of each template as the model gets it."""
    for role in plan.values() if with_prompts else ():
        for template, call in role.first.items():
            terminal.heading(f"{template} ({call.role})")
            terminal.line(role.render(call), folds=False)
    rows = list[Cells]()
    for name, role in sorted(plan.items()):
        every, usage = role.every.calls, role.every.usage
        prompt = f"about {usage.prompt_tokens:,}"
        rows.append((name, every, every - role.new.calls, prompt, usage.output_tokens))
    if with_prompts:
        terminal.line("")
    title = f"{pluralize(count, unit)}, planned with simulated replies"
    terminal.table(
        ("role", "calls", "in the cache", "prompt tokens", "generated tokens"), rows, title=title
    )
    known = (experiment.choices["method"], list_call_settings(experiment)) if experiment else ()
    estimate = estimate_plan(plan, *known)
    terminal.lines(
        [*estimate.lines(), f"{estimate.calls:,} model calls, {estimate.new_calls:,} of them new"]
    )
    for name, work in plan.rankers.items():
        terminal.line(
            f"{name}: {work.rankings:,} rankings of {len(work.texts):,} distinct texts, each encoded once"
        )


def show_gpus(plan: GpuPlan, terminal: Terminal) -> None:
    """Show which model is on which GPUs, stage by stage. Nothing without GPUs."""
    if plan.placement is None or plan.devices is None:
        return
    size = f"{pluralize(plan.placement.gpus, 'GPU')} of {plan.placement.memory / GB:.0f} GB"
    terminal.table(
        ("stage", "component", "GPUs", "memory"),
        plan.placement.rows(plan.devices.names),
        title=f"planned on {size}",
    )
    terminal.lines(plan.lines())


def show_estimates(cells: Sequence[Cell], terminal: Terminal) -> int:
    """Plan every cell and show the plans and their sum. Return 2 if a cell cannot run."""
    rows, runnable, reasons = list[Cells](), list[Estimated](), list[str]()
    for cell, estimate in zip(cells, estimate_cells(cells), strict=True):
        figures: Cells
        if isinstance(estimate, str):
            figures = ("cannot run", None, None, None, None)
            reasons.append(f"cell {cell.number} ({cell.name}): {estimate}")
        else:
            figures = ("finished", 0, 0, None, None) if estimate is FINISHED else _figures(estimate)
            runnable.append(estimate)
        rows.append((str(cell.number), cell.name, *figures))
    total = Estimated.sum(runnable)
    rows.append(("all", f"{len(runnable)} cells that can run", *_figures(total)))
    terminal.table(("cell", "settings", *FIGURES), rows, title="planned with simulated replies")
    terminal.lines(reasons, alarm=True)
    terminal.lines(total.lines())
    return 2 if reasons else 0


def show_stages(stages: Mapping[str, Sequence[Cell]], terminal: Terminal) -> int:
    """Show runs, calls, tokens, hours and costs of each stage. Return 2 if a run is impossible."""
    rows, runnable, reasons = list[Cells](), list[Estimated](), Counter[str]()
    runs = questions = 0
    for stage, cells in stages.items():
        estimates = estimate_cells(cells, PLANNED_QUESTIONS)
        numbers = [estimate for estimate in estimates if isinstance(estimate, Estimated)]
        count = sum(len(experiment_of(cell).data.questions) for cell in cells)
        rows.append((stage, len(cells), count, *_figures(Estimated.sum(numbers))))
        runs, questions = runs + len(cells), questions + count
        runnable += numbers
        reasons.update(estimate for estimate in estimates if isinstance(estimate, str))
    total = Estimated.sum(runnable)
    rows.append(("all", runs, questions, *_figures(total)))
    terminal.table(("stage", "runs", "questions", *FIGURES), rows)
    terminal.lines(total.lines())
    terminal.lines(
        (f"{count:,} runs are impossible: {reason}" for reason, count in reasons.items()),
        alarm=True,
    )
    terminal.line(
        f"planned with simulated replies to the first {PLANNED_QUESTIONS} questions of each run, times their number"
    )
    return 2 if reasons else 0


def _figures(estimate: Estimated) -> Cells:
    usd = "–" if estimate.usd is None else format_range(estimate.usd, "{:,.2f}")
    tokens = format_range(estimate.tokens, "{:,.0f}")
    return estimate.calls, estimate.new_calls, tokens, format_time(estimate.seconds), usd

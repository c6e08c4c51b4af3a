"""A training as it is planned, and what came of one; all that were trained."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from kgqa.artifacts.trained import KeptTraining, Trained
from kgqa.cli.terminal.console import Terminal
from kgqa.cli.terminal.sections import show_sections
from kgqa.report.training import grid_section, sections
from kgqa.system.hardware import size_text
from kgqa.training.train.planning import TrainPlan, hours_text
from kgqa.training.train.several import CellOutcome


def show_plan(plan: TrainPlan, terminal: Terminal) -> None:
    """Show the first example, then the requirements of the training."""
    for title, text in plan.first_example:
        terminal.show(Rule(title, align="left"))
        terminal.line(text)
    terminal.show(Rule())
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in plan.rows():
        table.add_row(escape(name), escape(value))
    terminal.show(table)
    for warning in plan.warnings:
        terminal.line(warning, alarm=True)
    terminal.line("nothing is trained: dry_run=true")


def show_plans(plans: Sequence[tuple[str, TrainPlan]], terminal: Terminal) -> None:
    """Show the requirements of several trainings by the values that differ, with their sum."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("values", "steps", "memory", "time", ""):
        table.add_column(heading, overflow="fold")
    for name, plan in plans:
        values = dict(plan.rows())
        row = (values["steps"], values.get("memory", ""), values.get("time", ""), "; ".join(plan.warnings))
        table.add_row(escape(name), *map(escape, row))
    terminal.show(table)
    seconds = [taken[0] for _, plan in plans if (taken := plan.seconds()) and not plan.finished]
    if seconds:
        terminal.line(f"{len(plans)} trainings, one after the other: about {hours_text(sum(seconds))}")
    terminal.line("nothing is trained: dry_run=true")


def show_outcomes(outcomes: Sequence[CellOutcome], terminal: Terminal) -> None:
    """Show several trainings, the chosen one first and in full."""
    rows = [(each.cell.values, each.loss, each.error, str(each.cell.folder)) for each in outcomes]
    show_sections("Chosen by held-out loss", [grid_section(rows)], terminal)
    show_trained(outcomes[0].cell.folder, terminal)


def show_trained(folder: Path, terminal: Terminal) -> None:
    """Show the figures of one training; its report has settings and versions."""
    trained = Trained.read(folder)
    shown = [section for section in sections(trained) if section.title not in ("Settings", "Versions")]
    show_sections(f"{trained.name} on {trained.base}", shown, terminal)
    terminal.line(f"report: {folder / 'report.html'}")


def show_list(kept: Sequence[KeptTraining], terminal: Terminal) -> None:
    """Show when each was written, its name, kind and size."""
    if not kept:
        terminal.line("nothing is trained yet; begin with: kgqa train --help")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("written", "name", "base", "examples", "held-out loss", "on disk", ""):
        table.add_column(heading, overflow="fold", no_wrap=heading == "written")
    for one in kept:
        table.add_row(f"{datetime.fromtimestamp(one.written):%Y-%m-%d %H:%M}", escape(one.name), *_format_event(one))
    terminal.show(table)


def _format_event(kept: KeptTraining) -> tuple[str, str, str, str, str]:
    size = size_text(kept.folder)
    if not kept.ended:
        return "", "", "", size, "not ended; its command goes on with it"
    trained = Trained.read(kept.folder)
    before, after = trained.losses.held_out_before, trained.losses.held_out_after
    loss = "" if before is None or after is None else f"{before:.3f} → {after:.3f}"
    return escape(trained.base), f"{trained.examples.count:,}", loss, size, ""

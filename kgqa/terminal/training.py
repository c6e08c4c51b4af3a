"""A training as it is planned, and what came of one; all that were trained."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from kgqa.artefacts.trained import KeptTraining, Trained
from kgqa.experiment.machine.hardware import size_text
from kgqa.experiment.train.choosing import Chosen
from kgqa.experiment.train.planning import Plan, hours_text
from kgqa.report.training import choice_sections, sections
from kgqa.terminal.console import Terminal
from kgqa.terminal.sections import show_sections


def show_plan(plan: Plan, terminal: Terminal) -> None:
    """The first example, prompt and target apart, then what the training takes."""
    for title, text in plan.example:
        terminal.show(Rule(title, align="left"))
        terminal.line(text)
    terminal.show(Rule())
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in plan.rows():
        table.add_row(escape(name), escape(value))
    terminal.show(table)
    for alarm in plan.alarms:
        terminal.line(alarm, alarm=True)
    terminal.line("nothing is trained: dry_run=true")


def show_plans(plans: Sequence[tuple[str, Plan]], terminal: Terminal) -> None:
    """What each of several trainings takes, by the values that differ, and all of them together."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("values", "steps", "memory", "time", ""):
        table.add_column(heading, overflow="fold")
    for name, plan in plans:
        told = {heading: value for heading, value in plan.rows() if heading}
        row = (told["steps"], told.get("memory", ""), told.get("time", ""), "; ".join(plan.alarms))
        table.add_row(escape(name), *map(escape, row))
    terminal.show(table)
    seconds = [taken[0] for _, plan in plans if (taken := plan.seconds()) and not plan.done]
    if seconds:
        terminal.line(f"{len(plans)} trainings, one after the other: about {hours_text(sum(seconds))}")
    terminal.line("nothing is trained: dry_run=true")


def show_choice(chosen: Chosen, terminal: Terminal) -> None:
    show_sections(f"{chosen.record.recipe}: chosen by held-out loss", choice_sections(chosen.record), terminal)
    terminal.line(f"record: {chosen.file}")
    show_trained(chosen.folder, terminal)


def show_trained(folder: Path, terminal: Terminal) -> None:
    """The figures of one; settings and versions are in its report."""
    trained = Trained.read(folder)
    shown = [section for section in sections(trained) if section.title not in ("Settings", "Versions")]
    show_sections(f"{trained.name} on {trained.base}", shown, terminal)
    terminal.line(f"report: {folder / 'report.html'}")


def show_list(kept: Sequence[KeptTraining], terminal: Terminal) -> None:
    """When each was written, its name as it can be typed, what it is and how large."""
    if not kept:
        terminal.line("nothing is trained yet; begin with: kgqa train --help")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("written", "name", "base", "examples", "held-out loss", "on disk", ""):
        table.add_column(heading, overflow="fold", no_wrap=heading == "written")
    for one in kept:
        table.add_row(f"{datetime.fromtimestamp(one.written):%Y-%m-%d %H:%M}", escape(one.name), *_told(one))
    terminal.show(table)


def _told(kept: KeptTraining) -> tuple[str, str, str, str, str]:
    size = size_text(kept.folder)
    if not kept.ended:
        return "", "", "", size, "not ended; its command goes on with it"
    trained = Trained.read(kept.folder)
    before, after = trained.losses.held_out_before, trained.losses.held_out_after
    loss = "" if before is None or after is None else f"{before:.3f} → {after:.3f}"
    return escape(trained.base), f"{trained.examples.count:,}", loss, size, ""

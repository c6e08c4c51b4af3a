"""Output at the end of a reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgqa.cli.terminal.console import Terminal
from kgqa.cli.terminal.sections import show_sections
from kgqa.report.reproduction import build_comparison_sections, differing_section
from kgqa.reproduce.running import Reproduced


def show_reproduction(reproduced: Reproduced, terminal: Terminal) -> int:
    """Print our values beside those published; the folder is the last line. Gives 2 if a cell failed or was left."""
    reproduction = reproduced.reproduction
    if reproduced.results:
        ours = replace(reproduction, lines=[line for line in reproduction.lines if line.ours])
        show_sections(reproduction.heading, build_comparison_sections(ours), terminal)
    show_differing(reproduction.differing, terminal)
    for result in reproduced.results:
        if result.error:
            terminal.line(f"{result.status}: {result.cell.name}: {result.error}", alarm=True)
    terminal.line(f"report: {reproduced.report}")
    terminal.result(reproduced.folder)
    return 0 if reproduced.whole else 2


def show_differing(rows: Sequence[tuple[str, str, str]], terminal: Terminal) -> None:
    """Show the known differences from the paper."""
    if rows:
        section = differing_section(rows)
        show_sections("", [section], terminal)

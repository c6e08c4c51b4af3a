"""Sections of a report as tables in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from kgqa.cli.terminal.console import Terminal
from kgqa.report.content import Section

_FIGURES = "0123456789+-–"  # what a cell begins with that is read as a number
_WARNING = "**Warning**"


def show_sections(title: str, sections: Sequence[Section], terminal: Terminal) -> None:
    """Show sections without interpreting markup in their texts."""
    terminal.line(title, style="bold")
    for section in sections:
        table = Table(show_header=bool(section.header), box=None, padding=(0, 2, 0, 0))
        columns = zip(section.header or ("",) * len(section.rows[0]), zip(*section.rows, strict=True), strict=True)
        for name, cells in columns:
            figures = bool(section.header) and all(cell[:1] in _FIGURES for cell in cells)
            table.add_column(escape(name), justify="right" if figures else "left", overflow="fold")
        for row in section.rows:
            table.add_row(*(escape(cell) for cell in row))
        terminal.line(f"\n{section.title}", style="bold")
        terminal.show(table)
        if section.alarm:
            terminal.line(f"alarm: {section.alarm}", alarm=True)
        for text in section.text:
            terminal.line(text.replace("**", ""), style="red" if text.startswith(_WARNING) else "dim")

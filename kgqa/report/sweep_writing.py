"""`kgqa report SWEEP`: a sweep's report as HTML, Markdown, CSV or LaTeX, at any time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kgqa.report.columns import COLUMNS
from kgqa.report.latex import escape_latex, render_styled_table
from kgqa.report.markdown import table as markdown_table
from kgqa.report.notices import notices
from kgqa.report.packing import pack_line
from kgqa.report.page import page
from kgqa.report.plots import svg
from kgqa.report.splits import HEADER as KNOWN_HEADER
from kgqa.report.splits import NOTE as KNOWN
from kgqa.report.spreadsheet import csv_text
from kgqa.report.sweeps import Entry, SweepReport, SweepTable, tables
from kgqa.util.fs import replace_file

NOTE = (
    "Scores in percent with 95 % bootstrap intervals over questions; best **bold**, second <u>underlined</u>. "
    "* significantly below the best of its column (paired test over the same questions, p < 0.05 after Holm's "
    "correction over the column). Costs are as if nothing had been cached."
)


def sweep_markdown(report: SweepReport, out: Path) -> str:
    told = [f"> {notice}\n" for notice in _notices(report)]
    parts = [f"# {_plain(report.title)}\n", f"`{' '.join(report.command)}`\n", *told, f"{NOTE}\n"]
    for table in tables(report):
        parts += [f"## {_plain(table.title)}\n", _markdown_table(table, out)]
        if table.known:
            parts += [f"{KNOWN}\n", markdown_table(("cell", *KNOWN_HEADER), table.known)]
    if failures := report.failures():
        parts += ["## Cells without figures\n", markdown_table(("cell", "settings", "status", "why"), failures)]
    if report.differing:
        parts += ["## Settings that differ\n", markdown_table(("key", "values"), _differing(report))]
    return "\n".join(parts)


def sweep_latex(report: SweepReport, out: Path) -> str:  # noqa: ARG001 - LaTeX has no links
    """Return tables alone (package booktabs)."""
    written = ["% needs \\usepackage{booktabs}\n"]
    for table in tables(report):
        rows = [(str(cell.number), *map(_latex_entry, entries)) for cell, entries in table.rows]
        written.append(render_styled_table(f"{report.title} on {table.title}", table.header, rows))
    return "\n".join(written)


def sweep_csv(report: SweepReport, out: Path) -> str:  # noqa: ARG001
    """Return a line a cell, in cell order, with figures as numbers: a score has columns for the ends of its interval.

    What a spreadsheet would take for a formula begins with ', see `kgqa.report.spreadsheet`.
    """
    scores = [column for column in COLUMNS if column.shares]
    ends = [f"{column.label} {end}" for column in scores for end in ("low", "high")]
    rows: list[list[object]] = [
        ["cell", "name", *report.axes, "status", "questions", *(c.label for c in COLUMNS), *ends, "run"]
    ]
    for cell in report.cells:
        metrics = cell.run.metrics if cell.run else None
        figures = {column.label: column.of(metrics) if metrics else None for column in COLUMNS}
        values = [figure.value if figure else None for figure in figures.values()]
        bounds = [getattr(figures[column.label], end, None) for column in scores for end in ("low", "high")]
        axes = [cell.overrides.get(axis) for axis in report.axes]
        count = metrics.questions if metrics else None
        run = str(cell.run.folder) if cell.run else None
        rows.append([cell.number, cell.name, *axes, cell.status, count, *values, *bounds, run])
    return csv_text(rows)


def sweep_html(report: SweepReport, out: Path) -> str:
    from markupsafe import Markup

    shown = tables(report)
    links = {cell.number: _link(cell.run.folder, out) for cell in report.cells if cell.run}
    return page(
        "sweep.html.j2",
        ["report.css", "sweep.css"],
        ["tables.js", "unpacking.js", "matrix.js"],
        report=report,
        tables=shown,
        plots=[Markup(svg(table.plot)) if table.plot else None for table in shown],  # noqa: S704 - escaped by svg
        matrices=[pack_line(table.matrix.json(links)) for table in shown],
        notices=_notices(report),
        links=links,
        differing=_differing(report),
        known=(KNOWN, KNOWN_HEADER),
        note=NOTE.replace("**", "").replace("<u>", "").replace("</u>", ""),
    )


SWEEP_WRITERS: Mapping[str, tuple[str, Callable[[SweepReport, Path], str]]] = {
    "html": ("report.html", sweep_html),
    "md": ("report.md", sweep_markdown),
    "csv": ("report.csv", sweep_csv),
    "latex": ("report.tex", sweep_latex),
}


def write_sweep_report(path: Path, form: str, out: Path | None = None, plotted: str | None = None) -> Path:
    """Write one of `SWEEP_WRITERS`, by default into the sweep's folder, with a score plotted; gives the file.

    Raises:
        DataError: not a sweep's folder, or a run in it is damaged.
        StorageError: the file cannot be written.
    """
    name, write = SWEEP_WRITERS[form]
    target = out or path / name
    return replace_file(target, write(SweepReport.read(path, plotted), target))


def _markdown_table(table: SweepTable, out: Path) -> str:
    rows = [
        (
            f"[{cell.number}]({_link(cell.run.folder, out)})" if cell.run else str(cell.number),
            *map(_markdown_entry, entries),
        )
        for cell, entries in table.rows
    ]
    return markdown_table(table.header, rows)


def _markdown_entry(entry: Entry) -> str:
    star = "\\*" if entry.worse else ""
    match entry.mark:
        case "best":
            return f"**{entry.text}**{star}"
        case "second":
            return f"<u>{entry.text}</u>{star}"
    return f"{entry.text}{star}"


def _latex_entry(entry: Entry) -> str:
    text = escape_latex(entry.text) + ("$^*$" if entry.worse else "")
    return rf"\{'textbf' if entry.mark == 'best' else 'underline'}{{{text}}}" if entry.mark else text


def _notices(report: SweepReport) -> list[str]:
    """Return each once, with the cells that it is true of."""
    cells: dict[str, list[int]] = {}
    for cell in report.cells:
        for notice in notices(cell.run) if cell.run else ():
            cells.setdefault(notice, []).append(cell.number)
    return [
        notice if len(told) == len(report.cells) else f"{notice} ({_numbers(told)})" for notice, told in cells.items()
    ]


def _differing(report: SweepReport) -> list[tuple[str, str]]:
    return [
        (key, "; ".join(f"{value} ({_numbers(cells)})" for value, cells in values)) for key, values in report.differing
    ]


def _numbers(cells: Sequence[int]) -> str:
    shown = ", ".join(map(str, cells[:12]))
    return f"cell {shown}{' …' if len(cells) > 12 else ''}"


def _link(run: Path, out: Path) -> str:
    """From the file to a cell's own report."""
    return Path(os.path.relpath(run / "report.html", out.parent)).as_posix()


def _plain(text: str) -> str:
    return " ".join(text.split())

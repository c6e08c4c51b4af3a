"""A reproduction as Markdown, as one HTML file that needs no network, and as LaTeX tables (package booktabs)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from kgqa.report.latex import table as latex_table
from kgqa.report.markdown import document
from kgqa.report.page import page
from kgqa.report.plots import svg
from kgqa.report.reproduction import Reproduction, build_comparison_sections, plots, sections
from kgqa.util.fs import json_text, replace_file


def write_reproduction(table: Reproduction, folder: Path) -> Path:
    """Return report.md, .html, .tex, table.json and a figure's plots as .svg; gives the HTML file."""
    drawn = plots(table)
    for number, plot in enumerate(drawn, 1):
        replace_file(folder / f"plot{number}.svg", f"{svg(plot)}\n")
    pictures = [f"![{plot.title}](plot{number}.svg)\n" for number, plot in enumerate(drawn, 1)]
    replace_file(folder / "report.md", "\n".join([document(table.heading, sections(table)), *pictures]))
    replace_file(folder / "report.tex", _latex(table))
    replace_file(folder / "table.json", json_text(asdict(table)))
    return replace_file(folder / "report.html", _html(table))


def _latex(table: Reproduction) -> str:
    tables = [
        latex_table(f"{table.heading}: {section.title}", section.header, section.rows)
        for section in build_comparison_sections(table)
    ]
    return "% needs \\usepackage{booktabs}\n\n" + "\n".join(tables)


def _html(table: Reproduction) -> str:
    from markupsafe import Markup

    return page(
        "reproduction.html.j2",
        ["report.css", "reproduction.css"],
        ["tables.js"],
        table=table,
        sections=sections(table),
        compared=[section.title for section in build_comparison_sections(table)],
        plots=[(plot.title, Markup(svg(plot))) for plot in plots(table)],  # noqa: S704 - escaped by svg
    )

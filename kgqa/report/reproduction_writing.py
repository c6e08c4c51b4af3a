"""A reproduction as Markdown, as one HTML file that needs no network, and as LaTeX tables (package booktabs)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from kgqa.report.latex import table as latex_table
from kgqa.report.markdown import document
from kgqa.report.page import page
from kgqa.report.plots import svg
from kgqa.report.reproduction import Reproduction, compared_sections, plots, sections
from kgqa.storage import json_text, replace_file


def write_reproduction(found: Reproduction, folder: Path) -> Path:
    """report.md, .html, .tex, table.json and a figure's plots as .svg; gives the HTML file."""
    drawn = plots(found)
    for number, plot in enumerate(drawn, 1):
        replace_file(folder / f"plot{number}.svg", f"{svg(plot)}\n")
    pictures = [f"![{plot.title}](plot{number}.svg)\n" for number, plot in enumerate(drawn, 1)]
    replace_file(folder / "report.md", "\n".join([document(found.heading, sections(found)), *pictures]))
    replace_file(folder / "report.tex", _latex(found))
    replace_file(folder / "table.json", json_text(asdict(found)))
    return replace_file(folder / "report.html", _html(found))


def _latex(found: Reproduction) -> str:
    tables = [
        latex_table(f"{found.heading}: {section.title}", section.header, section.rows)
        for section in compared_sections(found)
    ]
    return "% needs \\usepackage{booktabs}\n\n" + "\n".join(tables)


def _html(found: Reproduction) -> str:
    from markupsafe import Markup

    return page(
        "reproduction.html.j2",
        ["report.css", "reproduction.css"],
        ["tables.js"],
        found=found,
        sections=sections(found),
        compared=[section.title for section in compared_sections(found)],
        plots=[(plot.title, Markup(svg(plot))) for plot in plots(found)],  # noqa: S704 - escaped by svg
    )

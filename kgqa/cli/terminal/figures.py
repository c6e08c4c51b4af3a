"""Figures of triples and of passage graphs, as tables; the folder that they are about comes last."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from kgqa.cli.terminal.console import Terminal
from kgqa.experiment.prepare.graph_quality import QualityCurve, quality_rows
from kgqa.types import Json

# of KGP's Table 3: documents, passages, edges, words a passage, density
_COLLECTIONS: dict[str, tuple[float, ...]] = {
    "hotpotqa": (12, 715.22, 70420.68, 37.55, 0.23),
    "iirc": (12, 1120.55, 143136.17, 37.24, 0.20),
    "2wiki": (12, 294.19, 19235.15, 37.24, 0.27),
    "musique": (12, 748.04, 97931.28, 38.56, 0.29),
}


def show_figures(
    columns: tuple[str, str], figures: Mapping[str, Json], terminal: Terminal, title: str | None = None
) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for key, value in figures.items():
        if key != "folder":
            table.add_row(key.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    terminal.console.print(table)
    terminal.line(str(figures["folder"]))


def show_collections(figures: Mapping[str, Json], dataset: str, title: str, terminal: Terminal) -> None:
    """Show means of a collection, next to the paper's for its datasets."""
    paper = _COLLECTIONS.get(dataset)
    published = dict(zip(("documents", "passages", "edges", "passage_words", "density"), paper or (), strict=False))
    table = Table("", "here", *(["KGP, Table 3 (TAGME)"] if paper else []), title=title, title_justify="left")
    for key, value in figures.items():
        if key != "folder":
            shown = "–" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
            beside = [f"{published[key]:,}" if key in published else ""] if paper else []
            table.add_row(key.replace("_", " "), shown, *beside)
    terminal.console.print(table)
    terminal.line(str(figures["folder"]))


def show_quality(curve: QualityCurve, terminal: Terminal) -> None:
    reached = "neighbours of the seeds" if curve.count == "neighbours" else "seeds and their neighbours"
    title = f"{curve.dataset}-{curve.graph}: {reached} (KGP, Figs. 5, 9)"
    header, *rows = quality_rows(curve)
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    terminal.console.print(table)

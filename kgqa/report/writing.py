"""`kgqa report`: a finished run's report as HTML, Markdown, CSV or LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kgqa.artefacts.run import FinishedRun
from kgqa.report.html import html
from kgqa.report.latex import latex
from kgqa.report.markdown import markdown
from kgqa.report.questions import questions_csv
from kgqa.storage import replace_file

WRITERS: Mapping[str, tuple[str, Callable[[FinishedRun], str]]] = {
    "html": ("report.html", html),
    "md": ("report.md", markdown),
    "csv": ("report.csv", questions_csv),
    "latex": ("report.tex", latex),
}


def write_report(folder: Path, form: str, out: Path | None = None, against: Path | None = None) -> Path:
    """Write one of `WRITERS`, by default into the run's folder; gives the file.

    `against`: the folder of another run; the page with both is a file of its own, against-<its name>.html.

    Raises:
        DataError: not the folder of a run that ended.
        StorageError: the file cannot be written.
    """
    name, write = WRITERS[form]
    run, other = FinishedRun.read(folder), FinishedRun.read(against) if against else None
    if other:
        name = f"against-{other.folder.resolve().name}.html"
    return replace_file(out or folder / name, html(run, other) if other else write(run))

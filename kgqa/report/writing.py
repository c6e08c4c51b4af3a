"""`kgqa report`: a finished run's report as HTML, Markdown, CSV or LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kgqa.artifacts.run import FinishedRun
from kgqa.report.html import PAGE, GatheredQuestions, html
from kgqa.report.latex import latex
from kgqa.report.markdown import markdown
from kgqa.report.questions import questions_csv
from kgqa.util.fs import replace_file_parts

WRITERS: Mapping[str, tuple[str, Callable[[FinishedRun], str | Iterable[str]]]] = {
    "html": ("report.html", html),
    "md": ("report.md", markdown),
    "csv": ("report.csv", questions_csv),
    "latex": ("report.tex", latex),
}


def write_page(folder: Path, gathered: GatheredQuestions) -> Path:
    """Return the HTML page of a run that has just ended, of whose questions each was gathered; as `write_report`
    writes it.
    """
    return replace_file_parts(folder / WRITERS["html"][0], html(FinishedRun.read(folder), gathered=gathered))


def write_report(
    folder: Path, form: str, out: Path | None = None, against: Path | None = None, megabytes: float = PAGE
) -> Path:
    """Write one of `WRITERS`, by default into the run's folder; gives the file.

    against: the folder of another run; the page with both is a file of its own, against-<its name>.html.
    megabytes: how large the HTML page may be.

    Raises:
        DataError: not the folder of a run that ended.
        StorageError: the file cannot be written.
    """
    name, write = WRITERS[form]
    run, other = FinishedRun.read(folder), FinishedRun.read(against) if against else None
    if other:
        name = f"against-{other.folder.resolve().name}.html"
    written = html(run, other, megabytes) if form == "html" else write(run)
    return replace_file_parts(out or folder / name, [written] if isinstance(written, str) else written)

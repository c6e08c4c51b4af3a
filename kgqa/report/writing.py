"""`kgqa report`: a finished run's report as HTML, Markdown, CSV or LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kgqa.errors import ConfigError, DataError
from kgqa.report.arguments import Parser
from kgqa.report.content import FinishedRun
from kgqa.report.html import html
from kgqa.report.latex import latex
from kgqa.report.markdown import markdown
from kgqa.report.questions import questions_csv
from kgqa.report.sweep_writing import write_sweep_report
from kgqa.runtime.sweep_folder import SWEEP
from kgqa.storage import replace_file

WRITERS: Mapping[str, tuple[str, Callable[[FinishedRun], str]]] = {
    "html": ("report.html", html),
    "md": ("report.md", markdown),
    "csv": ("report.csv", questions_csv),
    "latex": ("report.tex", latex),
}


def report(arguments: Sequence[str]) -> int:
    """Write one report and print where it is.

    Raises:
        ConfigError: the command line is not understood.
        DataError: not the folder of a run that ended.
    """
    parser = Parser("kgqa report", description="Write the report of a finished run again, or in another form.")
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder that kgqa run printed; with -m it is a sweep")
    parser.add_argument(
        "--format", choices=list(WRITERS), default="html",
        help="html: tables and trace explorer; md, latex: the tables; csv: one line a question",
    )  # fmt: skip
    parser.add_argument(
        "--against", metavar="RUN", type=Path,
        help="html: another run on the same questions; its answers stand beside, those that flipped are a filter",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", type=Path, help="instead of report.html (.md, .csv, .tex) in RUN")
    given = parser.parse_args(arguments)
    if given.against and (given.format != "html" or (given.run / SWEEP).is_file()):
        raise ConfigError("--against: only a run's HTML report stands against another run; leave --format away")
    if (given.run / SWEEP).is_file():
        print(write_sweep_report(given.run, given.format, given.out))  # noqa: T201
        return 0
    print(write_report(given.run, given.format, given.out, given.against))  # noqa: T201 - what the command is for
    return 0


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
    try:
        text = html(run, other) if other else write(run)
    except KeyError as missing:
        raise DataError(
            f"{folder}: written by another version of kgqa ({missing} is missing); run the same command again"
        ) from missing
    return replace_file(out or folder / name, text)

"""`kgqa report`: the report of a finished run or sweep, in several formats, also for other programs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.cli.parsing import RUN, Parser, rows
from kgqa.errors import ConfigError, DataError
from kgqa.util.terminal_text import escape_control

NAME = "report"
SUMMARY = "write a report as HTML, Markdown, CSV or LaTeX, or export a run for other programs"
PLOTTED = ("EM", "F1", "containment", "judge", "support recall")
REPORTS = {
    "html": "tables and trace explorer (default)",
    "md": "the tables as Markdown",
    "csv": "one line per question",
    "latex": "the tables as LaTeX",
}
EXPORTS = {
    "jsonl": "predictions and calls, one row per line",
    "eee": "Every Eval Ever 0.3.0: scores with intervals, and one line per question with its messages",
    "otlp": "one trace per question in OTLP/JSON with OpenInference's names: for Phoenix, MLflow, Langfuse",
    "trec": "run.trec and qrels.trec: only ids and ranks",
    "card": "the rows of jsonl and a README.md for the Hugging Face Hub",
}
NOTES = """\
All exports except trec contain questions, gold answers, passages and prompts. Keep them as private as your documents.
They contain no key, no password and no command line. docs/SHARING.md lists the programs that read them."""


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN", f"{RUN}; or a sweep")
    parser.add_argument(
        "--format", metavar="FORM", choices=(*REPORTS, *EXPORTS), default="html",
        help=f"a report: {', '.join(REPORTS)}; an export into a new folder: {', '.join(EXPORTS)} (default: html)",
    )  # fmt: skip
    parser.add_argument("--open", action="store_true", help="only open the HTML report in the browser")
    parser.add_argument(
        "--against", metavar="RUN", help="html: show the answers of another run on the same questions next to these"
    )
    parser.add_argument(
        "--megabytes", metavar="N", type=int,
        help="html: maximum size of the page (default: 20); calls of failed, disputed and marked questions come first",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="PATH", type=Path,
        help="output file (default: report.html, .md, .csv or .tex in RUN); for an export a new or empty folder",
    )  # fmt: skip
    parser.add_argument(
        "--score", metavar="NAME", choices=PLOTTED, help=f"sweep: the score plotted against cost: {', '.join(PLOTTED)}"
    )
    parser.notes = f"formats:\n{rows({**REPORTS, **EXPORTS}.items())}\n\n{NOTES}"
    parser.examples = (
        "kgqa report last --open",
        "kgqa report last --format latex",
        "kgqa report last --format otlp --out spans",
        "kgqa report outputs/sweeps/NAME --score F1",
    )


def run(given: Namespace) -> int:
    from kgqa.artifacts.runs import find_run
    from kgqa.artifacts.sweep import SWEEP
    from kgqa.report.exporting import write_export
    from kgqa.report.html import PAGE
    from kgqa.report.sweep_writing import write_sweep_report
    from kgqa.report.writing import write_report

    if given.format in EXPORTS and given.out is None:
        raise given.parser.missing("--out DIR")
    is_export = given.format in EXPORTS
    folder = find_run(given.places[0], sweeps=not is_export)
    is_sweep = (folder / SWEEP).is_file()
    _check(given, is_sweep=is_sweep)
    if given.open:
        return _open(folder, given.places[0])
    if is_export:
        written = write_export(folder, given.out, given.format)
    elif is_sweep:
        written = [write_sweep_report(folder, given.format, given.out, given.score)]
    else:
        against = find_run(given.against) if given.against else None
        written = [write_report(folder, given.format, given.out, against, given.megabytes or PAGE)]
    for path in written:
        print(escape_control(str(path)))
    return 0


def _check(given: Namespace, *, is_sweep: bool) -> None:
    """Raise a ConfigError for options that do not go together."""
    for option in ("against", "megabytes"):
        if getattr(given, option) is not None and (given.format != "html" or is_sweep):
            raise ConfigError(f"--{option}: only for the HTML report of a run; leave it out")
    if given.megabytes is not None and given.megabytes < 1:
        raise ConfigError(f"--megabytes {given.megabytes}: must be at least 1")
    if given.score and not is_sweep:
        raise ConfigError("--score: only for the report of a sweep; leave it out")


def _open(folder: Path, name: str) -> int:
    import webbrowser

    report = folder / "report.html"
    if not report.is_file():
        raise DataError(f"{report}: no such file; kgqa report {name} writes it when the run has finished")
    webbrowser.open(report.resolve().as_uri())  # does nothing if there is no browser
    print(escape_control(str(report)))
    return 0

"""`kgqa report`: the report of a finished run or sweep, again or in another form."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import RUN, Parser
from kgqa.errors import ConfigError
from kgqa.inert import inert

NAME = "report"
SUMMARY = "a run's or sweep's report as HTML, Markdown, CSV or LaTeX"
PLOTTED = ("EM", "F1", "containment", "judge", "support recall")


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN", f"{RUN}; or a sweep")
    parser.add_argument(
        "--format", choices=("html", "md", "csv", "latex"), default="html",
        help="html (the default): tables and trace explorer; md, latex: the tables; csv: one line a question",
    )  # fmt: skip
    parser.add_argument(
        "--against", metavar="RUN",
        help="html: another run on the same questions; its answers stand beside, those that flipped are a filter",
    )  # fmt: skip
    parser.add_argument(
        "--megabytes", metavar="N", type=int,
        help="html: how large the page may be (20); without room for all calls it holds those of failed, disputed "
        "and flagged questions first, then of a sample",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", type=Path, help="instead of report.html (.md, .csv, .tex) in RUN")
    parser.add_argument(
        "--score", metavar="NAME", choices=PLOTTED, help=f"a sweep's: what stands against cost: {', '.join(PLOTTED)}"
    )
    parser.examples = ("kgqa report last --format latex", "kgqa report outputs/sweeps/NAME --score F1")


def run(given: Namespace) -> int:
    from kgqa.artefacts.runs import find_run
    from kgqa.artefacts.sweep import SWEEP
    from kgqa.report.html import PAGE
    from kgqa.report.sweep_writing import write_sweep_report
    from kgqa.report.writing import write_report

    folder = find_run(given.places[0], sweeps=True)
    sweep = (folder / SWEEP).is_file()
    if given.against and (given.format != "html" or sweep):
        raise ConfigError("--against: only a run's HTML report stands against another run; leave --format away")
    if given.megabytes is not None and (given.format != "html" or sweep):
        raise ConfigError("--megabytes: only a run's HTML report has a size to keep to; leave it away")
    if given.megabytes is not None and given.megabytes < 1:
        raise ConfigError(f"--megabytes {given.megabytes}: must be at least 1")
    if given.score and not sweep:
        raise ConfigError("--score: only a sweep's report has a plot of score against cost; leave it away")
    if sweep:
        print(inert(str(write_sweep_report(folder, given.format, given.out, given.score))))
    else:
        against = find_run(given.against) if given.against else None
        written = write_report(folder, given.format, given.out, against, given.megabytes or PAGE)
        print(inert(str(written)))
    return 0

"""`kgqa open`: a report in the browser."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import RUN, Parser
from kgqa.errors import DataError
from kgqa.inert import inert

NAME = "open"
SUMMARY = "a run's or sweep's report in the browser"


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN", f"{RUN}; or a sweep")
    parser.examples = ("kgqa open last", "kgqa open demo/trace")


def run(given: Namespace) -> int:
    import webbrowser

    from kgqa.artefacts.runs import find_run

    report = find_run(given.places[0], sweeps=True) / "report.html"
    if not report.is_file():
        raise DataError(f"{report}: no such file; kgqa report {given.places[0]} writes it once the run has ended")
    webbrowser.open(report.resolve().as_uri())  # does nothing where there is no browser
    print(inert(str(report)))
    return 0

"""`kgqa export`: a finished run for other programs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import RUN, Parser
from kgqa.inert import inert

NAME = "export"
SUMMARY = "a run's predictions and calls for other programs, a row a line (JSONL)"


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN", RUN)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="a folder that is empty or not there")
    parser.examples = ("kgqa export last --out exported",)


def run(given: Namespace) -> int:
    from kgqa.artefacts.runs import find_run
    from kgqa.report.exporting import write_export

    for place in write_export(find_run(given.places[0]), given.out):
        print(inert(str(place)))
    return 0

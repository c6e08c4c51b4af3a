"""`kgqa index`: what a run searches."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser

NAME = "index"
SUMMARY = "build: index a dataset's corpus ahead of a run, which builds a small one itself; check: is it whole"


def arguments(parser: Parser) -> None:
    build = parser.command("build", "index a dataset's corpus; goes on from what is there")
    check = parser.command("check", "every file against its hash, and whether passages are found again")
    for each in (build, check):
        each.takes_keys()
        each.examples = (f"{each.prog} dataset=demo retriever=bm25",)
    parser.examples = build.examples


def run(given: Namespace) -> int:
    from kgqa.experiment.prepare.indexes import build_index, check_index

    return {"build": build_index, "check": check_index}[given.action](given.overrides)

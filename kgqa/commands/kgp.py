"""`kgqa kgp`: what KGP's agent is trained with."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import Parser

NAME = "kgp"
SUMMARY = "export-instructions: training texts for KGP's agent, as JSON lines"


def arguments(parser: Parser) -> None:
    export = parser.command(
        "export-instructions", "a line for each fact but the first: question and facts so far, then the fact"
    )
    export.takes_keys()
    export.add_argument("--out", metavar="FILE", type=Path, help="without it, standard output")
    parser.examples = export.examples = ("kgqa kgp export-instructions dataset=hotpotqa --out instructions.jsonl",)


def run(given: Namespace) -> int:
    from kgqa.experiment.collect.instructions import export_instructions

    return export_instructions(given.overrides, given.out)

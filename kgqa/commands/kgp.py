"""`kgqa kgp`: what KGP's agent is trained with."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import Parser
from kgqa.inert import inert, inert_json

NAME = "kgp"
SUMMARY = "export-instructions: training texts for KGP's agent"


def arguments(parser: Parser) -> None:
    export = parser.command(
        "export-instructions", "a line for each fact but the first: question and facts so far, then the fact"
    )
    export.takes_keys()
    export.add_argument("--out", metavar="FILE", type=Path, help="without it, standard output")
    parser.examples = export.examples = ("kgqa kgp export-instructions dataset=hotpotqa --out instructions.jsonl",)


def run(given: Namespace) -> int:
    from kgqa.experiment.collect.instructions import instructions
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.storage import replace_file

    texts = instructions(Experiment.of(["method=kgp", *given.overrides]))
    lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in texts.lines]
    if given.out:
        replace_file(given.out, "".join(lines))
    else:
        sys.stdout.writelines(map(inert_json, lines))
    counts = [f"{len(lines):,} lines from {texts.questions:,} questions"]
    if texts.left_out:
        counts.append(f"{texts.left_out:,} left out, which name fewer than two facts in order")
    print(inert("; ".join(counts)), file=sys.stderr)
    return 0

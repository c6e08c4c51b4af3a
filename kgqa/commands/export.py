"""`kgqa export`: a finished run for other programs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import RUN, Parser, rows
from kgqa.inert import inert

NAME = "export"
SUMMARY = "a run for other programs: rows, Every Eval Ever, OpenTelemetry, TREC, a dataset card"
HOLDS = {
    "jsonl": "predictions and calls, a row a line",
    "eee": "Every Eval Ever 0.3.0: scores with their intervals, and a line a question with its messages",
    "otlp": "a trace a question in OTLP/JSON with OpenInference's names: for Phoenix, MLflow, Langfuse",
    "trec": "run.trec and qrels.trec: ids and ranks alone",
    "card": "the rows of jsonl and a README.md for the Hugging Face Hub",
}
NOTES = """\
All but trec hold questions, gold answers, passages and prompts as they are: where documents are private, so is
what is exported. No key or password is in it, nor the command with its paths. What reads each: docs/SHARING.md"""


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN", RUN)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="a folder that is empty or not there")
    parser.add_argument(
        "--format",
        metavar="FORM",
        choices=tuple(HOLDS),
        default="jsonl",
        help=f"{', '.join(HOLDS)}; jsonl unless given",
    )
    parser.notes = f"forms:\n{rows(HOLDS.items())}\n\n{NOTES}"
    parser.examples = (
        "kgqa export last --out exported",
        "kgqa export last --format otlp --out spans",
        "kgqa export last --format trec --out trec",
    )


def run(given: Namespace) -> int:
    from kgqa.artefacts.runs import find_run
    from kgqa.report.exporting import write_export

    for place in write_export(find_run(given.places[0]), given.out, given.format):
        print(inert(str(place)))
    return 0

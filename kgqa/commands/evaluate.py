"""`kgqa evaluate`: answers that are there already, scored again or by a judge."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import Parser, refuse_other_keys
from kgqa.errors import ConfigError

NAME = "evaluate"
SUMMARY = "score a run again, or predictions of others: every profile, by hops and type; judge= asks a judge"
OF_SCORES = ("profile", "judge", "model", "engine", "roles", "seed", "width", "out")
OF_QUESTIONS = ("dataset", "limit", "ids")


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN|FILE", "a run's folder; with --predictions a file of predictions")
    parser.takes_keys(f"of {', '.join(OF_SCORES)}; with --predictions also {', '.join(OF_QUESTIONS)}")
    parser.add_argument(
        "--predictions", action="store_true",
        help="the place is a file that another program wrote: HotpotQA's, 2Wiki's or MuSiQue's form, or JSON lines",
    )  # fmt: skip
    parser.add_argument("--subset", action="store_true", help="score only the questions that the file has")
    parser.examples = (
        "kgqa evaluate outputs/demo/trace/smollm2_135m/beeb5e9d judge=three_way",
        "kgqa evaluate --predictions predictions.json dataset=hotpotqa",
    )


def run(given: Namespace) -> int:
    from kgqa.experiment.evaluate.evaluation import evaluate_predictions, evaluate_run
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.sections import show_sections

    if given.subset and not given.predictions:
        raise ConfigError("--subset: goes with --predictions; a run is scored on all of its questions")
    keys = (*OF_SCORES, *OF_QUESTIONS) if given.predictions else OF_SCORES
    refuse_other_keys(given.overrides, keys, given.parser)
    source, terminal = Path(given.places[0]), Terminal(width=120)
    with log_lines(terminal):
        if given.predictions:
            evaluation = evaluate_predictions(source, given.overrides, terminal, subset=given.subset)
        else:
            evaluation = evaluate_run(source, given.overrides, terminal)
    show_sections(evaluation.name, evaluation.sections(), terminal)
    if written := evaluation.write():
        terminal.line(f"evaluation: {written}")
    return 0

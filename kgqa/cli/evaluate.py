"""`kgqa evaluate`: answers that are there already, scored again or by a judge."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.cli.judge import calibrate
from kgqa.cli.parsing import RUN, Parser
from kgqa.errors import ConfigError

NAME = "evaluate"
SUMMARY = "score a run or predictions again, also with a judge; calibrate a judge"
OF_SCORES = (
    "profile",
    "judge",
    "model",
    "engine",
    "roles",
    "seed",
    "max_parallel_questions",
    "out",
    "allow_trained_questions",
)
OF_QUESTIONS = ("dataset", "limit", "sample", "ids")
OF_CALIBRATION = ("human", "other")


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN|FILE", f"{RUN}; with --predictions a file of predictions")
    meaning = f"of {', '.join(OF_SCORES)}; with --predictions also {', '.join(OF_QUESTIONS)}"
    parser.takes_keys(meaning, own=(*OF_SCORES, *OF_QUESTIONS, *OF_CALIBRATION), only=True)
    parser.add_argument(
        "--predictions", action="store_true",
        help="the place is a file that another program wrote: HotpotQA's, 2Wiki's or MuSiQue's form, or JSON lines",
    )  # fmt: skip
    parser.add_argument(
        "--calibrate", action="store_true",
        help="compare the verdicts of a judged run with EM, with human=FILE.csv (question_id, correct) and with "
        "other=RUN|JUDGE, whose model is judge.model=…",
    )  # fmt: skip
    parser.add_argument("--subset", action="store_true", help="score only the questions that the file has")
    parser.examples = (
        "kgqa evaluate last judge=three_way",
        "kgqa evaluate --predictions predictions.json dataset=hotpotqa",
        "kgqa evaluate last --calibrate human=labels.csv other=kgp",
    )


def run(given: Namespace) -> int:
    from kgqa.artifacts.runs import find_run
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.sections import show_sections
    from kgqa.config.overrides import override_group
    from kgqa.experiment.evaluate.evaluation import evaluate_predictions, evaluate_run
    from kgqa.runtime.display import log_lines

    if given.calibrate:
        return calibrate(given)
    for override in given.overrides:
        if override_group(override) in OF_CALIBRATION:
            raise ConfigError(f"{override}: only with --calibrate")
    if given.subset and not given.predictions:
        raise ConfigError("--subset: goes with --predictions; a run is scored on all of its questions")
    of_questions = [override for override in given.overrides if override_group(override) in OF_QUESTIONS]
    if of_questions and not given.predictions:
        raise ConfigError(f"{of_questions[0]}: goes with --predictions; a run says itself which questions it answered")
    place, terminal = given.places[0], Terminal(width=120)
    with log_lines(terminal):
        if given.predictions:
            evaluated = evaluate_predictions(Path(place), given.overrides, terminal, subset=given.subset)
        else:
            evaluated = evaluate_run(find_run(place), given.overrides, terminal)
    show_sections(evaluated.name, evaluated.sections(), terminal)
    if written := evaluated.write():
        terminal.line(f"evaluation: {written}")
    return 0

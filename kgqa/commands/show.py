"""`kgqa show`: what led to a run's answers."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import RUN, Parser
from kgqa.errors import ConfigError

NAME = "show"
SUMMARY = "a run's questions; one question's way to its answer"


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN", RUN)
    parser.takes_places("QUESTION", "the id of one: its passages, triples, chains, prompts and answer", least=0)
    parser.add_argument(
        "--svg",
        metavar="FILE",
        type=Path,
        help="a picture of its walk through the passage graph (KGP)",
    )
    parser.examples = (
        "kgqa show last",
        "kgqa show last 2hop__demo_01",
    )


def run(given: Namespace) -> int:
    from kgqa.artefacts.runs import find_run
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.question import show_question, show_questions

    name, *question = given.places
    if given.svg and not question:
        raise ConfigError("--svg: draws one question's walk; name it: kgqa show RUN QUESTION --svg FILE")
    folder, terminal = find_run(name), Terminal(width=None)
    if question:
        show_question(folder, question[0], given.svg, terminal)
    else:
        show_questions(folder, terminal)
    return 0

"""`kgqa show`: what led to a run's answers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from kgqa.cli.parsing import RUN, Parser
from kgqa.errors import ConfigError

NAME = "show"
SUMMARY = "a run's questions; one question's way to its answer"
SHOWN = 50  # questions, without --limit


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN", RUN)
    parser.takes_places("QUESTION", "the id of one: its passages, triples, chains, prompts and answer", least=0)
    parser.add_argument(
        "--svg",
        metavar="FILE",
        type=Path,
        help="a picture of its walk through the passage graph (KGP)",
    )
    parser.add_argument("--wrong", action="store_true", help="only questions whose answer is no exact match")
    parser.add_argument("--failed", action="store_true", help="only questions that failed")
    parser.add_argument("--limit", metavar="N", type=int, help=f"at most so many questions; {SHOWN} unless given")
    parser.add_argument("--calls", action="store_true", help="with every prompt, and all that was found")
    parser.add_argument("--full", action="store_true", help="the same, with every passage and triple")
    parser.examples = (
        "kgqa show last",
        "kgqa show last --wrong --limit 10",
        "kgqa show last 2hop__demo_01 --calls",
    )


def run(given: Namespace) -> int:
    from kgqa.artifacts.runs import find_run
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.question import Depth, show_question
    from kgqa.cli.terminal.questions import FAILED, WRONG, Choosing, show_questions

    name, *question = given.places
    _check(given, question)
    folder, terminal = find_run(name), Terminal(width=None)
    if question:
        depth: Depth = "full" if given.full else "calls" if given.calls else "brief"
        show_question(folder, question[0], given.svg, depth, terminal)
    else:
        outcomes = frozenset(each for each, wanted in ((WRONG, given.wrong), (FAILED, given.failed)) if wanted)
        show_questions(folder, Choosing(outcomes, given.limit or SHOWN), terminal)
    return 0


def _check(given: Namespace, question: Sequence[str]) -> None:
    of_one = {"--calls": given.calls, "--full": given.full}
    of_all = {"--wrong": given.wrong, "--failed": given.failed, "--limit": given.limit is not None}
    if given.svg and not question:
        raise ConfigError("--svg: draws one question's walk; name it: kgqa show RUN QUESTION --svg FILE")
    for option, wanted in (of_all if question else of_one).items():
        if wanted:
            way_out = f"leave {question[0]} out" if question else f"name one: kgqa show RUN QUESTION {option}"
            raise ConfigError(f"{option}: is about {'a run' if question else 'one question'}; {way_out}")
    if given.limit is not None and given.limit < 1:
        raise ConfigError(f"--limit {given.limit}: must be at least 1")

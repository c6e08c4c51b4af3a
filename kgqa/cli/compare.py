"""`kgqa compare`: who wins where."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.parsing import RUN, Parser
from kgqa.errors import ConfigError

NAME = "compare"
SUMMARY = "runs on the same questions: paired tests, what flipped"
KEYS = ("profile", "seed", "difference")
SHOWN = 10  # flipped questions of a pair, without --all


def arguments(parser: Parser) -> None:
    parser.takes_places("RUN", RUN, least=2, most=26)
    parser.takes_keys("profile= of EM and F1; seed=0 of intervals; difference=2 points that matter", KEYS, only=True)
    parser.add_argument("--common", action="store_true", help="only the questions that all of them have")
    parser.add_argument("--all", action="store_true", help=f"every flipped question, not {SHOWN} of a pair")
    parser.examples = ("kgqa compare demo/trace demo/golden --common",)


def run(given: Namespace) -> int:
    from kgqa.artifacts.runs import find_run
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.sections import show_sections
    from kgqa.config.overrides import override_values
    from kgqa.experiment.evaluate.comparison import ComparisonRequest, compare_answers

    values = override_values(given.overrides)
    try:
        seed, difference = int(values.get("seed", "0")), float(values.get("difference", "2"))
    except ValueError as error:
        raise ConfigError(f"{' '.join(given.overrides)}: seed and difference must be numbers ({error})") from error
    if seed < 0 or not 0 < difference <= 100:
        raise ConfigError(f"seed={seed} difference={difference}: seed from 0, difference above 0 and up to 100 points")
    runs, flips = tuple(map(find_run, given.places)), None if given.all else SHOWN
    comparison = compare_answers(
        ComparisonRequest(runs, values.get("profile"), seed, difference, in_all=given.common, flips=flips)
    )
    show_sections(comparison.heading, comparison.sections, Terminal())
    return 0

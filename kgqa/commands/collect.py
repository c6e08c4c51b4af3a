"""`kgqa collect`: examples to train models on."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from kgqa.commands.parsing import RUN, Parser

NAME = "collect"
SUMMARY = "make examples to train models on, from questions or finished runs"
EXAMPLES = (
    "kgqa collect kgp dataset=hotpotqa,musique dataset.split=train",
    "kgqa collect safe dataset=2wiki collect.teacher=rules limit=200",
    "kgqa collect safe dataset=demo collect.teacher=model roles.teacher=gpt_oss_120b@vllm limit=3 dry_run=true",
    "kgqa collect knowtrace --from last",
)


def arguments(parser: Parser) -> None:
    parser.takes_places("RECIPE", "a choice of collect=, see below")
    parser.takes_keys(
        "as for kgqa run, collect.KEY=VALUE and dataset=A,B: several data sets, limit and sample of each; without "
        "dataset= those of the recipe"
    )
    parser.add_argument(
        "--from", dest="runs", metavar="RUN", action="append", default=[],
        help=f"{RUN}; its replies are the material, of safe that of hard cases; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--review", metavar="CSV", type=Path, help="write a sample of 50 examples for people to judge by hand"
    )
    parser.explain = explain
    parser.examples = EXAMPLES


def explain(words: Sequence[str]) -> str:
    """The recipes, or the keys of the one that is named."""
    from kgqa.commands.configuration import chosen_help
    from kgqa.commands.parsing import rows
    from kgqa.experiment.config.files import groups
    from kgqa.experiment.config.listing import about

    recipes = groups()["collect"]
    if named := [word for word in words if word in recipes]:
        return chosen_help([f"collect={named[0]}"])
    listed = rows((name, about("collect", name).partition(": ")[2] or about("collect", name)) for name in recipes)
    return f"recipes; kgqa collect RECIPE --help shows the keys of one:\n{listed}"


def run(given: Namespace) -> int:
    """The folder is the last line printed."""
    from kgqa.artefacts.runs import find_run
    from kgqa.experiment.collect.collecting import Collecting
    from kgqa.report.examples import example_sections
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.examples import show_example
    from kgqa.terminal.plan import show_plan
    from kgqa.terminal.sections import show_sections

    (name,) = given.places
    terminal = Terminal(width=120)
    with log_lines(terminal):
        collecting = Collecting.of(name, given.overrides, [find_run(run) for run in given.runs])
        if collecting.experiment.settings.dry_run:
            collected, first, asked = collecting.plan(terminal)
            show_example(first, terminal)
            if asked:
                show_plan(asked, sum(len(source.questions) for source in collecting.sources), terminal)
        else:
            words = ["collect", name, *given.overrides, *(word for run in given.runs for word in ("--from", run))]
            collected = collecting.collect(terminal, words)
    show_sections(f"collect {name}", example_sections(collected), terminal)
    if collecting.experiment.settings.dry_run:
        terminal.line("nothing is written: dry_run=true")
        return 0
    if given.review:
        terminal.line(f"review: {collecting.review(given.review)}")
    terminal.result(collecting.stage.path)
    return 0

"""`kgqa collect`: examples to train models on."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from kgqa.cli.parsing import RUN, Parser

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
    """Return the recipes, or the keys of the named one."""
    from kgqa.cli.configuration import explain_choices
    from kgqa.cli.parsing import rows
    from kgqa.config.files import groups
    from kgqa.config.yaml_docs import describe_choice

    recipes = groups()["collect"]
    if named := [word for word in words if word in recipes]:
        return explain_choices([f"collect={named[0]}"])
    listed = rows(
        (name, describe_choice("collect", name).partition(": ")[2] or describe_choice("collect", name))
        for name in recipes
    )
    return f"recipes; kgqa collect RECIPE --help shows the keys of one:\n{listed}"


def run(given: Namespace) -> int:
    """Collect examples and print the folder last."""
    from kgqa.artifacts.runs import find_run
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.examples import show_example
    from kgqa.cli.terminal.plan import show_plan
    from kgqa.cli.terminal.sections import show_sections
    from kgqa.report.examples import example_sections
    from kgqa.runtime.display import log_lines
    from kgqa.training.collect.collecting import Collecting

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

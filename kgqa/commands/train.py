"""`kgqa train`: weights from examples."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from kgqa.commands.parsing import Parser

NAME = "train"
SUMMARY = "train an adapter, a model or an encoder on collected examples"
NOTES = """train.examples= is a number, a folder of kgqa collect, or a file with a line for each example: {"prompt",
"completion"} as the model sees them, or {"anchor", "positive", "negatives"}. dry_run=true shows the first example,
steps, memory and hours. The same command goes on with a training that was interrupted; docs/TRAINING.md."""


def arguments(parser: Parser) -> None:
    parser.takes_places("RECIPE", "a choice of train=, see below")
    parser.takes_keys(
        "train.KEY=VALUE, dry_run=true, tracker=; dataset=, collect.KEY=VALUE and limit= say what is collected"
    )
    parser.explain = explain
    parser.examples = (
        "kgqa train kgp_llama train.base=smollm2_135m train.examples=64 train.epochs=2 dry_run=true",
        "kgqa train safe_evaluator train.max_hours=8",
    )


def explain(words: Sequence[str]) -> str:
    """The recipes, or the keys of the one that is named."""
    from kgqa.commands.configuration import chosen_help
    from kgqa.commands.parsing import rows
    from kgqa.experiment.config.files import groups
    from kgqa.experiment.config.listing import about

    recipes = groups()["train"]
    if named := [word for word in words if word in recipes]:
        return chosen_help([f"train={named[0]}"])
    listed = rows((name, about("train", name)) for name in recipes)
    return f"recipes; kgqa train RECIPE --help shows the keys of one:\n{listed}\n\n{NOTES}"


def run(given: Namespace) -> int:
    """The folder is the last line printed."""
    from kgqa.experiment.train.planning import planned
    from kgqa.experiment.train.preparing import prepared
    from kgqa.experiment.train.request import TrainRequest
    from kgqa.experiment.train.running import train
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.training import show_plan, show_trained

    (recipe,) = given.places
    terminal = Terminal(width=120)
    with log_lines(terminal):
        request = TrainRequest.of(recipe, given.overrides)
        examples = prepared(request, terminal)
        if request.config["dry_run"]:
            show_plan(planned(request, examples), terminal)
            return 0
        folder = train(request, examples, ["train", recipe, *given.overrides], terminal)
    show_trained(folder, terminal)
    terminal.result(folder)
    return 0

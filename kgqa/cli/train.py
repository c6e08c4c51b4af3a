"""`kgqa train`: weights from examples."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgqa.cli.parsing import Parser
from kgqa.config.overrides import parse_override
from kgqa.errors import ConfigError

if TYPE_CHECKING:
    from kgqa.cli.terminal.console import Terminal

NAME = "train"
SUMMARY = "train an adapter, a model or an encoder on collected examples"
NOTES = """train.examples= is a number, a folder of kgqa collect, or a file with a line for each example: {"prompt",
"completion"} as the model sees them, or {"anchor", "positive", "negatives"}. dry_run=true shows the first example,
steps, memory and hours. The same command goes on with a training that was interrupted; docs/TRAINING.md.

With -m, train.KEY=A,B trains once for each value, or combination of values of several keys, and chooses the one with
the lowest held-out loss, which NAME then means. The recipe may be given as train=RECIPE, too.

hydra/launcher=submitit_slurm (submitit_local, joblib, ray) trains in jobs, with -m all at once; hydra.launcher.KEY=…
are its settings, e.g. hydra.launcher.partition=gpu hydra.launcher.gpus_per_node=1 hydra.launcher.timeout_min=600."""


def arguments(parser: Parser) -> None:
    parser.takes_places("RECIPE", "a choice of train=, see below", least=0)
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="several trainings, one of which is chosen by its held-out loss"
    )
    parser.takes_keys(
        "train.KEY=VALUE, dry_run=true, tracker=; dataset=, collect.KEY=VALUE and limit= say what is collected"
    )
    parser.explain = explain
    parser.examples = (
        "kgqa train kgp_llama train.base=smollm2_135m train.examples=64 train.epochs=2 dry_run=true",
        "kgqa train safe_evaluator train.max_hours=8",
        "kgqa train -m knowtrace_explorer train.learning_rate=1e-5,5e-5 train.epochs=1,2,3",
    )


def explain(words: Sequence[str]) -> str:
    """Return the recipes, or the keys of the named one."""
    from kgqa.cli.configuration import explain_choices
    from kgqa.cli.parsing import rows
    from kgqa.config.files import groups
    from kgqa.config.yaml_docs import describe_choice

    recipes = groups()["train"]
    if named := [word for word in words if word in recipes]:
        return explain_choices([f"train={named[0]}"])
    listed = rows((name, describe_choice("train", name)) for name in recipes)
    return f"recipes; kgqa train RECIPE --help shows the keys of one:\n{listed}\n\n{NOTES}"


def run(given: Namespace) -> int:
    """Train and print the folder last."""
    from kgqa.cli.terminal.console import Terminal
    from kgqa.runtime.display import log_lines

    recipe, overrides = _recipe(given)
    terminal = Terminal(width=120)
    with log_lines(terminal):
        return (_several if given.multirun else _one)(recipe, overrides, terminal)


def _one(recipe: str, overrides: Sequence[str], terminal: Terminal) -> int:
    from kgqa.cli.terminal.training import show_plan, show_trained
    from kgqa.training.train.examples import prepare_examples
    from kgqa.training.train.planning import plan_training
    from kgqa.training.train.request import TrainRequest
    from kgqa.training.train.several import split_launcher, train_one

    launcher, words = split_launcher(overrides)
    request = TrainRequest.of(recipe, words)
    examples = prepare_examples(request, terminal)
    if request.config["dry_run"]:
        show_plan(plan_training(request, examples), terminal)
        return 0
    folder = train_one(request, examples, launcher, terminal)
    show_trained(folder, terminal)
    terminal.result(folder)
    return 0


def _several(recipe: str, overrides: Sequence[str], terminal: Terminal) -> int:
    """Train several, and return 2 if one of them failed."""
    from kgqa.cli.terminal.training import show_outcomes, show_plans
    from kgqa.training.train.planning import plan_training
    from kgqa.training.train.several import split_launcher, train_grid, training_grid

    launcher, words = split_launcher(overrides)
    cells = training_grid(recipe, words, terminal)
    if cells[0].request.config["dry_run"]:
        show_plans([(cell.values, plan_training(cell.request, cell.examples)) for cell in cells], terminal)
        return 0
    outcomes = train_grid(cells, launcher, terminal)
    show_outcomes(outcomes, terminal)
    terminal.result(outcomes[0].cell.folder)
    return 2 if any(outcome.error for outcome in outcomes) else 0


def _recipe(given: Namespace) -> tuple[str, list[str]]:
    """Return the recipe and the other words."""
    named = [parse_override(word).value for word in given.overrides if word.startswith("train=")]
    others = [word for word in given.overrides if not word.startswith("train=")]
    recipes = dict.fromkeys([*given.places, *named])
    if not recipes:
        raise given.parser.missing("RECIPE")
    if len(recipes) > 1:
        raise ConfigError(f"{', '.join(recipes)}: one recipe at a time; leave all but one of them out")
    return next(iter(recipes)), others

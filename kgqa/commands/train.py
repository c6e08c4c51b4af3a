"""`kgqa train`: weights from examples."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError

if TYPE_CHECKING:
    from kgqa.terminal.console import Terminal

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
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal

    recipe, overrides = _recipe(given)
    terminal = Terminal(width=120)
    with log_lines(terminal):
        return (_several if given.multirun else _one)(recipe, overrides, terminal)


def _one(recipe: str, overrides: Sequence[str], terminal: Terminal) -> int:
    from kgqa.experiment.train.launching import Launcher, train_one
    from kgqa.experiment.train.planning import planned
    from kgqa.experiment.train.preparing import prepared
    from kgqa.experiment.train.request import TrainRequest
    from kgqa.terminal.training import show_plan, show_trained

    launcher, words = Launcher.of(overrides)
    request = TrainRequest.of(recipe, words)
    examples = prepared(request, terminal)
    if request.config["dry_run"]:
        show_plan(planned(request, examples), terminal)
        return 0
    folder = train_one(request, examples, terminal, launcher)
    show_trained(folder, terminal)
    terminal.result(folder)
    return 0


def _several(recipe: str, overrides: Sequence[str], terminal: Terminal) -> int:
    """Gives 2 if one of them failed."""
    from kgqa.experiment.train.choosing import Trainings, choose
    from kgqa.experiment.train.launching import Launcher
    from kgqa.experiment.train.planning import planned
    from kgqa.terminal.training import show_choice, show_plans

    launcher, words = Launcher.of(overrides)
    trainings = Trainings.of(recipe, words)
    examples = trainings.examples(terminal)
    if trainings.dry_run:
        cells = zip(trainings.cells, examples, strict=True)
        show_plans([(name, planned(request, own)) for (name, request), own in cells], terminal)
        return 0
    chosen = choose(trainings, examples, terminal, launcher)
    show_choice(chosen, terminal)
    terminal.result(chosen.folder)
    return 0 if chosen.whole else 2


def _recipe(given: Namespace) -> tuple[str, list[str]]:
    """The recipe, as a word or as train=RECIPE, and the other words."""
    named = [word.partition("=")[2] for word in given.overrides if word.startswith("train=")]
    others = [word for word in given.overrides if not word.startswith("train=")]
    recipes = dict.fromkeys([*given.places, *named])
    if not recipes:
        raise given.parser.missing("RECIPE")
    if len(recipes) > 1:
        raise ConfigError(f"{', '.join(recipes)}: one recipe at a time; leave all but one of them out")
    return next(iter(recipes)), others

"""`kgqa run`: one experiment, or with -m one for every combination of values."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from kgqa.commands.parsing import Parser

NAME = "run"
SUMMARY = "answer a dataset's questions with a method, and score them"
OF_SWEEP = ("sweep.name", "sweep.metric", "budget", "hydra/launcher", "hydra/sweeper")
SWEEP = """With -m, as a sweep (docs/SWEEPS.md), comma lists, choice(…), range(…) and glob(…) are swept:
  sweep.name=      its folder in outputs/sweeps; else a hash of its cells
  budget=          what the sweep may pay for, e.g. 2.50usd or 500000tokens
  hydra/launcher=  basic, joblib, submitit_local, submitit_slurm, ray; hydra.launcher.KEY=… its settings
  hydra/sweeper=   basic (every combination) or optuna (see docs/SWEEPS.md)"""
ENDING = """Keys of a group are set as group.key=value, e.g. method.beam=3 or dataset.path=FILE; --cfg prints them all
with the values this command line gives. Running the same command again goes on where the last run stopped.
Exit codes: 0 done, 2 something to mend in the command or its files, 3 an engine died, 130 interrupted."""


def arguments(parser: Parser) -> None:
    parser.takes_keys("groups and keys of the experiment, see below", own=OF_SWEEP)
    parser.add_argument(
        "-m", "--multirun", action="store_true",
        help="a sweep: models stay loaded, finished cells are skipped",
    )  # fmt: skip
    parser.add_argument("--cfg", action="store_true", help="only print the configuration, as YAML")
    parser.explain = explain
    parser.examples = (
        "kgqa run method=trace dataset=demo limit=3",
        "kgqa run -m method=trace,ircot dataset=demo limit=8",
    )


def run(given: Namespace) -> int:
    from kgqa.experiment.session.session import print_configuration, run

    if given.cfg:
        print_configuration([override for override in given.overrides if override != "job"])  # as Hydra has it
        return 0
    if given.multirun:
        from kgqa.experiment.sweep.grid import sweep

        return sweep(given.overrides)
    return run(given.overrides)


def explain(words: Sequence[str]) -> str:
    from kgqa.commands.configuration import chosen_help, overview

    return chosen_help(words) or "\n\n".join([overview(), SWEEP, ENDING])

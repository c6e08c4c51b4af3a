"""`kgqa run`: one experiment, or with -m one for every combination of values."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence

from kgqa.commands.parsing import Parser

NAME = "run"
SUMMARY = "answer a dataset's questions with a method and score them; -m: for every combination of values"
SWEEP = """With -m, as a sweep (docs/SWEEPS.md), comma lists, choice(…), range(…) and glob(…) are swept:
  sweep.name=      its folder in outputs/sweeps; else a hash of its cells
  budget=          what the sweep may pay for, e.g. 2.50usd or 500000tokens
  hydra/launcher=  basic, joblib, submitit_local, submitit_slurm, ray; hydra.launcher.KEY=… its settings
  hydra/sweeper=   basic (every combination) or optuna (see docs/SWEEPS.md)"""
ENDING = """Keys of a group are set as group.key=value, e.g. method.beam=3 or dataset.path=FILE; --cfg prints them all
with the values this command line gives. Running the same command again goes on where the last run stopped.
Exit codes: 0 done, 2 something to mend in the command or its files, 3 an engine died, 130 interrupted."""


def arguments(parser: Parser) -> None:
    parser.takes_keys("groups and keys of the experiment, see below")
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
    tell_where_ctrl_c_is_off()
    if given.multirun:
        from kgqa.experiment.sweep.grid import sweep

        return sweep(given.overrides)
    return run(given.overrides)


def tell_where_ctrl_c_is_off() -> None:
    """A shell's script gives what it starts in the background (`kgqa run … &`) an interrupt that is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        stop = f"kill {os.getpid()} stops this run, and what it has answered stays"
        print(f"kgqa: started in the background, where Ctrl-C is switched off; {stop}", file=sys.stderr)


def explain(words: Sequence[str]) -> str:  # noqa: ARG001
    return "\n\n".join([f"Groups, as group=name:\n{_group_lines()}", f"Keys:\n{_key_lines()}", SWEEP, ENDING])


def _group_lines() -> str:
    from kgqa.experiment.config.composing import groups

    return "\n".join(f"  {group:<11} {', '.join(names)}" for group, names in groups().items())


def _key_lines() -> str:
    """The comments of conf/config.yaml, key by key."""
    from kgqa.experiment.config.composing import conf_folder

    text = (conf_folder() / "config.yaml").read_text(encoding="utf-8").split("\n\n", 1)[1]
    return "\n".join(f"  {line}" for line in text.strip().splitlines())

"""`kgqa run`: one experiment, or with -m one for every combination of values."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence

from kgqa.commands.parsing import Parser
from kgqa.inert import inert

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
Exit codes: 0 done, 2 something to mend in the command or its files, or more questions failed than fail_above lets,
3 an engine died, 130 interrupted."""


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
    if given.cfg:
        return print_configuration([override for override in given.overrides if override != "job"])  # as Hydra has it
    tell_where_ctrl_c_is_off()
    return sweep(given.overrides) if given.multirun else run_one(given.overrides)


def print_configuration(overrides: Sequence[str]) -> int:
    """What a command line stands for, as YAML."""
    from kgqa.experiment.config.composing import compose
    from kgqa.experiment.config.files import yaml_text

    sys.stdout.write(inert(yaml_text({key: value for key, value in compose(overrides).items() if key != "choices"})))
    return 0


def run_one(overrides: Sequence[str]) -> int:
    """Run one experiment, or plan it with `dry_run=true`; the run's folder is the last line printed.

    Gives 2 if more questions failed than `fail_above`.
    """
    from kgqa.experiment.run.executing import execute_unless_finished
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.summary import show_summary

    terminal, experiment = Terminal(width=120), Experiment.of(overrides)
    with log_lines(terminal), Session(experiment) as session:
        if experiment.settings.dry_run:
            from kgqa.experiment.run.checking import check
            from kgqa.experiment.run.planning import Shared, planned
            from kgqa.terminal.plan import show_plan

            check(session)
            show_plan(planned(session, Shared()), len(experiment.questions), terminal)
            return 0
        executed = execute_unless_finished(session, terminal)
    show_summary(experiment.choices, executed.metrics, executed.errors, terminal)
    if executed.failure is not None:
        terminal.line(f"kgqa: {executed.failure}; the same command asks what failed again", alarm=True)
    terminal.line(f"report: {executed.folder / 'report.html'}")
    terminal.result(executed.folder)
    return 0 if executed.failure is None else 2


def sweep(overrides: Sequence[str]) -> int:
    """Gives 2 if a cell failed or was not run."""
    from kgqa.experiment.sweep.grid import Grid, run_sweep
    from kgqa.experiment.sweep.request import SweepRequest
    from kgqa.experiment.sweep.search import run_search
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.estimates import show_estimates
    from kgqa.terminal.sweep import show_sweep

    request, terminal = SweepRequest.of(overrides), Terminal()
    if request.sweeper == "optuna":
        return show_sweep(run_search(request, terminal), terminal)
    planned = Grid.of(request)
    if planned.dry_run:
        return show_estimates(planned.cells, terminal, request.budget)
    return show_sweep(run_sweep(planned, request, terminal), terminal)


def tell_where_ctrl_c_is_off() -> None:
    """A shell's script gives what it starts in the background (`kgqa run … &`) an interrupt that is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        stop = f"kill {os.getpid()} stops this run, and what it has answered stays"
        print(inert(f"kgqa: started in the background, where Ctrl-C is switched off; {stop}"), file=sys.stderr)


def explain(words: Sequence[str]) -> str:
    from kgqa.commands.configuration import chosen_help, overview

    return chosen_help(words) or "\n\n".join([overview(), SWEEP, ENDING])

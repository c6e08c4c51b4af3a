"""`kgqa run`: one experiment, or with -m one for every combination of values."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence

from kgqa.cli.parsing import Parser
from kgqa.util.terminal_text import escape_control

NAME = "run"
SUMMARY = "answer a dataset's questions with a method, and score them"
OF_SWEEP = ("sweep.name", "sweep.metric", "budget", "hydra/launcher", "hydra/sweeper")
SWEEP = """With -m, as a sweep (docs/SWEEPS.md), comma lists, choice(…), range(…) and glob(…) are swept:
  sweep.name=      its folder in outputs/sweeps; else a hash of its cells
  budget=          what the sweep may pay for, e.g. 2.50usd or 500000tokens
  hydra/launcher=  basic, joblib, submitit_local, submitit_slurm, ray; hydra.launcher.KEY=… its settings
  hydra/sweeper=   basic (every combination) or optuna (see docs/SWEEPS.md)"""
ENDING = """Keys of a group are set as group.key=value, e.g. method.beam=3 or dataset.path=FILE; --cfg prints them all
with the values of this command line. Run the same command again to continue an interrupted run.
Exit codes: 0 done, 2 invalid input, or more questions failed than max_failure_rate allows, 3 the engine crashed,
130 interrupted."""


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
    """Print the configuration of a command line as YAML."""
    from kgqa.config.composing import compose
    from kgqa.config.files import format_yaml

    sys.stdout.write(
        escape_control(format_yaml({key: value for key, value in compose(overrides).items() if key != "choices"}))
    )
    return 0


def run_one(overrides: Sequence[str]) -> int:
    """Run one experiment, or plan it with `dry_run=true`; the run's folder is the last line."""
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.summary import show_summary
    from kgqa.experiment.run.executing import execute_unless_finished
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines

    terminal, experiment = Terminal(width=120), Experiment.of(overrides)
    with log_lines(terminal), Session(experiment) as session:
        if experiment.settings.dry_run:
            from kgqa.cli.terminal.plan import show_plan
            from kgqa.experiment.run.checking import check
            from kgqa.experiment.run.planning import Shared, plan_calls

            check(session)
            show_plan(plan_calls(session, Shared()), len(experiment.questions), terminal)
            return 0
        executed = execute_unless_finished(session, terminal)
    show_summary(experiment.choices, executed.metrics, executed.errors, terminal)
    if executed.failure is not None:
        terminal.line(f"kgqa: {executed.failure}; the same command asks what failed again", alarm=True)
    terminal.line(f"report: {executed.folder / 'report.html'}")
    terminal.result(executed.folder)
    return 0 if executed.failure is None else 2


def sweep(overrides: Sequence[str]) -> int:
    """Run a sweep; return 2 if a cell failed or was not run."""
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.estimates import show_estimates
    from kgqa.cli.terminal.sweep import show_sweep
    from kgqa.sweeps.grid import Grid, run_sweep
    from kgqa.sweeps.request import SweepRequest
    from kgqa.sweeps.search import run_search

    request, terminal = SweepRequest.of(overrides), Terminal()
    if request.sweeper == "optuna":
        return show_sweep(run_search(request, terminal), terminal)
    planned = Grid.of(request)
    if planned.dry_run:
        return show_estimates(planned.cells, terminal, request.budget)
    return show_sweep(run_sweep(planned, request, terminal), terminal)


def tell_where_ctrl_c_is_off() -> None:
    """Print a note if a script started this process in the background, where Ctrl-C is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        stop = f"kill {os.getpid()} stops this run, and what it has answered stays"
        print(escape_control(f"kgqa: started in the background, where Ctrl-C is switched off; {stop}"), file=sys.stderr)


def explain(words: Sequence[str]) -> str:
    from kgqa.cli.configuration import explain_all, explain_choices

    return explain_choices(words) or "\n\n".join([explain_all(), SWEEP, ENDING])

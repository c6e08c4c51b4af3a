"""`kgqa run`: one experiment. What its first call does not need is imported later."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from kgqa.artifacts.run import MADE_UP, SCRIPTED, choose_named
from kgqa.cli.terminal import Terminal
from kgqa.config.composing import compose
from kgqa.config.files import format_yaml
from kgqa.errors import ConfigError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.run import Executed, execute
from kgqa.experiment.session import Session
from kgqa.runtime.monitor import LOG
from kgqa.util.registry import load_registered
from kgqa.util.text import escape_control, pluralize


def run(args: Namespace, terminal: Terminal) -> int:
    """Run one experiment or a sweep, or print its configuration."""
    if args.cfg:
        config = compose(args.overrides)
        sys.stdout.write(
            escape_control(format_yaml({key: config[key] for key in config if key != "choices"}))
        )
        return 0
    if args.multirun and not args.overrides:
        raise ConfigError(
            "kgqa run -m: nothing to run. Add keys with lists of values, e.g. kgqa run -m method=trace,ircot limit=8"
        )
    if args.multirun or any(override.startswith("repeats=") for override in args.overrides):
        from kgqa.cli.sweep import sweep

        return sweep(args.overrides, terminal)
    return _run_one(args.overrides, terminal, with_prompts=args.prompts)


def _run_one(overrides: Sequence[str], terminal: Terminal, *, with_prompts: bool) -> int:
    """Run one experiment, or plan it with `dry_run=true`. The run's folder is the last line."""
    experiment = compose_experiment(overrides)
    if (repeat := experiment.settings.repeat) > 1:
        terminal.line(
            f"repeat={repeat} runs repetition {repeat} only. For 1 to {repeat}: repeats={repeat}"
        )
    with Session(experiment) as session:
        if experiment.settings.dry_run:
            from kgqa.cli.dry_run import show_gpus, show_plan
            from kgqa.experiment.check import check
            from kgqa.experiment.dry_run import Shared, plan_calls

            show_gpus(experiment.gpu_plan, terminal)
            check(session)
            plan, count = plan_calls(session, Shared()), len(experiment.data.questions)
            show_plan(plan, count, terminal, experiment, with_prompts=with_prompts)
            return 0
        executed = execute(session, terminal)
        if executed.was_finished and experiment.config.get("tracker") is not None:
            load_registered("track_run")(
                experiment, executed.run.folder, executed.run.metrics, terminal
            )
    _show_summary(experiment, executed, terminal)
    folder = executed.run.folder
    code = terminal.end(folder, executed.failure, following=("show", folder))
    return 2 if executed.run.metrics.failed_metrics else code


def _show_summary(experiment: Experiment, executed: Executed, terminal: Terminal) -> None:
    """Show scores in percent with 95 % intervals, then costs and warnings."""
    from kgqa.report.run_report import summary_rows
    from kgqa.report.warnings import find_warnings

    choices, metrics = experiment.choices, executed.run.metrics
    title = " · ".join(choose_named(choices).values())
    for model, calls in metrics.other_models.items():
        line = f"warning: another model answered {pluralize(calls, 'call')}: {model}"
        terminal.line(f"{line}. The run is named after {choices.get('model')}.", alarm=True)
    terminal.lines((f"warning: {text}" for text in find_warnings(executed.run)), alarm=True)
    if executed.judge_warning:
        terminal.line(executed.judge_warning, alarm=True)
    terminal.table((), summary_rows(metrics), title=title)
    if choices.get("engine") == SCRIPTED:
        terminal.line(f"warning: {MADE_UP}", alarm=True)
    if metrics.retrieval and metrics.retrieval.alarm:
        terminal.line(f"alarm: {metrics.retrieval.alarm}", alarm=True)
    if metrics.failed:
        # a line each, so that a narrow terminal does not break a path
        folder = executed.run.folder
        terminal.line(f"failed questions: kgqa show {folder} --failed", alarm=True)
        terminal.line(f"log: {folder / LOG}", alarm=True)
        terminal.line("Run the same command again to retry them.", alarm=True)

"""`kgqa reproduce`: a paper's table or figure, the published values next to ours."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from kgqa.cli.commands import run_command
from kgqa.cli.dry_run import show_estimates, show_stages
from kgqa.cli.terminal import Terminal
from kgqa.errors import ConfigError
from kgqa.report.reproduction import differing_section, only_ours
from kgqa.reproduce.cells import choose_cells
from kgqa.reproduce.running import ReproduceRequest, example_choices, list_tables, run_table
from kgqa.reproduce.trained_models import (
    describe_training,
    find_local,
    format_trained,
    list_missing,
    plan_training,
    train_models,
)


def reproduce(args: Namespace, terminal: Terminal) -> int:
    """List, plan or run the cells of a table."""
    if args.list:
        rows = list_tables(args.positionals[0] if args.positionals else "", args.overrides)
        terminal.table(("id", "cells", "run here", "others", "title"), rows)
        terminal.line(f"with models of your choice: kgqa reproduce --list {example_choices()}")
        return 0
    if not args.positionals:
        raise args.command.missing("ID")
    request = _with_trained(
        ReproduceRequest.of(args.positionals[0], args.overrides), args, terminal
    )
    terminal.line(request.heading)
    if not (args.plan or request.keys.dry_run):
        terminal.lines(request.list_reasons())
        return _run(request, terminal) or (0 if request.cells else 2)
    code = _plan(request, args, terminal)
    terminal.lines(request.list_reasons())
    if not request.cells:
        _show_remedies(request, terminal)
    return code


def _plan(request: ReproduceRequest, args: Namespace, terminal: Terminal) -> int:
    """Show the calls of the cells, and without --plan what differs from the paper. Return 2 if a cell cannot run."""
    if not args.plan and request.protocol:
        raise ConfigError("dry_run=true does not work with protocol=paper. Use --plan")
    code = 2
    if request.cells and args.plan:
        code = show_stages(request.stages(), terminal)
    elif request.cells:
        code = show_estimates(request.cells, terminal)
    if not args.plan:
        _show_differences(request.differences, terminal)
    return code


def _show_remedies(request: ReproduceRequest, terminal: Terminal) -> None:
    """Show why no cell runs, and the commands that download the data or do without it."""
    table = request.table.id
    terminal.line(f"kgqa: {table}: no cell can run here. The reasons are above", alarm=True)
    for name in request.missing_data:
        terminal.line(f"missing data: kgqa data download dataset={name}", alarm=True)
    choices = example_choices()
    terminal.line(f"or, with models of this machine: kgqa reproduce {table} {choices}", alarm=True)


def _with_trained(
    request: ReproduceRequest, args: Namespace, terminal: Terminal
) -> ReproduceRequest:
    """Use models trained here in the cells that need them. Train missing ones, or report how to."""

    def run(words: Sequence[str]) -> int:
        terminal.line(f"→ {shlex.join(('kgqa', *words))}", folds=False)
        return run_command(words, terminal)

    names = list_missing(choose_cells(request.table, request.keys.only), request.overrides)
    here = {} if request.make else find_local(names)  # other keys make another model
    training = plan_training([name for name in names if name not in here], request.make)
    terminal.lines(describe_training(training))
    if args.make and not (args.plan or request.keys.dry_run):
        trained = train_models(training, run)
        here |= {name: trained[name] for name in names if name in trained}
    terminal.lines(f"trained here: {word}" for word in format_trained(here))
    return request.with_trained(format_trained(here))


def _run(request: ReproduceRequest, terminal: Terminal) -> int:
    """Run the cells and show our values next to those published. Return 2 if a cell failed or was not run."""
    report, reproduction = run_table(request, terminal)
    if request.results:
        table = only_ours(reproduction)
        verdicts = replace(table.verdicts(), plots=[])
        orders = [table.order_section()] if table.orders else []
        shown = [*table.comparison(), verdicts, table.rules_section(), *orders]
        terminal.sections(reproduction.heading, shown)
    _show_differences(reproduction.differing, terminal)
    if not request.cells:
        _show_remedies(request, terminal)
    for result in request.results:
        if result.error:
            terminal.line(f"{result.status}: {result.name}: {result.error}", alarm=True)
    terminal.line(f"report: {report}")
    terminal.result(report.parent)
    return 2 if any(result.status in ("failed", "not run") for result in request.results) else 0


def _show_differences(rows: Sequence[tuple[str, str, str]], terminal: Terminal) -> None:
    """Show the known differences from the paper."""
    if rows:
        terminal.sections("", [differing_section(rows)])

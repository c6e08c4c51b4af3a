"""`kgqa reproduce`: a paper's table or figure, the published values beside ours."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError

if TYPE_CHECKING:
    from kgqa.experiment.reproduce.request import ReproduceRequest
    from kgqa.experiment.reproduce.running import Plan
    from kgqa.terminal.console import Terminal

NAME = "reproduce"
SUMMARY = "a paper's table or figure again, its values beside ours"
NOTES = """Keys of its own (docs/REPRODUCE.md):
  only=            rows and columns by name, a part of it or a pattern, e.g. only=TRACE-Triple,MuSiQue
  dry_run=true     what would be asked, and what cannot run here; nothing is
  protocol=paper   as the paper did it: choose on development questions, ask as many as it asked, average over its sets
                   of demonstrations; short (the default): the table's settings on the questions that limit= leaves
  protocol.dev=    and protocol.test=: fewer questions than the paper's
  trained.NAME=    a path: what a cell needs that "needs training"
  budget=          what may be paid for, e.g. 2.50usd or 500000tokens; the rest is left, the same command goes on
  name=            of the report's folder in outputs/reproduce/ID/; else a hash of its cells
  hydra/launcher=  joblib, submitit_slurm …: several cells at once, see docs/SWEEPS.md
Any other key is one of kgqa run and replaces what the table says, for every cell: limit=3 model=… ranker=… engine=…"""


def arguments(parser: Parser) -> None:
    parser.takes_places("ID", "of a table or figure, e.g. trace/table1; with --list the beginning of some", least=0)
    parser.takes_keys("see below", own=("only", "budget", "protocol", "hydra/launcher"))
    parser.add_argument(
        "--list", action="store_true", help="every id, what it shows, and what of it can run here, with the keys given"
    )
    parser.add_argument(
        "--plan", action="store_true", help="how many runs, calls, tokens, hours and USD it takes; nothing is asked"
    )
    parser.notes = NOTES
    parser.examples = (
        "kgqa reproduce trace/table1 limit=5 dry_run=true",
        "kgqa reproduce ircot/table4 protocol=paper --plan",
    )


def run(given: Namespace) -> int:
    from kgqa.experiment.reproduce.request import ReproduceRequest
    from kgqa.experiment.reproduce.running import HERE, Plan, run_table, table_lines
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.estimates import show_estimates, show_plan
    from kgqa.terminal.reproduction import show_differing, show_reproduction

    terminal = Terminal()
    if given.list:
        for line in table_lines(given.places[0] if given.places else "", given.overrides):
            terminal.line(line)
        terminal.line(f"with models of your choice: kgqa reproduce --list {HERE}")
        return 0
    if not given.places:
        raise given.parser.missing("ID")
    request = ReproduceRequest.of(given.places[0], given.overrides)
    plan = Plan.of(request)
    for line in plan.lines(request.table.id):
        terminal.line(line)
    if given.plan:
        return show_plan(plan.planned(request), terminal) if plan.cells else _nothing_runs(plan, request, terminal)
    if request.dry_run:
        if request.protocol:
            raise ConfigError("dry_run=true: with protocol=paper there is --plan; leave dry_run= out")
        show_differing(plan.differing(request), terminal)
        if not plan.cells:
            return _nothing_runs(plan, request, terminal)
        return show_estimates(plan.cells, terminal, request.budget)
    code = 0 if plan.cells else _nothing_runs(plan, request, terminal)
    return show_reproduction(run_table(plan, request, terminal), terminal) or code


def _nothing_runs(plan: Plan, request: ReproduceRequest, terminal: Terminal) -> int:
    terminal.line(f"kgqa: {plan.nothing_runs(request)}", alarm=True)
    return 2

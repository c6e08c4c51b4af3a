"""`kgqa reproduce`: a paper's table or figure, the published values beside ours."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgqa.cli.parsing import Parser, parse
from kgqa.errors import ConfigError

if TYPE_CHECKING:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.reproduce.request import ReproduceRequest
    from kgqa.reproduce.running import Plan

NAME = "reproduce"
SUMMARY = "a paper's table or figure again, its values beside ours"
NOTES = """Keys of its own (docs/REPRODUCE.md):
  only=            rows and columns by name, a part of it or a pattern, e.g. only=TRACE-Triple,MuSiQue
  dry_run=true     what would be asked, and what cannot run here; nothing is
  protocol=paper   as the paper did it: choose on development questions, ask as many as it asked, average over its sets
                   of demonstrations; short (the default): the table's settings on the questions that limit= leaves
  protocol.dev=    and protocol.test=: fewer questions than the paper's
  trained.NAME=    a path: what a cell needs that "needs training"; else the newest that kgqa train made here
  make.KEY=        a word for the commands that --make runs, e.g. make.train.base=smollm2_135m make.limit=200
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
    parser.add_argument(
        "--make", action="store_true", help="first make what cells need that is not trained here; what is begun goes on"
    )
    parser.notes = NOTES
    parser.examples = (
        "kgqa reproduce trace/table1 limit=5 dry_run=true",
        "kgqa reproduce ircot/table4 protocol=paper --plan",
    )


def run(given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.estimates import show_estimates, show_plan
    from kgqa.cli.terminal.reproduction import show_differing, show_reproduction
    from kgqa.reproduce.request import ReproduceRequest
    from kgqa.reproduce.running import HERE, Plan, run_table, table_lines

    terminal = Terminal()
    if given.list:
        for line in table_lines(given.places[0] if given.places else "", given.overrides):
            terminal.line(line)
        terminal.line(f"with models of your choice: kgqa reproduce --list {HERE}")
        return 0
    if not given.places:
        raise given.parser.missing("ID")
    request = _with_trained(ReproduceRequest.of(given.places[0], given.overrides), given, terminal)
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


def _with_trained(request: ReproduceRequest, given: Namespace, terminal: Terminal) -> ReproduceRequest:
    """Use models trained here in the cells that need them; train missing ones, or report how to."""
    from kgqa.reproduce.cells import choose_cells
    from kgqa.reproduce.making import Making, given_as, lacking, those_here

    def do(words: Sequence[str]) -> int:
        terminal.line(f"→ {shlex.join(('kgqa', *words))}")
        other = parse(given.tree, words)
        code: int = other.run(other)
        return code

    names = lacking(choose_cells(request.table, request.only), request.overrides)
    here = {} if request.make else those_here(names)  # of other words is another one
    making = Making.of([name for name in names if name not in here], request.make)
    for line in making.lines():
        terminal.line(line)
    if given.make and not (given.plan or request.dry_run):
        made = making.make(do)
        here |= {name: made[name] for name in names if name in made}
    for word in given_as(here):
        terminal.line(f"trained here: {word}")
    return request.with_trained(given_as(here))


def _nothing_runs(plan: Plan, request: ReproduceRequest, terminal: Terminal) -> int:
    terminal.line(f"kgqa: {plan.nothing_runs(request)}", alarm=True)
    return 2

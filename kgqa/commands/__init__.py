"""The commands of `kgqa`, one small file each: what it takes, and which function of the layers below it calls.

Here and nowhere else an argument is named, explained and refused. A file has

    NAME = "runs"                             as it is typed
    SUMMARY = "…"                             its line in `kgqa --help`
    def arguments(parser: Parser) -> None     what it takes, and at least one example:
        parser.takes_places("RUN", "…")           words that are no key=value: given.places
        parser.takes_keys("…")                    key=value: given.overrides
        parser.add_argument("--json", …)          options, as in argparse: given.json
        parser.command("build", "…")              a command inside a group; it takes what it takes: given.action
        parser.examples = ("kgqa runs",)
    def run(given: Namespace) -> int          does it, gives the exit code; raises a UsageError for a person's mistake

A new one is that file and its name below, imported and in COMMANDS. Help, the refusal of what is unknown or missing,
completion and the architecture tests follow. At its top it imports nothing of kgqa but `errors`, `inert` and `parsing`,
so that help is there at once; what it calls is imported inside `run`.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Protocol

from kgqa.commands import (
    ask,
    bootstrap,
    cache,
    collect,
    compare,
    completion,
    data,
    demo,
    doctor,
    evaluate,
    export,
    graph,
    index,
    judge,
    kg,
    models,
    new,
    report,
    reproduce,
    run,
    runs,
    show,
    status,
    train,
    trained,
    tune,
    verify,
    view,
)
from kgqa.commands import open as open_report
from kgqa.commands.parsing import Parser


class Command(Protocol):
    NAME: str
    SUMMARY: str

    def arguments(self, parser: Parser) -> None: ...

    def run(self, given: Namespace) -> int: ...


# in the order of the help
COMMANDS: tuple[Command, ...] = (
    demo, run, ask, tune, runs, status, view, show, open_report, report, export, evaluate, compare, judge, verify, kg,
    graph, collect, train, trained, bootstrap, reproduce, index, data, models, cache, doctor, new, completion,
)  # fmt: skip


def tree() -> Parser:
    """Every command with all it takes; `given.run` is the function that does it."""
    parser = Parser("kgqa", "multi-hop question answering with knowledge-graph-grounded RAG, as experiments to trust")
    parser.add_argument("--version", action="store_true", help="which kgqa this is")
    parser.examples = ("kgqa run method=trace dataset=demo limit=3", "kgqa run method=trace --help")
    for command in COMMANDS:
        own = parser.command(command.NAME, command.SUMMARY)
        own.set_defaults(run=command.run)
        command.arguments(own)
    return parser

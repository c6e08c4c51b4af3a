"""The commands of `kgqa`, one file each: the arguments, and the function of a lower layer that it calls.

A file has

    NAME = "runs"                             the name of the command
    SUMMARY = "…"                             its line in `kgqa --help`
    def arguments(parser: Parser) -> None     its arguments, and at least one example:
        parser.takes_places("RUN", "…")           words that are not key=value: given.places
        parser.takes_keys("…")                    key=value: given.overrides
        parser.add_argument("--json", …)          options, as in argparse: given.json
        parser.command("build", "…")              a command inside a group: given.action
        parser.examples = ("kgqa runs",)
    def run(given: Namespace) -> int          does the work and returns the exit code; raises a UsageError for a usage
                                              error

To add a command, write the file and add it to COMMANDS. A file imports only `errors`, `terminal_text` and `parsing` of
kgqa at its top, so that help is fast. `run` imports what it calls.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Protocol

from kgqa.cli import (
    ask,
    bootstrap,
    cache,
    collect,
    compare,
    data,
    demo,
    doctor,
    evaluate,
    kg,
    models,
    new,
    report,
    reproduce,
    run,
    runs,
    show,
    train,
    tune,
    view,
)
from kgqa.cli.parsing import Parser


class Command(Protocol):
    """A module with a command."""

    NAME: str
    SUMMARY: str

    def arguments(self, parser: Parser) -> None: ...

    def run(self, given: Namespace) -> int: ...


# by task, in the order of the help
COMMANDS: Mapping[str, tuple[Command, ...]] = {
    "run": (demo, run, ask, tune, evaluate, reproduce),
    "inspect": (runs, show, view, report, compare),
    "data": (data, kg),
    "train": (collect, train, bootstrap, models),
    "system": (doctor, cache, new),
}


def tree() -> Parser:
    """Return the parser of all commands; `given.run` is the function of a command."""
    parser = Parser("kgqa", "Run experiments in multi-hop question answering with knowledge graphs and RAG.")
    parser.add_argument("--version", action="store_true", help="show the version")
    parser.add_argument("--completion", metavar="SHELL", help="print the completion script for bash, zsh or fish")
    parser.examples = ("kgqa run method=trace dataset=demo limit=3", "kgqa run method=trace --help")
    for task, commands in COMMANDS.items():
        for command in commands:
            own = parser.command(command.NAME, command.SUMMARY, task)
            own.set_defaults(run=command.run)
            command.arguments(own)
    return parser

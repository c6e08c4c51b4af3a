"""`kgqa models`: the presets of model=, and the adapters that a role can put on one."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser

NAME = "models"
SUMMARY = "the model presets and adapters: size, licence, can they run here"


def arguments(parser: Parser) -> None:
    parser.examples = ("kgqa models",)


def run(given: Namespace) -> int:  # noqa: ARG001 - takes nothing
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.presets import show_presets

    show_presets(Terminal())
    return 0

"""`kgqa models`: the presets of model=, adapters, and what was trained here."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.cli.parsing import Parser
from kgqa.errors import ConfigError

NAME = "models"
SUMMARY = "model presets and adapters, and what was trained: list, check and export"
NOTES = """kgqa models trained NAME shows the figures, examples and settings of one training and checks its files.
NAME is its name, NAME/HASH, or its folder. Exit code 2: a file is missing or has changed."""


def arguments(parser: Parser) -> None:
    parser.takes_places("[trained [NAME]]", "list what was trained here, or show one (default: presets)", 0, 2)
    parser.add_argument("--prune", action="store_true", help="remove the checkpoints of finished trainings")
    parser.add_argument("--gguf", action="store_true", help="export the adapter NAME as llama.cpp reads it")
    parser.add_argument("--merged", action="store_true", help="export base and adapter as one transformers folder")
    parser.add_argument("--out", metavar="PATH", type=Path, help="where to export to (default: next to the weights)")
    parser.notes = NOTES
    parser.examples = ("kgqa models", "kgqa models trained", "kgqa models trained kgp_llama --merged")


def run(given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.presets import show_presets

    if given.places and given.places[0] != "trained":
        raise ConfigError(f"kgqa models {given.places[0]}: expected trained; presets are listed without an argument")
    if given.places:
        return _run_trained(given)
    show_presets(Terminal())
    return 0


def _run_trained(given: Namespace) -> int:
    from kgqa.artifacts.trained import find_trained, list_trainings
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.training import show_list, show_trained
    from kgqa.training.train.exporting import export_gguf, export_merged, find_damage, remove_checkpoints

    terminal = Terminal(width=160)
    if len(given.places) == 1:
        if given.gguf or given.merged:
            raise ConfigError("kgqa models trained: name what to export")
        if given.prune:
            terminal.line(remove_checkpoints())
        show_list(list_trainings(), terminal)
        return 0
    name = given.places[1]
    if given.gguf and given.merged:
        raise ConfigError("kgqa models trained: give --gguf or --merged, not both")
    if given.gguf or given.merged:
        exported = (
            export_gguf(name, given.out) if given.gguf else export_merged(find_trained(name), given.out, terminal)
        )
        terminal.result(exported)
        return 0
    folder = find_trained(name)
    show_trained(folder, terminal)
    damage = list(find_damage(folder))
    for line in damage:
        terminal.line(line, alarm=True)
    terminal.line("damaged; train it again" if damage else "files: unchanged")
    terminal.result(folder)
    return 2 if damage else 0

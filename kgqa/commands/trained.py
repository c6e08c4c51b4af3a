"""`kgqa trained`: what was trained here."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError

NAME = "trained"
SUMMARY = "adapters, models and encoders that were trained: list, show, check and export them"
TRAINED = "its name, NAME/HASH, or its folder"
FORMS = ("alpaca", "sharegpt")


def arguments(parser: Parser) -> None:
    listed = parser.command("list", "all of them, the last one first")
    listed.add_argument("--prune", action="store_true", help="remove the checkpoints of those that have ended")
    listed.examples = ("kgqa trained list",)
    show = parser.command("show", "figures, examples and settings of one")
    show.takes_places("NAME", TRAINED)
    show.examples = ("kgqa trained show kgp_llama",)
    check = parser.command("check", "whether all its files are as they were written")
    check.takes_places("NAME", TRAINED)
    check.examples = ("kgqa trained check kgp_llama",)
    export = parser.command("export", "for other programs")
    export.takes_places("NAME", TRAINED)
    export.add_argument("--gguf", action="store_true", help="the adapter as llama.cpp reads it, beside the other")
    export.add_argument("--merged", action="store_true", help="base and adapter as one transformers folder")
    export.add_argument("--examples", choices=FORMS, metavar="FORM", help=f"what it was trained on: {', '.join(FORMS)}")
    export.add_argument("--out", metavar="PATH", type=Path, help="where to; unless given, beside the weights")
    export.examples = ("kgqa trained export kgp_llama --merged",)
    parser.examples = ("kgqa trained list", "kgqa trained export kgp_llama --merged")


def run(given: Namespace) -> int:
    return {"list": listing, "show": show, "check": check, "export": export}[given.action](given)


def listing(given: Namespace) -> int:
    from kgqa.artefacts.trained import kept_trainings
    from kgqa.experiment.train.keeping import prune
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.training import show_list

    terminal = Terminal(width=160)
    if given.prune:
        terminal.line(prune())
    show_list(kept_trainings(), terminal)
    return 0


def show(given: Namespace) -> int:
    from kgqa.artefacts.trained import find_trained
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.training import show_trained

    terminal, folder = Terminal(width=120), find_trained(given.places[0])
    show_trained(folder, terminal)
    terminal.result(folder)
    return 0


def check(given: Namespace) -> int:
    """Gives 2 if a file is gone or another one than was written."""
    from kgqa.artefacts.trained import find_trained
    from kgqa.experiment.train.keeping import flaws
    from kgqa.terminal.console import Terminal

    terminal, folder = Terminal(width=120), find_trained(given.places[0])
    found = flaws(folder)
    for flaw in found:
        terminal.line(flaw, alarm=True)
    terminal.line(f"{folder}: {'damaged; train it again' if found else 'as it was written'}")
    return 2 if found else 0


def export(given: Namespace) -> int:
    from kgqa.artefacts.trained import find_trained
    from kgqa.experiment.train.exporting import export_examples, export_gguf, export_merged
    from kgqa.terminal.console import Terminal

    wanted = [name for name in ("gguf", "merged", "examples") if getattr(given, name)]
    if len(wanted) != 1:
        raise ConfigError("kgqa trained export: one of --gguf, --merged, --examples alpaca, --examples sharegpt")
    terminal, name = Terminal(width=120), given.places[0]
    if given.examples:
        written = export_examples(find_trained(name), given.examples, given.out)
    elif given.merged:
        written = export_merged(find_trained(name), given.out, terminal)
    else:
        written = export_gguf(name, given.out)
    terminal.result(written)
    return 0

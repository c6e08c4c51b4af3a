"""`kgqa data`: data sets and corpora."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError

NAME = "data"
SUMMARY = "data sets and corpora: list, prepare, check"
KEYS = ("dataset", "from", "to")


def arguments(parser: Parser) -> None:
    listed = parser.command("list", "every data set and corpus: source, licence, size, checksum, what is here")
    listed.examples = ("kgqa data list",)
    prepare = parser.command("prepare", "fetch a data set or corpus, check and unpack it; goes on where it stopped")
    prepare.takes_keys(
        "dataset=NAME of kgqa data list; from=hub|FOLDER in Hugging Face's form; to=FOLDER", KEYS, only=True
    )
    parser.examples = prepare.examples = ("kgqa data prepare dataset=musique",)
    check = parser.command("check", "read a dataset's files through: counts, hashes and what is odd")
    check.takes_keys()
    check.examples = ("kgqa data check dataset=demo",)


def run(given: Namespace) -> int:
    return {"list": show, "prepare": prepare, "check": check}[given.action](given)


def show(given: Namespace) -> int:  # noqa: ARG001 - takes nothing
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.sources import show_sources

    show_sources(Terminal())
    return 0


def prepare(given: Namespace) -> int:
    """A bare name stands for dataset=NAME."""
    from kgqa.experiment.data import bring
    from kgqa.terminal.console import Terminal

    settings: dict[str, str] = {}
    for word in given.overrides:
        key, _, value = word.partition("=") if "=" in word else ("dataset", "=", word)
        if not value:
            raise ConfigError(f"{key}=: expected a value")
        settings[key] = value
    if "dataset" not in settings:
        raise given.parser.missing("dataset=")
    to = Path(settings["to"]).expanduser() if "to" in settings else None
    bring(settings["dataset"], Terminal(), place=settings.get("from"), to=to)
    return 0


def check(given: Namespace) -> int:
    from kgqa.experiment.config.composing import compose
    from kgqa.experiment.data import read_through
    from kgqa.terminal.console import Terminal

    read_through(compose(given.overrides), Terminal())
    return 0

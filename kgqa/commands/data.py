"""`kgqa data`: data sets and corpora."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError, nearest

NAME = "data"
SUMMARY = "list: data sets and corpora, their licences, what is here; prepare: fetch one; check: read one through"
KEYS = ("dataset", "from", "to")


def arguments(parser: Parser) -> None:
    listed = parser.command("list", "every data set and corpus: source, licence, size, checksum, what is here")
    listed.examples = ("kgqa data list",)
    prepare = parser.command("prepare", "fetch a data set or corpus, check and unpack it; goes on where it stopped")
    prepare.takes_keys("dataset=NAME of kgqa data list; from=hub|FOLDER in Hugging Face's form; to=FOLDER")
    parser.examples = prepare.examples = ("kgqa data prepare dataset=musique",)
    check = parser.command("check", "read a dataset's files through: counts, hashes and what is odd")
    check.takes_keys()
    check.examples = ("kgqa data check dataset=demo",)


def run(given: Namespace) -> int:
    return {"list": show, "prepare": prepare, "check": check}[given.action](given)


def show(given: Namespace) -> int:  # noqa: ARG001 - takes nothing
    from kgqa.experiment.data import show_sources

    return show_sources()


def prepare(given: Namespace) -> int:
    """A bare name stands for dataset=NAME."""
    from kgqa.experiment.data import prepare

    settings: dict[str, str] = {}
    for word in given.overrides:
        key, _, value = word.partition("=") if "=" in word else ("dataset", "=", word)
        if key not in KEYS or not value:
            raise ConfigError(f"{key}={value}: {'expected a value' if key in KEYS else nearest(key, KEYS)}")
        settings[key] = value
    if "dataset" not in settings:
        raise given.parser.missing("dataset=")
    return prepare(settings["dataset"], settings.get("from"), settings.get("to"))


def check(given: Namespace) -> int:
    from kgqa.experiment.data import check

    return check(given.overrides)

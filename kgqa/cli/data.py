"""`kgqa data`: datasets and corpora."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.cli import index, verify
from kgqa.cli.parsing import Parser
from kgqa.errors import ConfigError

NAME = "data"
SUMMARY = "datasets and corpora: list, download, check, verify, index"
KEYS = ("dataset", "from", "to")


def arguments(parser: Parser) -> None:
    listing = parser.command("list", "show every dataset and corpus: source, licence, size, checksum, local copy")
    listing.examples = ("kgqa data list",)
    download = parser.command("download", "download, check and unpack a dataset or corpus; an interrupted one resumes")
    download.takes_keys(
        "dataset=NAME of kgqa data list; from=hub|FOLDER in Hugging Face's format; to=FOLDER", KEYS, only=True
    )
    parser.examples = download.examples = ("kgqa data download dataset=musique",)
    check = parser.command("check", "read all files of a dataset: counts, hashes and unusual records")
    check.takes_keys()
    check.examples = ("kgqa data check dataset=demo",)
    verify.arguments(parser.command("verify", verify.SUMMARY))
    index.arguments(parser)


def run(given: Namespace) -> int:
    actions = {
        "list": show,
        "download": download,
        "check": check,
        "verify": verify.run,
        "index": index.build,
        "check-index": index.check,
    }
    return actions[given.action](given)


def show(given: Namespace) -> int:  # noqa: ARG001 - has no arguments
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.sources import show_sources

    show_sources(Terminal())
    return 0


def download(given: Namespace) -> int:
    """Download a dataset; a name alone means dataset=NAME."""
    from kgqa.cli.terminal.console import Terminal
    from kgqa.config.overrides import override_values
    from kgqa.experiment.data import bring

    settings = override_values(word if "=" in word else f"dataset={word}" for word in given.overrides)
    for key, value in settings.items():
        if not value:
            raise ConfigError(f"{key}=: expected a value")
    if "dataset" not in settings:
        raise given.parser.missing("dataset=")
    to = Path(settings["to"]).expanduser() if "to" in settings else None
    bring(settings["dataset"], Terminal(), place=settings.get("from"), to=to)
    return 0


def check(given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.config.composing import compose
    from kgqa.experiment.data import read_through

    read_through(compose(given.overrides), Terminal())
    return 0

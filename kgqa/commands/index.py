"""`kgqa index`: what a run searches."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kgqa.commands.parsing import Parser

if TYPE_CHECKING:
    from kgqa.experiment.session.session import Session
    from kgqa.terminal.console import Terminal

NAME = "index"
SUMMARY = "what a run searches: build it ahead of a run, check it"


def arguments(parser: Parser) -> None:
    build = parser.command("build", "index a dataset's corpus; goes on from what is there")
    check = parser.command("check", "every file against its hash, and whether passages are found again")
    for subcommand in (build, check):
        subcommand.takes_keys()
        subcommand.examples = (f"{subcommand.prog} dataset=demo retriever=bm25",)
    parser.examples = build.examples


def run(given: Namespace) -> int:
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal

    terminal = Terminal(width=120)
    with log_lines(terminal), Session(Experiment.of(given.overrides)) as session:
        return {"build": build, "check": check}[given.action](session, terminal)


def build(session: Session, terminal: Terminal) -> int:
    """The folder is the last line printed."""
    from kgqa.experiment.prepare.indexes import build_index, index_folder

    folder, started = index_folder(session), time.monotonic()
    built = build_index(session, terminal)
    took = f"built in {time.monotonic() - started:,.1f} s" if built.anew else "was there already"
    terminal.line(_described(built.manifest) + f"; {took}")
    terminal.line(str(folder.path))
    return 0


def check(session: Session, terminal: Terminal) -> int:
    """Every file against its hash, then whether passages are found by their own first words."""
    from kgqa.experiment.prepare.index_check import DEPTH, SAMPLE_WORDS, known_items
    from kgqa.experiment.prepare.indexes import index_folder

    folder = index_folder(session)
    folder.verify()
    terminal.line(_described(folder.manifest()) + "; every file is as it was written")
    with closing(folder.open()) as index:
        known = known_items(index, session.experiment.settings.seed)
    first, among = (100 * count / max(known.searched, 1) for count in (known.first, known.among))
    terminal.line(
        f"{known.searched} passages searched by their first {SAMPLE_WORDS} words: {first:.1f} % found "
        f"first, {among:.1f} % among {DEPTH}"
    )
    terminal.line(str(folder.path))
    return 0


def _described(manifest: Mapping[str, Any]) -> str:
    corpus = manifest["corpus"]
    size = sum(written["bytes"] for written in manifest["files"].values()) / 1e6
    parts = [f"{corpus['count']:,} passages", f"{size:,.1f} MB"]
    for key, label in (
        ("duplicates", "identical ones left out"),
        ("equal_texts", "with the text of another"),
        ("without_text", "without text"),
    ):
        if corpus[key]:
            parts.append(f"{corpus[key]:,} {label}")
    return ", ".join(parts)

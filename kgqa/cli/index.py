"""`kgqa data index` and `kgqa data check-index`: the passages that a run searches."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kgqa.cli.parsing import Parser

if TYPE_CHECKING:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.experiment.session.session import Session


def arguments(parser: Parser) -> None:
    build = parser.command("index", "index the corpus of a dataset before a run; an interrupted build resumes")
    check = parser.command("check-index", "compare every file with its hash, and search passages by their first words")
    for command in (build, check):
        command.takes_keys()
        command.examples = (f"{command.prog} dataset=demo retriever=bm25",)


def build(given: Namespace) -> int:
    return _run(given, build_index)


def check(given: Namespace) -> int:
    return _run(given, check_index)


def _run(given: Namespace, act: Callable[[Session, Terminal], int]) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines

    terminal = Terminal(width=120)
    with log_lines(terminal), Session(Experiment.of(given.overrides)) as session:
        return act(session, terminal)


def build_index(session: Session, terminal: Terminal) -> int:
    """Build the index of a run and print its folder last."""
    from kgqa.experiment.prepare import indexes

    folder, started = indexes.index_folder(session), time.monotonic()
    built = indexes.build_index(session, terminal)
    took = f"built in {time.monotonic() - started:,.1f} s" if built.anew else "was there already"
    terminal.line(_describe(built.manifest) + f"; {took}")
    terminal.line(str(folder.path))
    return 0


def check_index(session: Session, terminal: Terminal) -> int:
    """Compare every file with its hash, then search passages by their own first words."""
    from kgqa.experiment.prepare.index_check import DEPTH, SAMPLE_WORDS, sample_known_items
    from kgqa.experiment.prepare.indexes import index_folder

    folder = index_folder(session)
    folder.verify()
    terminal.line(_describe(folder.manifest()) + "; every file is as it was written")
    with closing(folder.open()) as index:
        known = sample_known_items(index, session.experiment.settings.seed)
    first, among = (100 * count / max(known.searched, 1) for count in (known.first, known.among))
    terminal.line(
        f"{known.searched} passages searched by their first {SAMPLE_WORDS} words: {first:.1f} % found "
        f"first, {among:.1f} % among {DEPTH}"
    )
    terminal.line(str(folder.path))
    return 0


def _describe(manifest: Mapping[str, Any]) -> str:
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

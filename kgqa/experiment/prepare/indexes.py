"""The index that a run searches: found, built by the run itself when its corpus is small, and checked on request."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from kgqa.calls import Search
from kgqa.errors import ConfigError
from kgqa.protocols import Index
from kgqa.report.progress import SignOfLife
from kgqa.retrieval.dense import Dense
from kgqa.retrieval.index import Advance, IndexFolder
from kgqa.retrieval.passages import text_key
from kgqa.retrieval.search import PassageIndex, PoolIndex
from kgqa.storage import digest, outputs

if TYPE_CHECKING:
    from rich.console import Console

    from kgqa.experiment.session.session import Session

SMALL = 50_000  # passages that a run indexes by itself: seconds for BM25
EMBEDDED = 5_000  # where they are embedded for it: minutes with a small encoder on a CPU
SAMPLE = 200  # passages looked for by `kgqa index check`
SAMPLE_WORDS = 20  # of a passage's text, as a query that should find it
DEPTH = 10


def index_folder(session: Session) -> IndexFolder:
    """Where the index of this dataset's corpus under this retriever lies, or will."""
    retriever, made_from = session.retriever, session.dataset.corpus_identity()
    address = digest([made_from, retriever.identity()], 12, ensure_ascii=False)
    names = [session.name("dataset"), session.name("retriever")]
    shaping = r"[+~]*(dataset\.|collection[.=]|retriever\.|\w+@retriever)"
    own = [each for each in session.overrides if re.match(shaping, each)]
    command = " ".join(["kgqa index build", f"dataset={names[0]}", f"retriever={names[1]}", *own])
    return IndexFolder(outputs().joinpath("index", *names, address), retriever, made_from, command)


def open_index(session: Session) -> Index | None:
    """The index a run searches, None if its method searches nothing; one of a small corpus is built now if missing.

    Raises:
        ConfigError: it is missing and its corpus is large.
        DataError: it is damaged.
    """
    if "search" not in session.method.uses:
        return PoolIndex(session.retriever) if "pool" in session.method.uses else None
    folder = index_folder(session)
    if not folder.finished():
        limit = EMBEDDED if _embeds(session.retriever) else SMALL
        some = sum(1 for _ in islice(session.dataset.passages(), limit + 1))
        if some > limit:
            what = "embed" if limit == EMBEDDED else "index"
            raise ConfigError(
                f"the corpus has more than {limit:,} passages, too many to {what} inside a run; "
                f"index it first: {folder.command}"
            )
        with passage_progress(session.console) as advance:
            folder.build(session.dataset.passages(), advance)
    return folder.open()


def _embeds(retriever: object) -> bool:
    """Whether it, or a retriever it is made of, embeds every passage."""
    if isinstance(retriever, Dense):
        return True
    parts = fields(retriever) if is_dataclass(retriever) else ()
    return any(_embeds(getattr(retriever, part.name)) for part in parts)


def build_index(overrides: Sequence[str]) -> int:
    """`kgqa index build`: the folder is the last line printed."""
    from kgqa.experiment.session.session import Session

    with Session(overrides) as session:
        folder, started = index_folder(session), time.monotonic()
        before = folder.finished()
        with passage_progress(session.console) as advance:
            manifest = folder.build(session.dataset.passages(), advance)
        took = "was there already" if before else f"built in {time.monotonic() - started:,.1f} s"
        session.console.print(_described(manifest) + f"; {took}", highlight=False, soft_wrap=True)
        session.console.print(str(folder.path), highlight=False, soft_wrap=True)
    return 0


def check_index(overrides: Sequence[str]) -> int:
    """`kgqa index check`: every file against its hash, then whether passages are found by their own first words."""
    from kgqa.experiment.session.session import Session

    with Session(overrides) as session:
        folder = index_folder(session)
        folder.verify()
        session.console.print(_described(folder.manifest()) + "; every file is as it was written", highlight=False)
        with closing(folder.open()) as index:
            first, some, asked = _known_items(index, session.settings.seed)
        session.console.print(
            f"{asked} passages searched by their first {SAMPLE_WORDS} words: {100 * first / max(asked, 1):.1f} % found "
            f"first, {100 * some / max(asked, 1):.1f} % among {DEPTH}",
            highlight=False,
            soft_wrap=True,
        )
        session.console.print(str(folder.path), highlight=False, soft_wrap=True)
    return 0


def _known_items(index: PassageIndex, seed: int) -> tuple[int, int, int]:
    """How many of a sample of passages are found first, how many at all, and how many were looked for."""
    places = random.Random(seed).sample(range(len(index.passages)), min(SAMPLE, len(index.passages)))  # noqa: S311
    passages = [passage for place in places if (passage := index.passages[place]).text.strip()]
    queries = [Search(" ".join(passage.text.split()[:SAMPLE_WORDS]), DEPTH) for passage in passages]
    first = some = 0
    for passage, found in zip(passages, index.search(queries), strict=True):
        texts = [text_key(each) for each in found]
        first += texts[:1] == [text_key(passage)]
        some += text_key(passage) in texts
    return first, some, len(passages)


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


@contextmanager
def passage_progress(console: Console) -> Iterator[Advance]:
    """A bar for each stage in a terminal; elsewhere a line when a stage begins, and one a minute."""
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.completed:,.0f} passages"))
    progress = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    tasks: dict[str, TaskID] = {}
    sign = SignOfLife(console)

    def advance(stage: str, count: int, total: int | None) -> None:
        if stage not in tasks:
            tasks[stage] = progress.add_task(stage, total=total)
            if not console.is_terminal:
                console.print(f"{stage} passages" if total is None else f"{stage} {total:,} passages", highlight=False)
        progress.update(tasks[stage], advance=count)
        sign(lambda: f"{stage}: {progress.tasks[tasks[stage]].completed:,.0f}" + (f" of {total:,}" if total else ""))

    with progress if console.is_terminal else nullcontext():
        yield advance

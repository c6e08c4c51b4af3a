"""The index that a run searches: found, built by the run itself when its corpus is small, and checked on request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, NamedTuple

from kgqa.errors import ConfigError
from kgqa.experiment.session.session import Session
from kgqa.protocols import Index
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.search import PassageIndex, PoolIndex
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.util.fs import digest, outputs

SMALL = 50_000  # passages that a run indexes by itself: seconds for BM25
EMBEDDED = 5_000  # where they are embedded for it: minutes with a small encoder on a CPU


def index_folder(session: Session) -> IndexFolder:
    """Return where the index of this dataset's corpus under this retriever lies, or will."""
    experiment, retriever = session.experiment, session.retriever
    made_from = experiment.dataset.corpus_identity()
    address = digest([made_from, retriever.identity()], 12, ensure_ascii=False)
    names = [experiment.name("dataset"), experiment.name("retriever")]
    shaping = r"[+~]*(dataset\.|collection[.=]|retriever\.|\w+@retriever)"
    own = [override for override in experiment.overrides if re.match(shaping, override)]
    command = " ".join(["kgqa data index", f"dataset={names[0]}", f"retriever={names[1]}", *own])
    return IndexFolder(outputs().joinpath("index", *names, address), retriever, made_from, command)


class Built(NamedTuple):
    manifest: Mapping[str, Any]
    anew: bool  # this process worked on a passage at least


def build_index(session: Session, display: Display) -> Built:
    """Return the index, which is there already or built now."""
    folder, passages = index_folder(session), 0
    with monitor_work(display, "index build", folder.path) as told, told.counting("passages") as advance:

        def counted(stage: str, more: int, of: int | None) -> None:
            nonlocal passages
            passages += more
            advance(stage, more, of)

        manifest = folder.build(session.experiment.dataset.passages(), counted)
    return Built(manifest, passages > 0)


@contextmanager
def open_index(session: Session, display: Display) -> Iterator[Index | None]:
    """Yield the index a run searches, None if its method searches nothing; one of a small corpus is built now if
    missing.

    Raises:
        ConfigError: it is missing and its corpus is large.
        DataError: it is damaged.
    """
    uses = session.experiment.method.uses
    if "search" in uses:
        folder = index_folder(session)
        if not folder.finished():
            _refuse_large(session, folder.command)
        with corpus_index(session, display) as index:
            yield index
    elif "pool" in uses:
        with closing(PoolIndex(session.retriever)) as pools:
            yield pools
    else:
        yield None


@contextmanager
def corpus_index(session: Session, display: Display) -> Iterator[PassageIndex]:
    """Yield the index of the corpus, whatever the method asks for; a missing one is built now, however large.

    Raises:
        DataError: it is damaged.
    """
    folder = index_folder(session)
    if not folder.finished():
        build_index(session, display)
    with closing(folder.open(session.experiment.settings.seed)) as index:
        yield index


def _refuse_large(session: Session, command: str) -> None:
    some = sum(1 for _ in islice(session.experiment.dataset.passages(), SMALL + 1))
    if some <= min(EMBEDDED, SMALL):
        return
    limit = EMBEDDED if _embeds(session.retriever) else SMALL
    if some > limit:
        what = "embed" if limit == EMBEDDED else "index"
        raise ConfigError(
            f"the corpus has more than {limit:,} passages, too many to {what} inside a run; index it first: {command}"
        )


def _embeds(retriever: object) -> bool:
    """Return whether it, or a retriever it is made of, embeds every passage."""
    from kgqa.retrieval.dense import Dense

    if isinstance(retriever, Dense):
        return True
    parts = fields(retriever) if is_dataclass(retriever) else ()
    return any(_embeds(getattr(retriever, part.name)) for part in parts)

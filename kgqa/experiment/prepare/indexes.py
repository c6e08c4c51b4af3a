"""The index that a run searches. The run builds it if its corpus is small."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from kgqa.artifacts.metrics import LACKS
from kgqa.calls import Program
from kgqa.datasets.passages import distinct_passages
from kgqa.errors import ConfigError
from kgqa.experiment.capabilities import find_servers
from kgqa.experiment.session import Session
from kgqa.identity.component import corpus_identity_of, identity_of
from kgqa.protocols import ExpandingRetriever, MeasuredRetriever
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.search import PassageIndex, PoolIndex, ServedRetriever
from kgqa.runtime.costs import total
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import INDEX_BUILD, monitor_work
from kgqa.util.digests import digest
from kgqa.util.places import outputs
from kgqa.util.text import pluralize

if TYPE_CHECKING:
    from kgqa.retrieval.vector_import import VectorImport

T = TypeVar("T")
# passages that a run indexes itself: seconds for BM25
SMALL = 50_000
# the same if a model is called for them
WRITTEN = 1_000
# share of passages without a match in a file about them, above which a warning is printed
UNMATCHED = 0.05
# the same if they are embedded: minutes with a small encoder on a CPU
EMBEDDED = 5_000


def index_folder(session: Session) -> IndexFolder:
    """Return the folder of a corpus' index under this retriever, built or not. Datasets with one corpus share it."""
    experiment, retriever = session.experiment, session.retriever
    made_from = corpus_identity_of(experiment.data.corpus)
    if isinstance(retriever, ExpandingRetriever) and retriever.writer:
        made_from[retriever.writer] = identity_of(session.engines(retriever.writer))
    address = digest([made_from, identity_of(retriever)], 12, ensure_ascii=False)
    names = [experiment.name("dataset"), experiment.name("retriever")]
    shaping = r"[+~]*(dataset\.|collection[.=]|retriever\.|\w+@retriever)"
    own = [override for override in experiment.overrides if re.match(shaping, override)]
    command = " ".join(["kgqa data index", f"dataset={names[0]}", f"retriever={names[1]}", *own])
    path = outputs().joinpath("index", names[1], address)
    return IndexFolder(path, retriever, made_from, command, outputs() / "vectors")


def build_index(
    session: Session, display: Display, imported: VectorImport | None = None
) -> tuple[Mapping[str, Any], bool]:
    """Build the index unless it exists. Return its manifest, and whether anything was built.

    imported: the vectors of the passages, which are then not computed.
    """
    folder, passages = index_folder(session), 0
    # a model can be called for hours before the first text is embedded
    for server in find_servers(session.retriever):
        server.check_server()

    def run(program: Program[T]) -> T:
        """Run a program with the run's model, and report its cost."""
        with session.runner() as runner:
            # max_calls is the limit of a question
            (ended,) = runner.run([("index", program)], max_calls=math.inf)
        own, new = (
            total(tallies.values()) for tallies in (runner.ledger.method, runner.ledger.paid)
        )
        monitor.line(
            f"model calls of the index: {own.calls:,} calls, {own.usage.tokens:,} tokens, "
            f"{new.calls:,} calls and {new.usage.tokens:,} tokens of them new"
        )
        if isinstance(ended.result, Exception):
            raise ended.result
        return ended.result

    with (
        monitor_work(display, INDEX_BUILD, folder.path) as monitor,
        monitor.counting("passages") as advance,
    ):

        def count(step: str, more: int, of: int | None) -> None:
            nonlocal passages
            passages += more
            advance(step, more, of)

        if imported is None:
            manifest = folder.build(session.experiment.data.corpus.passages(), count, run)
        else:
            manifest = folder.build(imported.passages(), count, run, imported.write)
    return manifest, passages > 0


@contextmanager
def open_index(session: Session, display: Display) -> Iterator[PoolIndex]:
    """Open the index that a run searches. Build that of a small corpus.

    Raises:
        ConfigError: it is not built and the corpus is large.
        DataError: it is damaged.
    """
    if "search" not in session.experiment.method.uses:
        with closing(PoolIndex(session.retriever)) as pools:
            yield pools
    elif isinstance(retriever := session.retriever, ServedRetriever):
        yield retriever.open_server()
    else:
        folder = index_folder(session)
        if not folder.finished():
            _refuse_large(session, folder.command)
        with corpus_index(session, display) as index:
            yield index


@contextmanager
def corpus_index(session: Session, display: Display) -> Iterator[PassageIndex]:
    """Open the index of the corpus for any method. Build it if necessary, even of a large corpus.

    Raises DataError if it is damaged.
    """
    folder = index_folder(session)
    if not folder.finished():
        build_index(session, display)
    with closing(folder.open()) as index:
        if warning := explain_lacks(index.corpus, folder.command):
            display.line(warning, alarm=True)
        yield index


def explain_lacks(corpus: Mapping[str, Any], command: str) -> str:
    """Return a warning if the index lacks something for more than `UNMATCHED` of the passages, or ""."""
    unmatched, count = corpus.get("unmatched", 0), corpus["count"]
    if unmatched > UNMATCHED * count:
        return (
            f"warning: the file of triples has {count - unmatched:,} of the corpus' {count:,} passages. kgqa finds "
            "the others by their text only. Name a file of this corpus: retriever.triples.path=FILE"
        )
    if failed := corpus.get("failed"):
        calls = pluralize(failed, "model call")
        return f"warning: {calls} of the index failed, so it is not complete. To repeat only these: {command}"
    empty = max(
        corpus.get(name, 0) for name in ("without_triples", "without_entities", "unreadable")
    )
    if empty <= UNMATCHED * count:
        return ""
    listed = [f"{corpus[name]:,} {label}" for name, label in LACKS.items() if corpus.get(name)]
    return (
        f"warning: of {count:,} passages {', '.join(listed)}. kgqa finds these by their text only."
    )


def measure_retriever(session: Session, index: PoolIndex | None) -> dict[str, int] | None:
    """Return the number of passages that are searched and of those that lack something, or None if none does."""
    retriever: object = session.retriever if index is not None else None
    if isinstance(index, PassageIndex):
        count, lacks = index.corpus["count"], index.corpus
    elif isinstance(retriever, MeasuredRetriever):
        passages = list(distinct_passages(session.experiment.data.questions))
        count, lacks = len(passages), retriever.count_lacks(passages, None)
    else:
        return None
    present = {name: lacks[name] for name in LACKS if lacks.get(name)}
    return {"passages": count, **present} if present else None


def _refuse_large(session: Session, command: str) -> None:
    what, limit = ("embed", EMBEDDED) if _embeds(session.retriever) else ("index", SMALL)
    if getattr(session.retriever, "writer", ""):
        what, limit = "index with model calls", WRITTEN
    if sum(1 for _ in islice(session.experiment.data.corpus.passages(), limit + 1)) > limit:
        raise ConfigError(
            f"the corpus has more than {limit:,} passages, too many to {what} inside a run. Index it first: {command}"
        )


def _embeds(retriever: object) -> bool:
    """Return whether a retriever, or a part of it, embeds every passage."""
    from kgqa.retrieval.dense import Dense

    if isinstance(retriever, Dense):
        return True
    parts = fields(retriever) if is_dataclass(retriever) else ()
    return any(_embeds(getattr(retriever, part.name)) for part in parts)

"""BM25 as in Lucene (Kamphuis et al., ECIR 2020; k1 = 1.2, b = 0.75), embedded: tantivy, a search engine in Rust."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from kgqa.errors import DataError, StorageError
from kgqa.protocols import Query
from kgqa.retrieval import analysis
from kgqa.types import Json, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.validators import Validator

if TYPE_CHECKING:
    import tantivy

HEAP = 128 << 20  # bytes of postings held before they are written; more does not build faster
STEP = 1_000  # passages between two signs of progress
DIGITS = 6  # of a score; beyond them the order of summation shows, and with it how the index is cut into segments
SPARE = 8  # hits fetched beyond k, to see whether the k-th shares its score with others
QUICK = 0.001  # seconds of a search; to wake threads costs more than shorter ones take
MOST_TIES = 10_000  # hits fetched for one query because of equal scores; among more, tantivy's own order decides


def _are_boosts(fields: Mapping[str, float]) -> bool:
    return bool(fields) and set(fields) <= {"title", "text"} and min(fields.values()) > 0


Boosts = Annotated[Mapping[str, float], Validator("give title, text or both a boost above 0", _are_boosts)]


@dataclass(frozen=True)
class Bm25:
    """A passage's score is the sum over `fields` of BM25 with that field's own statistics, times the field's boost.

    That is Elasticsearch's bool query of one `match` per field. Scores are Lucene's times 2.2, as tantivy keeps the
    factor k1 + 1. A term that stands twice in the query counts twice. Fed with analysed text: the query parser of
    tantivy, which chokes on questions, is never used.
    """

    fields: Boosts  # boosts of "title" and "text"; one that is absent is not searched

    pools: ClassVar[bool] = True

    def identity(self) -> Mapping[str, Json]:
        return {
            "retriever": "bm25",
            "fields": dict(self.fields),
            "analysis": analysis.VERSION,
            "tantivy": version("tantivy"),
        }

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """See `Retriever`. What an interrupted build left is thrown away."""
        import tantivy

        _empty(folder)
        try:
            index = tantivy.Index(self._schema(), str(folder))
            writer = index.writer(HEAP, num_threads=1)  # one thread keeps the passages in order
            for place, passage in enumerate(passages):
                text = {field: analysis.analyze_text(getattr(passage, field)) for field in self.fields}
                writer.add_document(tantivy.Document(place=place, **text))
                if (place + 1) % STEP == 0:
                    advance(STEP)
            writer.commit()
            writer.wait_merging_threads()
        except (ValueError, OSError) as error:  # what tantivy makes of a full disk
            raise StorageError(f"{folder}: {error}; make room, then run the same command again") from error
        advance(len(passages) % STEP)

    def open(self, passages: Sequence[Passage], folder: Path) -> Bm25Finder:  # noqa: ARG002 - the places are enough
        return Bm25Finder(self.fields, folder)

    def _schema(self) -> tantivy.Schema:
        import tantivy

        builder = tantivy.SchemaBuilder()
        for field in self.fields:
            builder.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
        # signed: an unsigned fast field makes the writer of tantivy 0.27 panic
        return builder.add_integer_field("place", fast=True, indexed=True).build()


def _empty(folder: Path) -> None:
    with explain_storage_errors(folder):
        for left in folder.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Yield what tantivy makes of files that are not as it wrote them; its panics are no `Exception`."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, (ValueError, OSError)) and type(error).__name__ != "PanicException":
            raise
        reason = str(error).splitlines()[0]
        raise DataError(f"{folder}: damaged index ({reason:.200}); delete it and build it again") from None


class Bm25Finder:
    """Searches from the files as the system maps them: opening reads next to nothing."""

    def __init__(self, fields: Mapping[str, float], folder: Path) -> None:
        self._fields, self._folder = fields, folder
        self._threads: ThreadPoolExecutor | None = None

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        """Return see `Finder`. Scores of the same first six digits are equal. A query without words finds nothing."""
        wanted = [self._boolean(query) for query in queries]  # in this thread: a stemmer serves one at a time
        began, found = time.monotonic(), list(map(self._best, queries[:1], wanted[:1]))
        if time.monotonic() - began < QUICK:
            return found + list(map(self._best, queries[1:], wanted[1:]))
        if self._threads is None:
            self._threads = ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="kgqa-bm25")
        # tantivy searches without the interpreter's lock
        return found + list(self._threads.map(self._best, queries[1:], wanted[1:]))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    @cached_property
    def _index_parts(self) -> tuple[tantivy.Schema, tantivy.Searcher]:
        import tantivy

        with _reading(self._folder):
            index = tantivy.Index.open(str(self._folder))
            return index.schema, index.searcher()

    def _best(self, query: Query, wanted: tantivy.Query | None) -> list[int]:
        if wanted is None or query.k < 1:
            return []
        _, searcher = self._index_parts
        fetch = query.k + SPARE
        with _reading(self._folder):
            while True:
                hits = searcher.search(wanted, fetch, count=False).hits  # counting would visit every match
                scores = [float(f"{score:.{DIGITS}g}") for score, _ in hits]
                if len(hits) < fetch or scores[-1] < scores[query.k - 1] or fetch > MOST_TIES:
                    break
                fetch *= 4
            places: list[Any] = searcher.fast_field_values("place", [address for _, address in hits])
        ranked = sorted(zip((-score for score in scores), places, strict=True))
        return [place for _, place in ranked[: query.k]]

    def _boolean(self, query: Query) -> tantivy.Query | None:
        """Return None where the query has no words."""
        import tantivy

        schema, _ = self._index_parts
        make, occur = tantivy.Query, tantivy.Occur
        clauses = []
        for term, count in Counter(analysis.terms(query.text)).items():
            for field, boost in self._fields.items():
                clause = make.term_query(schema, field, term, "freq")
                clauses.append(
                    (occur.Should, clause if count * boost == 1 else make.boost_query(clause, count * boost))
                )
        if not clauses or query.among is None:
            return make.boolean_query(clauses) if clauses else None
        among = make.const_score_query(make.term_set_query(schema, "place", query.among), 0.0)
        return make.boolean_query([(occur.Must, among), (occur.Must, make.boolean_query(clauses))])

"""BM25, embedded: as in Lucene (Kamphuis et al., ECIR 2020) with tantivy, and any k1, b and variant with bm25s."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from kgqa.errors import StorageError
from kgqa.protocols import Progress, Query, Rankings
from kgqa.retrieval import analysis
from kgqa.retrieval.search import (
    IndexedRetriever,
    OpenedIndex,
    Scored,
    Scores,
    fill_positions,
    rank_found,
)
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import AGAIN, explain_storage_errors
from kgqa.util.optional_deps import require_packages
from kgqa.util.settings import Setting
from kgqa.util.validators import NotNegative, Share, Validator

if TYPE_CHECKING:
    import tantivy

# bytes of postings held before they are written; more does not build faster
HEAP = 128 << 20
# of a score; later ones depend on the order of summation
DIGITS = 6
# hits fetched beyond k, to see whether the k-th shares its score with others
SPARE = 8
# hits fetched for one query because of equal scores; among more, tantivy's order decides
MOST_TIES = 10_000


Boosts = Annotated[
    Mapping[str, float],
    Validator(
        "set a boost above 0 for title, text or both",
        lambda fields: (
            bool(fields) and set(fields) <= {"title", "text"} and min(fields.values()) > 0
        ),
    ),
]


@dataclass(frozen=True)
class Bm25(IndexedRetriever):
    """A passage's score is the sum over `fields` of BM25 with that field's own statistics, times the field's boost.

    That is Elasticsearch's bool query of one `match` per field, with k1 = 1.2 and b = 0.75. Scores are Lucene's times
    2.2, as tantivy keeps the factor k1 + 1. A term that occurs twice in the query counts twice. The text is analyzed
    before: the query parser of tantivy fails on questions.

    Args:
        fields: boosts of "title" and "text"; one that is absent is not searched.
        fill: find `k` passages always, also those without a word of the query.
    """

    fields: Annotated[
        Boosts,
        Setting(
            "Weights of title and text. A field without a weight is not searched.",
            other="IRCoT's released code queries both, each with its own statistics",
        ),
    ] = dataclasses.field(default_factory=lambda: {"title": 1.0, "text": 1.0})
    fill: Annotated[
        bool,
        Setting(
            "Find k passages always, also those without a word of the query. false: as Elasticsearch."
        ),
    ] = False

    def loads(self) -> JsonObject:
        return {"analysis": analysis.VERSION, "tantivy": version("tantivy")}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Write the index. Files of an interrupted build are deleted."""
        import tantivy

        with explain_storage_errors(folder):
            for file in folder.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        schema = tantivy.SchemaBuilder()
        for field in self.fields:
            schema.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
        # signed: an unsigned fast field makes the writer of tantivy 0.27 panic
        schema.add_integer_field("place", fast=True, indexed=True)
        try:
            writer = tantivy.Index(schema.build(), str(folder)).writer(
                HEAP, num_threads=1
            )  # one keeps the order
            for position, passage in enumerate(passages):
                text = {
                    field: analysis.analyze_text(getattr(passage, field)) for field in self.fields
                }
                writer.add_document(tantivy.Document(place=position, **text))
                advance(1)
            writer.commit()
            writer.wait_merging_threads()
        except (ValueError, OSError) as error:
            # tantivy's errors on a full disk
            raise StorageError(f"{folder}: {error}. {AGAIN}") from error

    def load(self, folder: Path) -> tuple[tantivy.Schema, tantivy.Searcher]:
        import tantivy

        index = tantivy.Index.open(str(folder))  # its files are mapped
        return index.schema, index.searcher()

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        """Return positions. Scores of the same first six digits are equal. A query without words has no results."""
        rankings = [
            [position for position, _ in scored] for scored in self.rank_scored(index, queries)
        ]
        if not self.fill:
            return rankings
        count = len(index.passages)
        return [
            fill_positions(positions, query, count)
            for positions, query in zip(rankings, queries, strict=True)
        ]

    def rank_scored(self, index: OpenedIndex, queries: Sequence[Query]) -> Sequence[Scored]:
        """Return positions with their scores, as `rank` orders them, without those that fill up to k."""
        return [self._find(query, *index.data) for query in queries]

    def _find(
        self, query: Query, schema: tantivy.Schema, searcher: tantivy.Searcher
    ) -> list[tuple[int, float]]:
        wanted = self.to_tantivy(query, schema)
        if wanted is None or query.k < 1:
            return []
        fetch = query.k + SPARE
        while True:
            hits = searcher.search(
                wanted, fetch, count=False
            ).hits  # counting would visit every match
            scores = [float(f"{score:.{DIGITS}g}") for score, _ in hits]
            if len(hits) < fetch or scores[-1] < scores[query.k - 1] or fetch > MOST_TIES:
                break
            fetch *= 4
        positions: list[Any] = searcher.fast_field_values("place", [address for _, address in hits])
        ranked = sorted(zip((-score for score in scores), positions, strict=True))
        return [(position, -score) for score, position in ranked[: query.k]]

    def to_tantivy(self, query: Query, schema: tantivy.Schema) -> tantivy.Query | None:
        """Return None if the query has no words."""
        import tantivy

        make, occur = tantivy.Query, tantivy.Occur
        clauses = []
        for term, count in Counter(analysis.terms(query.text)).items():
            for field, boost in self.fields.items():
                clause = make.term_query(schema, field, term, "freq")
                weight = count * boost
                clauses.append(
                    (occur.Should, clause if weight == 1 else make.boost_query(clause, weight))
                )
        if not clauses or query.among is None:
            return make.boolean_query(clauses) if clauses else None
        among = make.const_score_query(make.term_set_query(schema, "place", query.among), 0.0)
        return make.boolean_query([(occur.Must, among), (occur.Must, make.boolean_query(clauses))])


@dataclass(frozen=True)
class Bm25s(IndexedRetriever):
    """Scores, fields and words as in `Bm25`, but without Lucene's rounding of lengths (bm25s: Lù, 2024).

    A passage that scores no better than one without any word of the query is not found. Each setting has its own index.
    delta: of bm25l and bm25+, without effect on the other variants.
    """

    fields: Annotated[
        Boosts, Setting("Weights of title and text. A field without a weight is not searched.")
    ] = dataclasses.field(default_factory=lambda: {"title": 1.0, "text": 1.0})
    variant: Annotated[
        Literal["lucene", "robertson", "atire", "bm25l", "bm25+"],
        Setting("lucene | robertson | atire | bm25l | bm25+ (Kamphuis et al., ECIR 2020)."),
    ] = "lucene"
    k1: Annotated[
        NotNegative,
        Setting("Saturation of repeated words.", other="default of Lucene and Elasticsearch"),
    ] = 1.2
    b: Annotated[
        Share,
        Setting("Influence of a passage's length.", other="default of Lucene and Elasticsearch"),
    ] = 0.75
    delta: Annotated[
        NotNegative,
        Setting(
            "Lower bound of a word's weight, for bm25l and bm25+.",
            other="Lv and Zhai, SIGIR 2011, for BM25L",
        ),
    ] = 0.5

    def loads(self) -> JsonObject:
        return {"analysis": analysis.VERSION, **require_packages("bm25s", "bm25s")}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Build in memory, about 2 kB per passage."""
        import bm25s

        texts: dict[str, list[list[str]]] = {field: [] for field in self.fields}
        for passage in passages:
            for field, terms in texts.items():
                terms.append(list(map(sys.intern, analysis.terms(getattr(passage, field)))))
            advance(1)
        for field, terms in texts.items():
            # a field may be empty in all passages
            if any(terms):
                scored = bm25s.BM25(
                    k1=self.k1, b=self.b, delta=self.delta, method=self.variant, backend="numpy"
                )
                scored.index(terms, show_progress=False)
                with explain_storage_errors(folder):
                    scored.save(folder / field, show_progress=False)

    def load(self, folder: Path) -> dict[str, Any]:
        """Return the index of each field that is not empty. Its columns are mapped."""
        import bm25s

        present = [field for field in self.fields if (folder / field).is_dir()]
        return {field: bm25s.BM25.load(folder / field, mmap=True) for field in present}

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        return [[position for position, _ in scored] for scored in self.rank_scored(index, queries)]

    def rank_scored(self, index: OpenedIndex, queries: Sequence[Query]) -> Sequence[Scored]:
        """Return positions with their scores, as `rank` orders them."""
        scored = []
        for query in queries:
            scores = self.scores(index, query.text)
            scored.append(
                [(position, float(scores[position])) for position in rank_found(scores, query)]
            )
        return scored

    def scores(self, index: OpenedIndex, query: str) -> Scores:
        """Return the scores of all passages, above the score of one without any of the terms."""
        terms, scores = analysis.terms(query), np.zeros(len(index.passages))
        for field, scored in index.data.items():
            numbers = [
                number for term in terms if (number := scored.vocab_dict.get(term)) is not None
            ]
            if numbers:
                absent = scored.nonoccurrence_array
                base = 0.0 if absent is None else absent[numbers].sum(dtype="float32")
                scores += self.fields[field] * (scored.get_scores_from_ids(numbers) - base)
        return np.where(scores > 1e-6, scores, 0.0)

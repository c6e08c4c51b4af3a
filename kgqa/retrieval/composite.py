"""Retrievers made of others: reciprocal rank fusion, and the baselines KNN and MDR of KGP (Wang et al., AAAI 2024)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from kgqa.errors import ConfigError, EngineError, has_too_many_failures
from kgqa.protocols import MeasuredRetriever, Progress, Query, Rankings, Retriever
from kgqa.retrieval.dense import Dense
from kgqa.retrieval.elasticsearch import Elasticsearch
from kgqa.retrieval.search import IndexedRetriever, OpenedIndex, Scored
from kgqa.types import Passage
from kgqa.util.fs import ensure_dir, explain_storage_errors
from kgqa.util.settings import Setting
from kgqa.util.validators import Count


@dataclass(frozen=True)
class Composite(IndexedRetriever):
    """A retriever with others as fields. All index the same passages, each in the subfolder of its field's name."""

    def __post_init__(self) -> None:
        for name, part in self._parts().items():
            if getattr(part, "uses", None):
                raise ConfigError(
                    f"retriever.{name}: {type(part).__name__} calls a model. Choose another retriever"
                )

    @property
    def pools(self) -> bool:
        return all(part.pools for part in self._parts().values())

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Build one part after the other. A passage counts as indexed when all parts have it."""
        parts, steps = self._parts(), 0

        def advance_by_share(count: int) -> None:
            nonlocal steps
            before, steps = steps // len(parts), steps + count
            advance(steps // len(parts) - before)

        for name, part in parts.items():
            with explain_storage_errors(folder / name):
                ensure_dir(folder / name)
            part.build(passages, folder / name, advance_by_share)

    def open(self, passages: Sequence[Passage], folder: Path) -> OpenedIndex:
        finders = {name: part.open(passages, folder / name) for name, part in self._parts().items()}
        return OpenedIndex(self, passages, folder, finders)

    def count_lacks(self, passages: Sequence[Passage], folder: Path | None) -> Mapping[str, int]:
        """Return the counts of all parts, see `MeasuredRetriever`."""
        counts: dict[str, int] = {}
        for name, part in self._parts().items():
            if isinstance(part, MeasuredRetriever):
                counts |= part.count_lacks(passages, folder and folder / name)
        return counts

    def _parts(self) -> dict[str, Retriever]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Retriever)}


def count_failures(results: Sequence[object], step: str) -> int:
    """Return the number of exceptions among the results of the calls for an index.

    Raises:
        EngineError: too many calls failed. All replies are in the call cache.
    """
    failures = [result for result in results if isinstance(result, Exception)]
    if has_too_many_failures(len(failures), len(results)):
        raise EngineError(
            f"{step} failed for {len(failures):,} of {len(results):,} texts, first: {failures[0]}. "
            "Run the same command again: it repeats only the failed calls."
        )
    return len(failures)


def check_scores(retriever: Retriever, key: str) -> None:
    """Raise ConfigError unless the retriever's finder has `find_scored`."""
    if not (isinstance(retriever, Dense | Elasticsearch) or hasattr(retriever, "rank_scored")):
        name = type(retriever).__name__
        raise ConfigError(
            f"{key}: {name} returns no scores. Choose bm25, hybrid or a dense retriever"
        )


@dataclass(frozen=True)
class Hybrid(Composite):
    """Reciprocal rank fusion (Cormack et al., SIGIR 2009): the sum of 1 / (constant + rank), ranks counted from 1.

    Each retriever gives its first `depth` passages, or `k` if that is more. A passage that one of them did not give
    gets nothing for it. Equal scores by position.
    """

    lexical: Annotated[Retriever, Setting("Retriever by words: retriever@retriever.lexical=NAME.")]
    dense: Annotated[Retriever, Setting("Retriever by vectors: retriever@retriever.dense=NAME.")]
    constant: Annotated[
        Count, Setting("Constant that is added to each rank.", other="Cormack et al., 2009")
    ] = 60
    depth: Annotated[Count, Setting("Passages of each retriever.", ours="our choice")] = 100

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        return [[position for position, _ in scored] for scored in self.rank_scored(index, queries)]

    def rank_scored(self, index: OpenedIndex, queries: Sequence[Query]) -> Sequence[Scored]:
        """Return positions with their sums, as `rank` orders them."""
        deep = [replace(query, k=max(query.k, self.depth)) for query in queries]
        rankings = zip(*(finder.find(deep) for finder in index.finders.values()), strict=True)
        return [
            fuse_ranks(ranked, self.constant)[: query.k]
            for query, ranked in zip(queries, rankings, strict=True)
        ]


def fuse_ranks(rankings: Rankings, constant: int) -> list[tuple[int, float]]:
    """Return all positions with their sums by reciprocal rank fusion, best first, equal sums by position."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, position in enumerate(ranking, start=1):
            scores[position] += 1 / (constant + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


@dataclass(frozen=True)
class Knn(Composite):
    """KGP's KNN (supplement 8.2): the best k/2 passages of `dense` (one more if k is odd), then of `fuzzy`.

    The paper has 15 and 15. It does not say what happens to a passage in both; here the next fuzzy one takes its
    position, so that k passages are found.
    """

    dense: Annotated[Retriever, Setting("Retriever by vectors: retriever@retriever.dense=NAME.")]
    fuzzy: Annotated[Retriever, Setting("Retriever by letters.")]

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        by_meaning = index.finders["dense"].find(
            [replace(query, k=(query.k + 1) // 2) for query in queries]
        )
        by_letters = index.finders["fuzzy"].find(queries)
        return [
            list(dict.fromkeys([*meaning, *letters]))[: query.k]
            for query, meaning, letters in zip(queries, by_meaning, by_letters, strict=True)
        ]


@dataclass(frozen=True)
class Mdr(Composite):
    """Two-hop beam search over embeddings (MDR: Xiong et al., ICLR 2021), as KGP's baseline (supplement 8.2).

    The first hop searches with the question, the second with the question and a passage that the first found. The
    result is the passages of the best pairs: pair by pair, the first hop's passage before the second's, each once. At
    most first_hop × (second_hop + 1) passages are found, whatever `k` is.

    score: of a pair. KGP multiplies its two inner products (one below 0 counts as 0), MDR adds them.
    separator: between question and passage in the second query.
    """

    dense: Annotated[
        Retriever, Setting("Dense retriever with the encoder: retriever@retriever.dense=NAME.")
    ]
    first_hop: Annotated[
        Count, Setting("Passages of the first hop.", other="KGP supplement 8.2")
    ] = 15
    second_hop: Annotated[
        Count,
        Setting("Passages of the second hop for each of the first.", other="KGP supplement 8.2"),
    ] = 3
    score: Annotated[
        Literal["product", "sum"],
        Setting(
            "Score of a pair: product (KGP supplement 8.2) | sum (Xiong et al., 2021).",
            other="KGP supplement 8.2",
        ),
    ] = "product"
    separator: Annotated[
        str,
        Setting(
            "Text between question and passage in the second query. </s></s> for an encoder that was trained on "
            "RoBERTa's pairs.",
            other="KGP supplement 8.2 concatenates",
        ),
    ] = " "

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.dense, Dense):
            raise ConfigError(
                f"retriever.dense: {type(self.dense).__name__} has no embeddings. Choose a dense one"
            )

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        search = index.finders["dense"].find_scored
        firsts = search([replace(query, k=self.first_hop) for query in queries])
        hops = [
            # one more passage, because the first hop's is often its own nearest
            replace(
                query,
                text=f"{query.text}{self.separator}{index.passages[position].wording}",
                k=self.second_hop + 1,
            )
            for query, first in zip(queries, firsts, strict=True)
            for position, _ in first
        ]
        seconds = iter(search(hops))
        return [
            self._rank_pairs(query, first, seconds)
            for query, first in zip(queries, firsts, strict=True)
        ]

    def _rank_pairs(self, query: Query, first: Scored, seconds: Iterator[Scored]) -> list[int]:
        pairs = []
        # `seconds` continues with the next query's
        for (position, score), second in zip(first, seconds, strict=False):
            others = [(other, more) for other, more in second if other != position][
                : self.second_hop
            ]
            pairs += [(-self._pair_score(score, more), position, other) for other, more in others]
        ranked = chain.from_iterable((position, other) for _, position, other in sorted(pairs))
        # if there is no other passage to pair with
        alone = (position for position, _ in first)
        return list(dict.fromkeys([*ranked, *alone]))[: query.k]

    def _pair_score(self, first: float, second: float) -> float:
        return first + second if self.score == "sum" else max(first, 0.0) * max(second, 0.0)

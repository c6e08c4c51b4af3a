"""Two-hop beam search over embeddings (MDR: Xiong et al., ICLR 2021), as KGP's baseline uses it (supplement 8.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

from kgqa.errors import ConfigError
from kgqa.protocols import Finder, Query, Retriever
from kgqa.retrieval.composite import Parts
from kgqa.retrieval.dense import Dense, DenseFinder, Scored
from kgqa.types import Json, Passage
from kgqa.util.validators import Count


@dataclass(frozen=True)
class Mdr:
    """The passages of the best pairs: pair by pair, the first hop's passage before the second's, each once.

    The first hop asks with the question, the second with the question and a passage that the first found. At most
    first_hop × (second_hop + 1) passages are found, whatever `k` is.

    score: of a pair. KGP multiplies its two inner products (one below 0 counts as 0), MDR adds them.
    separator: between question and passage in the second query.
    """

    dense: Retriever
    first_hop: Count
    second_hop: Count
    score: Literal["product", "sum"]
    separator: str

    def __post_init__(self) -> None:
        if not isinstance(self.dense, Dense):
            raise ConfigError(f"retriever.dense: {type(self.dense).__name__} has no embeddings; choose a dense one")

    @property
    def pools(self) -> bool:
        return self.dense.pools

    def identity(self) -> Mapping[str, Json]:
        own = {name: getattr(self, name) for name in ("first_hop", "second_hop", "score", "separator")}
        return {"retriever": "mdr", **own, "dense": dict(self.dense.identity())}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        Parts({"dense": self.dense}).build(passages, folder, advance)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        assert isinstance(self.dense, Dense)
        return _Finder(self, passages, self.dense.open(passages, folder / "dense"))

    def pair_score(self, first: float, second: float) -> float:
        return first + second if self.score == "sum" else max(first, 0.0) * max(second, 0.0)


@dataclass(frozen=True)
class _Finder:
    settings: Mdr
    passages: Sequence[Passage]
    dense: DenseFinder

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        firsts = self.dense.find_scored([replace(query, k=self.settings.first_hop) for query in queries])
        hops = [self._second(query, place) for query, first in zip(queries, firsts, strict=True) for place, _ in first]
        seconds = iter(self.dense.find_scored(hops))
        return [self._best(query, first, seconds) for query, first in zip(queries, firsts, strict=True)]

    def close(self) -> None:
        self.dense.close()

    def _second(self, query: Query, place: int) -> Query:
        """Return the query of the second hop. It asks for one more passage: the first hop's is often its own
        nearest.
        """
        text = f"{query.text}{self.settings.separator}{self.passages[place].wording}"
        return replace(query, text=text, k=self.settings.second_hop + 1)

    def _best(self, query: Query, first: Scored, seconds: Iterator[Scored]) -> list[int]:
        pairs = []
        for (place, score), second in zip(first, seconds, strict=False):  # `seconds` goes on with the next query's
            others = [(other, more) for other, more in second if other != place][: self.settings.second_hop]
            pairs += [(-self.settings.pair_score(score, more), place, other) for other, more in others]
        ranked = chain.from_iterable((place, other) for _, place, other in sorted(pairs))
        alone = (place for place, _ in first)  # where there is no other passage to pair with
        return list(dict.fromkeys([*ranked, *alone]))[: query.k]

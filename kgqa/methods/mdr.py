"""MDR as KGP compares with it (Wang et al., AAAI 2024, supplement 8.2): two-hop beam search over embeddings.

`retriever=mdr` searches a corpus the same way and gives single passages; here the reader is given the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from kgqa.calls import Rank, gather
from kgqa.constraints import Count
from kgqa.methods.steps.paths import Path, read_paths
from kgqa.methods.steps.structure import ordinary
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question

Scored = tuple[float, Passage]


@dataclass(frozen=True)
class Mdr:
    """Fields as in conf/method/mdr.yaml, which cites the source of each value."""

    first_hop: Count
    second_hop: Count
    pairs: Count
    score: Literal["product", "sum"]
    separator: str
    max_answer_tokens: Count

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "ranker"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: the passages of the pairs, best pair first. Figures: pairs. Flags: those of the reader."""
        pool = ordinary(question.passages)
        firsts = await _best(question.text, pool, self.first_hop)
        paths = [path for _, path in sorted(await self.scored(question, pool, firsts), key=lambda pair: -pair[0])]
        answer = await read_paths(question, paths[: self.pairs], self.max_answer_tokens)
        return replace(answer, figures={"pairs": len(paths[: self.pairs])})

    async def scored(
        self, question: Question, pool: tuple[Passage, ...], firsts: list[Scored]
    ) -> list[tuple[float, Path]]:
        """Each passage of the first hop with the best others for question and passage; alone where there are none."""
        if len(pool) < 2:
            return [(score, (passage,)) for score, passage in firsts]
        seconds = await gather(
            *(
                _best(
                    self.second_query(question.text, first),
                    tuple(other for other in pool if other.id != first.id),
                    self.second_hop,
                )
                for _, first in firsts
            )
        )
        return [
            (self.pair_score(one, other), (first, second))
            for (one, first), best in zip(firsts, seconds, strict=True)
            for other, second in best
        ]

    def second_query(self, question: str, first: Passage) -> str:
        """What the second hop is looked for with, and what an encoder is trained with."""
        return f"{question}{self.separator}{first.wording}"

    def pair_score(self, first: float, second: float) -> float:
        return first + second if self.score == "sum" else max(first, 0.0) * max(second, 0.0)


async def _best(query: str, passages: tuple[Passage, ...], count: int) -> list[Scored]:
    """The `count` best, equal scores in the passages' order."""
    if not passages:
        return []
    scores = await Rank(query, tuple(passage.wording for passage in passages))
    return sorted(zip(scores, passages, strict=True), key=lambda scored: -scored[0])[:count]

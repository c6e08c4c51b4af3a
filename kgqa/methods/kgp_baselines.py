"""KGP's comparisons (Wang et al., AAAI 2024): MDR (supplement 8.2), and the quality of graphs (Figures 5 and 9)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Annotated, ClassVar, Literal

from kgqa.calls import Neighbours, Search, gather, rank
from kgqa.errors import DataError
from kgqa.methods.steps.reader import Path, read_paths
from kgqa.methods.steps.structure import text_passages
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count


@dataclass(frozen=True)
class MdrPairs:
    """Two-hop beam search over embeddings.

    `retriever=mdr` searches a corpus in the same way and returns single passages. Here the reader gets the pairs.
    """

    first_hop: Annotated[
        Count, Setting("Passages of the first search.", paper="supplement 8.2")
    ] = 15
    second_hop: Annotated[
        Count,
        Setting(
            "Passages of the second search for each of the first, 45 pairs in all.",
            paper="supplement 8.2",
        ),
    ] = 3
    pairs: Annotated[
        Count, Setting("Pairs given to the reader. Listing 4 shows 15.", paper="supplement 8.2")
    ] = 30
    score: Annotated[
        Literal["product", "sum"],
        Setting(
            "Score of a pair: product, an inner product below 0 counts as 0 | sum (Xiong et al., 2021).",
            paper="supplement 8.2",
        ),
    ] = "product"
    separator: Annotated[
        str,
        Setting(
            "Text between question and passage. </s></s> for encoders trained on RoBERTa's pairs, such as MDR's own.",
            paper="supplement 8.2",
        ),
    ] = " "
    max_answer_tokens: Annotated[
        Count,
        Setting("Maximum tokens of the answer, which has fewer than 6 words.", ours="our choice"),
    ] = 25

    uses: ClassVar[frozenset[Need]] = frozenset({"model", "ranker"})
    reads_passages: ClassVar[bool] = True

    async def answer(self, question: Question) -> Answer:
        """Answer from the best pairs of passages.

        Evidence: the passages of the pairs, best pair first. Figures: pairs. Flags: those of the reader.
        """
        pool = text_passages(question.passages)
        firsts = (await rank(question.text, pool, attrgetter("wording")))[: self.first_hop]
        paths = [
            path
            for _, path in sorted(
                await self.score_pairs(question, pool, firsts), key=lambda pair: -pair[0]
            )
        ]
        answer = await read_paths(question, paths[: self.pairs], self.max_answer_tokens)
        return replace(answer, figures={"pairs": len(paths[: self.pairs])})

    async def score_pairs(
        self, question: Question, pool: tuple[Passage, ...], firsts: list[tuple[float, Passage]]
    ) -> list[tuple[float, Path]]:
        """Pair each passage of the first hop with its best second passages. A single passage is returned alone."""
        if len(pool) < 2:
            return [(score, (passage,)) for score, passage in firsts]
        queries = [self.second_query(question.text, first) for _, first in firsts]
        others = [[passage for passage in pool if passage.id != first.id] for _, first in firsts]
        seconds = await gather(
            *(rank(*each, attrgetter("wording")) for each in zip(queries, others, strict=True))
        )
        return [
            (self.pair_score(one, other), (first, second))
            for (one, first), ranked in zip(firsts, seconds, strict=True)
            for other, second in ranked[: self.second_hop]
        ]

    def second_query(self, question: str, first: Passage) -> str:
        """Return the query of the second hop, which is also the training query of an encoder."""
        return f"{question}{self.separator}{first.wording}"

    def pair_score(self, first: float, second: float) -> float:
        return first + second if self.score == "sum" else max(first, 0.0) * max(second, 0.0)


# the passages that are compared with the gold ones
Counted = Literal["neighbours", "with_seeds"]


@dataclass(frozen=True)
class Neighbourhood:
    """Measure whether the seeds' neighbors include the gold passages."""

    seeds: Annotated[Count, Setting("Passages found first.", code="released code")] = 5
    count: Annotated[
        Counted,
        Setting(
            "What counts: `neighbours` | with_seeds, the seeds too, as in the released code.",
            paper="§3",
        ),
    ] = "neighbours"

    uses: ClassVar[frozenset[Need]] = frozenset({"pool", "graph"})

    async def answer(self, question: Question) -> Answer:
        """Measure the coverage, without an answer. Evidence: the reached passages.

        Figures: sf_em, covered (share of the gold passages), precision, reached (number of passages).

        Raises DataError: not all supporting passages are in the question's collection.
        """
        pool = text_passages(question.passages)
        if not question.support or not question.support <= {passage.id for passage in pool}:
            raise DataError(
                f"question {question.id}: its collection must have all its supporting passages"
            )
        seeds = await Search(question.text, self.seeds, pool=pool)
        around = await gather(*(Neighbours(seed, pool) for seed in seeds))
        reached = {passage.id: None for group in around for passage in group}
        if self.count == "with_seeds":
            reached |= {seed.id: None for seed in seeds}
        hit = len(question.support.intersection(reached))
        figures = {
            # 1 if all gold passages were reached
            "sf_em": float(hit == len(question.support)),
            "covered": hit / len(question.support),
            "precision": hit / len(reached) if reached else 0.0,
            "reached": float(len(reached)),
        }
        return Answer("", tuple(reached), figures=figures)

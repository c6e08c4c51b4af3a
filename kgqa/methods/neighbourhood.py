"""Measure whether the neighbors of the seeds include the gold passages: KGP's Figures 5 and 9 (§3)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Literal

from kgqa.calls import Neighbours, Search, gather
from kgqa.errors import DataError
from kgqa.methods.steps.structure import text_passages
from kgqa.protocols import Need
from kgqa.types import Answer, Question
from kgqa.util.validators import Count

Counted = Literal["neighbours", "with_seeds"]  # the passages that are compared with the gold ones


@dataclass(frozen=True, slots=True)
class Coverage:
    """The coverage of the gold passages of one question."""

    sf_em: float  # 1 if all gold passages were reached
    covered: float  # share of the gold passages that were reached
    precision: float  # share of the reached passages that are gold


def coverage(reached: Collection[str], support: frozenset[str]) -> Coverage:
    """Compare ids of reached and gold passages. The precision of no passages is 0."""
    hit = len(support.intersection(reached))
    return Coverage(float(hit == len(support)), hit / len(support), hit / len(reached) if reached else 0.0)


@dataclass(frozen=True)
class Neighbourhood:
    """The method, with the fields of conf/method/neighbourhood.yaml."""

    seeds: Count
    count: Counted

    uses: ClassVar[frozenset[Need]] = frozenset({"pool", "graph"})

    async def answer(self, question: Question) -> Answer:
        """Measure the coverage, without an answer. Evidence: the reached passages.

        Figures: sf_em, covered, precision, reached (number of passages).

        Raises:
            DataError: not all supporting passages are in the question's collection.
        """
        pool = text_passages(question.passages)
        if not question.support or not question.support <= {passage.id for passage in pool}:
            raise DataError(f"question {question.id}: its collection lacks supporting passages; nothing to measure")
        seeds = await Search(question.text, self.seeds, pool=pool)
        around = await gather(*(Neighbours(seed, pool) for seed in seeds))
        reached = {passage.id: None for group in around for passage in group}
        if self.count == "with_seeds":
            reached |= {seed.id: None for seed in seeds}
        result = coverage(reached, question.support)
        figures = {"sf_em": result.sf_em, "covered": result.covered, "precision": result.precision}
        return Answer("", tuple(reached), figures={**figures, "reached": float(len(reached))})

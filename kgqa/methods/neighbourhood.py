"""Do the neighbours of the seeds hold the supporting passages? KGP's Figures 5 and 9 (Wang et al., AAAI 2024, §3)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Literal

from kgqa.calls import Neighbours, Search, gather
from kgqa.constraints import Count
from kgqa.errors import DataError
from kgqa.methods.steps.structure import ordinary
from kgqa.protocols import Need
from kgqa.types import Answer, Question

Counted = Literal["neighbours", "with_seeds"]  # which passages are looked through for supporting ones


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of one question."""

    sf_em: float  # 1 where all supporting passages were reached
    covered: float  # share of the supporting passages that were
    precision: float  # share of those reached that support


def coverage(reached: Collection[str], support: frozenset[str]) -> Coverage:
    """Both as ids; no precision where nothing was reached counts as 0."""
    hit = len(support.intersection(reached))
    return Coverage(float(hit == len(support)), hit / len(support), hit / len(reached) if reached else 0.0)


@dataclass(frozen=True)
class Neighbourhood:
    """Fields as in conf/method/neighbourhood.yaml, which cites the source of each value."""

    seeds: Count
    count: Counted

    uses: ClassVar[frozenset[Need]] = frozenset({"pool", "graph"})

    async def answer(self, question: Question) -> Answer:
        """No answer; evidence: what was reached. Figures: sf_em, covered, precision, reached (passages).

        Raises:
            DataError: not all supporting passages are in the question's collection.
        """
        pool = ordinary(question.passages)
        if not question.support or not question.support <= {passage.id for passage in pool}:
            raise DataError(f"question {question.id}: its collection lacks supporting passages; nothing to measure")
        seeds = await Search(question.text, self.seeds, pool=pool)
        around = await gather(*(Neighbours(seed, pool) for seed in seeds))
        reached = {passage.id: None for group in around for passage in group}
        if self.count == "with_seeds":
            reached |= {seed.id: None for seed in seeds}
        found = coverage(reached, question.support)
        figures = {"sf_em": found.sf_em, "covered": found.covered, "precision": found.precision}
        return Answer("", tuple(reached), figures={**figures, "reached": float(len(reached))})

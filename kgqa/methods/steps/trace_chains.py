"""TRACE's chains (§3.3): what they are made of, their scores, and which of them a beam keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kgqa.types import Json


@dataclass(frozen=True, slots=True)
class Unit:
    """What chains are made of: a triple, a sentence or a document."""

    text: str  # as prompts show it
    parts: tuple[str, ...]  # head, relation and tail; one part otherwise
    passage_id: str


@dataclass(frozen=True, slots=True)
class Chain:
    units: tuple[Unit, ...] = ()
    score: float = 0.0  # log of the product of its choices' probabilities, the choice to stop included
    ended: bool = False  # the selector stopped it, or nothing was left to add

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(unit.text for unit in self.units)

    def then(self, unit: Unit | None, logprob: float) -> Chain:
        """This chain after one more choice; None is the choice to stop."""
        if unit is None:
            return Chain(self.units, self.score + logprob, ended=True)
        return Chain((*self.units, unit), self.score + logprob)

    def note(self) -> Json:
        triples = [[*unit.parts, unit.passage_id] for unit in self.units]
        return {"score": self.score, "ended": self.ended, "triples": triples}


def best_chains(chains: list[Chain], count: int) -> list[Chain]:
    """The likeliest chains, ties in the given order; of two with the same texts only the likelier stays.

    Two passages may state the same triple, so equal chains can be reached twice.
    """
    distinct: dict[tuple[tuple[str, ...], bool], Chain] = {}
    for chain in sorted(chains, key=lambda chain: -chain.score):
        distinct.setdefault((chain.texts, chain.ended), chain)
    return list(distinct.values())[:count]


def log_softmax(candidates: list[tuple[Unit, float]]) -> list[tuple[Unit | None, float]]:
    """The ranker's scores as log-probabilities: chains without the selector need a score (not in the paper)."""
    highest = max(score for _, score in candidates)
    log_total = highest + math.log(sum(math.exp(score - highest) for _, score in candidates))
    return [(unit, score - log_total) for unit, score in candidates]

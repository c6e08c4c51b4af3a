"""`round.json` of a round of `kgqa bootstrap`: what it was made from, where it lies, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kgqa.artefacts.metrics import UNDEFINED, Estimate

STAGE, ROUND = "bootstrap", "round.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Folders as they are typed. Round 0 is the base model: it has learnt nothing, so it has no filter.

    filtered: FA of Figure 4, percent of the tokens of right answers that backtracing filters.
    """

    filter: str
    number: int
    dev: str  # the run that evaluates it
    em: Estimate
    f1: Estimate
    run: str | None = None  # that it learnt from
    asked: int = 0  # questions of that run
    right: int = 0  # of these, answered right
    filtered: Estimate = UNDEFINED
    examples: Mapping[str, str] = field(default_factory=dict)  # by role, folders of `kgqa collect`
    kept: Mapping[str, int] = field(default_factory=dict)  # by role, how many
    adapters: Mapping[str, str] = field(default_factory=dict)  # by role, as roles.ROLE=+… has them


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What a bootstrapping came to: round 0, then by filter the others in their order."""

    title: str
    rounds: tuple[Round, ...]

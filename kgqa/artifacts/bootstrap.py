"""`round.json` of a round of `kgqa bootstrap`: what it was made from, where it lies, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping

from kgqa.artifacts.metrics import UNDEFINED, Estimate
from kgqa.artifacts.schema import Artifact

STAGE, ROUND = "bootstrap", "round.json"


class Round(Artifact):
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
    examples: Mapping[str, str] = {}  # by role, folders of `kgqa collect`
    kept: Mapping[str, int] = {}  # by role, how many
    adapters: Mapping[str, str] = {}  # by role, as roles.ROLE=+… has them


class Rounds(Artifact):
    """All rounds of a bootstrap: round 0, then by filter the others in their order."""

    title: str
    rounds: tuple[Round, ...]

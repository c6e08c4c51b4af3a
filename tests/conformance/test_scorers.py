"""Each profile gives what the authors' released scorer gave on 20,000 odd answers.

`data/scorers.json` has the sums of the authors' values and a digest of all of them, for each seed of `make_pairs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kgqa.scoring.metrics import containment, score
from tests.conformance.answer_pairs import BLOCKS, make_pairs, summarize, write_golds

DATA = json.loads((Path(__file__).parent / "data" / "scorers.json").read_text("utf-8"))
# of scorers without a profile of their own
PROFILE = {"search_r1": "2wiki"}
MEASURED: dict[str, tuple[str, ...]] = {
    "linearrag": ("contained",),
    "arag": ("contained",),
    "search_r1": ("em",),
}


def measure(scorer: str) -> Callable[[str, Sequence[Sequence[str]]], list[float | None]]:
    """Return a function with the values of kgqa that the scorer has."""
    profile = PROFILE.get(scorer, scorer)
    names = MEASURED.get(
        scorer, ("em", "f1", "contained") if scorer == "r1_searcher" else ("em", "f1")
    )

    def values(answer: str, golds: Sequence[Sequence[str]]) -> list[float | None]:
        texts = [write_golds(gold) for gold in golds]
        scores: dict[str, float | None] = {}
        if names != ("contained",):
            scores |= score(answer, texts, profile)
        if "contained" in names:
            scores["contained"] = containment(answer, texts, profile)
        return [scores[name] for name in names]

    return values


@pytest.mark.slow
@pytest.mark.parametrize("scorer", DATA["scorers"])
def test_profile_equals_released_scorer(scorer: str) -> None:
    if scorer == "ircot":
        pytest.importorskip("ftfy")
    ours: list[Any] = []
    for seed in range(BLOCKS):
        values = measure(scorer)
        ours.append(summarize(values(answer, golds) for answer, golds in make_pairs(seed)))
    assert ours == DATA["scorers"][scorer]["blocks"]

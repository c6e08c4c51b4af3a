"""KGP's figures 5 and 9 by hand: what the seeds' neighbours hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgqa.errors import DataError
from kgqa.testing import drive
from kgqa.types import Answer, Question
from tests.composed import built_method
from tests.unit.kgp_world import COMPOSER, FJORD, OPERA, QUESTION, TOWN, World

SUPPORTED = replace(QUESTION, support=frozenset({OPERA.id, TOWN.id}))


def measured(*overrides: str, question: Question = SUPPORTED) -> Answer:
    answer: Answer = drive(built_method("neighbourhood", *overrides).answer(question), World())
    return answer


def test_the_papers_text_counts_the_neighbours_of_the_seeds() -> None:
    answer = measured("seeds=1")  # the opera's neighbours: composer and fjord
    assert answer.evidence == (COMPOSER.id, FJORD.id)
    assert answer.figures == {"sf_em": 0.0, "covered": 0.0, "precision": 0.0, "reached": 2.0}


def test_the_released_code_counts_the_seeds_too() -> None:
    answer = measured("seeds=1", "count=with_seeds")
    assert answer.figures == {"sf_em": 0.0, "covered": 0.5, "precision": pytest.approx(1 / 3), "reached": 3.0}
    assert measured("seeds=2", "count=with_seeds").figures["sf_em"] == 1.0


def test_a_question_whose_support_is_not_in_its_collection_is_an_error() -> None:
    with pytest.raises(DataError, match="must have all its supporting passages"):
        measured(question=replace(QUESTION, support=frozenset({"missing:Oslo"})))
    with pytest.raises(DataError, match="must have all its supporting passages"):
        measured(question=QUESTION)

"""What KnowTrace's tables compare: #Tok of Table 2, passage tokens in all calls that show them; FA of Figure 4."""

from __future__ import annotations

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import as_json
from kgqa.experiment.answers import without_tokens
from kgqa.reproduce.tables import load_table
from kgqa.scoring.published_delta import read_measured_value
from kgqa.scoring.questions import score_question
from kgqa.scoring.summary import summarise
from kgqa.types import Answer, Passage, Question
from tests.thoughts_world import ALDER, BIRCH, CEDAR, CONCLUDED, IRCOT, WROTE, World


def words(*passages: Passage) -> int:
    return sum(len(f"Title: {passage.title} {passage.text}".split()) for passage in passages)


def test_ircot_counts_the_passages_of_each_thought_and_of_the_reader() -> None:
    answer = World([WROTE, CONCLUDED, "1901"], {"wrote": (BIRCH,), "": (ALDER, CEDAR)}).answer(IRCOT)
    assert answer.figures == {"passage_tokens": words(ALDER, CEDAR) + 2 * words(ALDER, CEDAR, BIRCH)}
    assert answer.context_tokens == words(ALDER, CEDAR, BIRCH)


def test_estimated_tokens_are_not_reported() -> None:
    answer = Answer("Gorm", context_tokens=5, figures={"passage_tokens": 5, "pairs": 2})
    assert without_tokens(answer) == Answer("Gorm", figures={"pairs": 2})


def test_filtered_to_all_pools_the_tokens_of_right_answers() -> None:
    """KnowTrace §4.4: a long trajectory weighs more than a short one, and a wrong one nothing."""
    given = [("Gorm", 100, 50), ("Gorm", 10, 0), ("Oslo", 1000, 1000)]
    rows = [
        score_question(
            Question(str(number), "Where?", ("Gorm",)),
            Prediction(str(number), text, figures={"written_tokens": written, "filtered_tokens": filtered}),
            "hotpotqa",
        )
        for number, (text, written, filtered) in enumerate(given)
    ]
    [metric] = [metric for metric in load_table("knowtrace/figure4").metrics if metric.name == "FA"]
    ours = read_measured_value(as_json(summarise(rows)), metric)
    assert ours is not None
    assert ours.mean == pytest.approx(100 * 50 / 110)

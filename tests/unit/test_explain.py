"""The causes and signs of wrong answers."""

from __future__ import annotations

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.experiment.explain import answers_yes_no, find_cause, is_echo, show_difference
from kgqa.scoring.comparison import compare
from kgqa.scoring.questions import ScoredQuestion, score_question
from kgqa.types import Passage, Question

GOLD, OTHER = Passage.of("Oslo", "Oslo is a city."), Passage.of("Bergen", "Bergen is a city.")


def scored(
    answer: str | None, *evidence: Passage, text: str = "Where was she born?", gold: str = "Oslo"
) -> ScoredQuestion:
    question = Question("q", text, (gold,), (GOLD, OTHER), frozenset({GOLD.id}))
    error = None if answer is not None else "gone"
    prediction = Prediction("q", answer, error, tuple(passage.id for passage in evidence))
    return score_question(question, prediction, "2wiki")


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (scored("Oslo"), "right"),
        (scored(None), "failed"),
        (scored(""), "no answer"),
        (scored("I don't know"), "no answer"),
        (scored("She was born in Oslo", OTHER), "format"),
        (scored("Bergen"), "no evidence"),
        (scored("Bergen", OTHER), "retrieval"),
        (scored("Bergen", GOLD, OTHER), "reading"),
    ],
    ids=["right", "failed", "empty", "abstention", "format", "no passage", "retrieval", "reading"],
)
def test_cause_of_an_answer(row: ScoredQuestion, cause: str) -> None:
    assert find_cause(row) == cause


@pytest.mark.parametrize(
    ("text", "gold", "answer", "expected"),
    [
        ("Where was she born?", "Oslo", "No.", True),
        ("Which of them is older?", "Anna", "yes", True),
        ("Are both from the same country?", "yes", "no", False),
        ("Did she meet him, and where?", "yes", "no", False),
        ("Where was she born?", "Oslo", "Norway", False),
        ("Is it Oslo or Bergen?", "Oslo", "no", False),
    ],
)
def test_yes_to_a_question_with_wh_words(text: str, gold: str, answer: str, expected: bool) -> None:
    assert answers_yes_no(scored(answer, text=text, gold=gold)) is expected


SHARED = "Question: Who wrote The Salt Lantern?\nAnswer: Maude Quillane\n\n"


@pytest.mark.parametrize(
    ("answer", "rest", "expected"),
    [
        ("Maude Quillane", "Question: Where?", True),
        ("maude quillane.", "Question: Where?", True),
        ("Maude Quillane", "Maude Quillane was born here. Question: Who?", False),
        ("Oslo", "Question: Where?", False),
        ("a", "Question: Where?", False),
    ],
    ids=["copied", "normalized", "in a passage", "its own", "too short"],
)
def test_echo_is_only_in_the_shared_part(answer: str, rest: str, expected: bool) -> None:
    assert is_echo(answer, SHARED + rest, SHARED) is expected


@pytest.mark.parametrize(
    ("count", "text"), [(20, "+100.0 (p <0.001)*"), (2, "+100.0 (p 0.500)")], ids=["small", "large"]
)
def test_no_p_value_is_shown_as_zero(count: int, text: str) -> None:
    (difference,) = compare({"EM": {"A": [1.0] * count, "B": [0.0] * count}}, seed=0)
    assert show_difference(difference) == text

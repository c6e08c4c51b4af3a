"""Containment, length and abstention: what stands beside EM and F1."""

from __future__ import annotations

import pytest

from kgqa.scoring.answer_style import abstains, contains_gold, word_count

ABSTAINED = [
    "",
    " ",
    "The",
    "N/A",
    "Unknown",
    "unknown.",
    "I don't know.",
    "I do not know the answer to this question.",
    "I cannot determine the answer from the given passages.",
    "Not mentioned",
    "not provided",
    "No information",
    "No information available",
    "Cannot be determined",
    "It cannot be determined from the passages.",
    "It is not mentioned in the passages who wrote it.",
    "It is not possible to say.",
    "There is no information about his mother.",
    "There is not enough information to answer.",
    "Insufficient information.",
    "The passages do not mention the founder.",
    "The provided context does not specify the year.",
    "I'm not sure.",
    "Unable to determine",
    "The answer is not provided",
    "Unanswerable",
]
ANSWERED = [
    "no",
    "yes",
    "none",
    "None",
    "Nobody",
    "Nobody Knows",
    "I Don't Want to Know",
    "Unknown Pleasures",
    "Not Without My Daughter",
    "No Country for Old Men",
    "The Unknown Soldier",
    "0",
    "NA-17",
    "Paris, which the passages do not mention",
]


@pytest.mark.parametrize("answer", ABSTAINED)
def test_saying_that_there_is_no_answer_is_abstaining(answer: str) -> None:
    assert abstains(answer)


@pytest.mark.parametrize("answer", ANSWERED)
def test_an_answer_with_such_words_in_it_is_an_answer(answer: str) -> None:
    assert not abstains(answer)


@pytest.mark.parametrize(
    ("answer", "golds", "contained"),
    [
        ("It was written in Paris, France.", ["Paris"], 1),
        ("The Paris.", ["paris"], 1),
        ("Parisian", ["Paris"], 0),
        ("I do not know", ["no"], 0),
        ("No, it is not.", ["no"], 1),
        ("Rolling on the river", ["river rolling"], 0),
        ("He is known as J.R.R. Tolkien", ["Tolkien, J.R.R.", "J. R. R. Tolkien", "JRR Tolkien"], 1),
        ("City of Light", ["Paris", "city of light"], 1),
        ("Paris", ["The"], 0),
        ("", ["the"], 1),
        ("", ["Paris"], 0),
    ],
)
def test_the_words_of_a_gold_answer_stand_in_the_answer(answer: str, golds: list[str], contained: int) -> None:
    assert contains_gold(answer, golds) == contained


def test_words_are_counted_as_written() -> None:
    assert word_count(" The  Candle Bridge ") == 3
    assert word_count("") == 0

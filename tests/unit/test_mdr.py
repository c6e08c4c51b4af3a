"""MDR as KGP's baseline, with scores by hand: pairs of passages for the reader."""

from __future__ import annotations

from typing import Any

from kgqa.calls import Call, CountTokens, Generate, Rank
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests.composed import built_method

A, B, C = (Passage.of(letter, f"text {letter}") for letter in "abc")
QUESTION = Question("q", "Which?", ("b",), (A, B, C))
# the question's score of each text, and what is added where it already holds a passage
FIRST = {"text a": 0.9, "text b": 0.5, "text c": -0.1}
SECOND = {"text a": {"text b": 0.2, "text c": 0.8}, "text b": {"text a": 0.9, "text c": 0.1}}


def answered(*overrides: str, question: Question = QUESTION) -> tuple[Answer, list[Call[Any]]]:
    calls: list[Call[Any]] = []

    def reply(call: Call[Any]) -> Any:
        calls.append(call)
        match call:
            case Generate():
                return Completion(" b")
            case CountTokens():
                return 1
            case Rank():
                known = call.query.removeprefix("Which?").strip()
                scores = SECOND[known] if known else FIRST
                return tuple(scores[text] for text in call.texts)
        raise AssertionError(call)

    return drive(built_method("mdr", *overrides).answer(question), reply), calls


def contexts(calls: list[Call[Any]]) -> str:
    (asked,) = [call for call in calls if isinstance(call, Generate)]
    return asked.prompt.messages[0].content


def test_the_reader_is_given_pairs_in_the_order_of_the_product_of_their_scores() -> None:
    answer, calls = answered("first_hop=2", "second_hop=2")
    # a c: 0.72, b a: 0.45, a b: 0.18, b c: 0.05
    wanted = "1: text a\ntext c\n2: text b\ntext a\n3: text a\ntext b\n4: text b\ntext c\n"
    assert wanted in contexts(calls)
    assert answer.evidence == (A.id, C.id, B.id)
    assert answer.figures == {"pairs": 4}
    assert answer.text == "b"


def test_xiongs_score_is_the_sum() -> None:
    _, calls = answered("first_hop=2", "second_hop=1", "score=sum")
    assert "1: text a\ntext c\n2: text b\ntext a\n" in contexts(calls)  # 1.7 and 1.4

"""The reader and the baselines without, with all and with the gold passages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate
from kgqa.errors import DataError, PromptTooLong
from kgqa.methods.baselines import AllDocuments, Golden, NoContext
from kgqa.protocols import Method
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question

PASSAGES = tuple(Passage.of(f"T{i}", f"text {i}") for i in range(3))
QUESTION = Question("q1", "Which one?", ("T2",), PASSAGES, frozenset({PASSAGES[2].id, PASSAGES[1].id}))


def answer(
    method: Method, completion: Completion | Exception, question: Question = QUESTION
) -> tuple[Answer, Generate]:
    generated: list[Generate] = []

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, CountTokens):
            return len(call.text.split())
        assert isinstance(call, Generate)
        generated.append(call)
        return completion

    result = drive(method.answer(question), reply)
    return result, generated[0]


def test_no_context_shows_the_question_alone() -> None:
    result, call = answer(NoContext("zero_shot", 25), Completion(" T2"))
    assert result == Answer("T2", context_tokens=0)
    assert "ontext" not in call.prompt.messages[0].content
    assert call.max_tokens == 25
    assert call.role == "reader"


def test_all_documents_are_shown_in_their_original_order() -> None:
    result, call = answer(AllDocuments(25), Completion("T2"))
    context = "Title: T0\ntext 0\n\nTitle: T1\ntext 1\n\nTitle: T2\ntext 2"
    assert context in call.prompt.messages[0].content
    assert result.evidence == tuple(passage.id for passage in PASSAGES)
    assert result.context_tokens == len(context.split())


def test_golden_shows_the_supporting_passages_in_their_original_order() -> None:
    result, call = answer(Golden("zero_shot", 25), Completion("T2"))
    assert "Title: T1\ntext 1\n\nTitle: T2\ntext 2" in call.prompt.messages[0].content
    assert "T0" not in call.prompt.messages[0].content
    assert result.evidence == (PASSAGES[1].id, PASSAGES[2].id)


def test_golden_refuses_a_question_without_support() -> None:
    with pytest.raises(DataError, match="question q1: no passage is marked as supporting; method=golden needs one"):
        answer(Golden("zero_shot", 25), Completion("T2"), replace(QUESTION, support=frozenset({"elsewhere"})))


@pytest.mark.parametrize(
    ("completion", "text", "flags"),
    [
        (Completion(" Paris.\nBecause it is."), "Paris.", {}),
        (Completion('"Paris"'), '"Paris"', {}),
        (Completion("\n\n"), "", {"empty_answer": 1}),
        (Completion("It is the town of", "length"), "It is the town of", {"truncated_answer": 1}),
        (Completion("Paris\nIt is the", "length"), "Paris", {}),
    ],
)
def test_the_answer_is_the_first_line_of_the_reply(completion: Completion, text: str, flags: dict[str, int]) -> None:
    result, _ = answer(NoContext("zero_shot", 25), completion)
    assert (result.text, result.flags) == (text, flags)


def test_a_prompt_that_is_too_long_is_the_questions_error() -> None:
    with pytest.raises(PromptTooLong):
        answer(AllDocuments(25), PromptTooLong(9000, 8192))


@pytest.mark.parametrize("method", [NoContext("zero_shot", 25), AllDocuments(25), Golden("zero_shot", 25)])
def test_baselines_ask_nothing_but_a_model(method: Method) -> None:
    assert method.uses == {"model"}

"""Changed passages of questions, each by its definition."""

from __future__ import annotations

import pytest

from kgqa.datasets.perturbing import Perturbation
from kgqa.errors import ConfigError, DataError
from kgqa.scoring.normalization import normalize
from kgqa.types import Passage, Question


def question(number: int, answer: str, text: str = "Where was she born?") -> Question:
    gold = Passage.of(
        f"Person {number}",
        f"She was born in {answer}. {answer} is small.",
        (f"She was born in {answer}.",),
    )
    others = [Passage.of(f"Other {number}.{n}", f"Nothing {number}.{n} to see.") for n in range(4)]
    facts = ((gold.id, f"She was born in {answer}."),)
    return Question(
        f"q{number}",
        text,
        (answer,),
        (*others[:2], gold, *others[2:]),
        frozenset({gold.id}),
        facts=facts,
    )


QUESTIONS = [
    question(number, answer) for number, answer in enumerate(["Oslo", "Bergen", "Tromsø", "Hamar"])
]


def perturbed(value: str, seed: int = 0, questions: list[Question] = QUESTIONS) -> list[Question]:
    return Perturbation.of(value).apply(questions, questions, seed)


def test_remove_gold_leaves_only_other_passages() -> None:
    questions = list(perturbed("remove_gold"))
    assert [len(question.passages) for question in questions] == [4] * len(QUESTIONS)
    assert [question.support for question in questions] == [
        question.support for question in QUESTIONS
    ]
    left = [
        question.support & {passage.id for passage in question.passages} for question in questions
    ]
    assert left == [frozenset()] * len(QUESTIONS)


def test_shuffle_changes_only_the_order() -> None:
    new = perturbed("shuffle")
    assert [{passage.id for passage in each.passages} for each in new] == [
        {passage.id for passage in each.passages} for each in QUESTIONS
    ]
    assert new != QUESTIONS
    assert new == perturbed("shuffle") != perturbed("shuffle", seed=1)


def test_distractors_lack_the_answer() -> None:
    for old, new in zip(QUESTIONS, perturbed("distractors:3"), strict=True):
        added = [passage for passage in new.passages if passage not in old.passages]
        assert len(added) == 3
        assert not any(old.answers[0] in passage.text for passage in added)
        assert set(old.passages) <= set(new.passages)


def test_swapped_answer_replaces_gold_everywhere() -> None:
    for old, new in zip(QUESTIONS, perturbed("swap_answer"), strict=True):
        assert new.answers != old.answers
        text = " ".join(f"{passage.title} {passage.text}" for passage in new.passages)
        assert normalize(old.answers[0]) not in normalize(text)
        assert text.count(new.answers[0]) == 2
        (gold,) = (passage for passage in new.passages if passage.id in new.support)
        assert new.facts == ((gold.id, f"She was born in {new.answers[0]}."),)
        assert gold.sentences == (f"She was born in {new.answers[0]}.",)


@pytest.mark.parametrize(
    ("answer", "text"),
    [("yes", "Are both old?"), ("1901", "When was she born?"), ("Anna", "Who was she?")],
    ids=["yes", "only year", "only person"],
)
def test_question_without_other_answers_is_skipped(answer: str, text: str) -> None:
    ids = [
        each.id
        for each in perturbed("swap_answer", questions=[*QUESTIONS, question(9, answer, text)])
    ]
    assert ids == [each.id for each in QUESTIONS]


def test_other_answer_comes_from_the_next_question() -> None:
    answers = [("Ann", "Anne"), ("anne",), (" ANN ",), ("Bob",)]
    named = [Question(f"q{number}", "Who?", golds) for number, golds in enumerate(answers)]
    assert [each.answers for each in perturbed("other_answer", questions=named)] == [
        ("Bob",), (" ANN ",), ("Bob",), ("Ann",)
    ]  # fmt: skip


def test_question_without_another_answer_is_skipped() -> None:
    with pytest.raises(DataError, match="no question has passages or answers that it can change"):
        perturbed(
            "other_answer",
            questions=[Question("q1", "Is it?", ("yes",)), Question("q2", "Is it?", ("Yes",))],
        )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("remove", "no such perturbation. Did you mean remove_gold"),
        ("distractors", "distractors:K"),
        ("distractors:0", "distractors:K"),
        ("shuffle:3", "expected shuffle"),
    ],
)
def test_wrong_perturbation_is_rejected(value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Perturbation.of(value)


def test_questions_without_passages_cannot_be_changed() -> None:
    with pytest.raises(DataError, match="no question has passages"):
        perturbed("remove_gold", questions=[Question("q", "Where?", ("Oslo",))])

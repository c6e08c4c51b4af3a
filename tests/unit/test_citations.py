"""Cited passages and sentences against gold facts, and citations that were changed on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.trace import TracedQuestion
from kgqa.scoring.citations import (
    CitationScores,
    cite_passages,
    cite_sentences,
    find_sentence,
    split_sentences,
)
from kgqa.types import Passage, Question

ANSWERS = 200
Pair = tuple[Any, Any]


def traced(
    number: int, *, cites: list[tuple[int, str]] | None = None, evidence: list[int] | None = None
) -> TracedQuestion:
    """Return a question with two gold passages of six, and the chains or the evidence of its answer."""
    passages = tuple(
        Passage.of(
            f"Person {number}.{n}", f"Person {n} was born in town {n}. Person {n} wrote book {n}."
        )
        for n in range(6)
    )
    gold = passages[:2]
    facts = ((gold[0].id, "Person 0 was born in town 0."), (gold[1].id, "Person 1 wrote book 1."))
    support = frozenset(passage.id for passage in gold)
    question = Question(f"q{number}", "Where?", ("town 0",), passages, support, facts=facts)
    notes: dict[str, Any] = {}
    if cites is not None:
        triples = [[f"Person {n}", relation, f"thing {n}", passages[n].id] for n, relation in cites]
        notes = {"chains": [{"score": 0, "ended": True, "triples": triples}]}
    used = tuple(passages[n].id for n in evidence or ())
    return TracedQuestion(
        question, Prediction(question.id, "town 0", evidence=used, notes=notes), ()
    )


RIGHT = [(0, "was born in town"), (1, "wrote book")]


def test_failed_question_cites_nothing_wrong() -> None:
    failed = Prediction("q0", None, error="no reply", evidence=())
    question = replace(traced(0), prediction=failed)
    assert (cite_passages(question), cite_sentences(question)) == (CitationScores(),) * 2


@pytest.mark.parametrize(
    ("question", "passages", "sentences"),
    [
        (traced(0, cites=RIGHT), (1, 1), (1, 1)),
        (traced(0, cites=[(0, "wrote book"), (1, "wrote book")]), (1, 1), (0.5, 0.5)),
        (
            traced(0, cites=[(0, "was born in town"), (4, "was born in town")]),
            (0.5, 0.5),
            (0.5, 0.5),
        ),
        (traced(0, evidence=[0, 1, 2, 3]), (0.5, 1), (None, None)),
        (traced(0, evidence=[]), (None, 0), (None, None)),
    ],
    ids=["right", "other sentence", "other passage", "evidence", "nothing"],
)
def test_citations_of_an_answer(
    question: TracedQuestion, passages: tuple[Any, Any], sentences: tuple[Any, Any]
) -> None:
    assert cite_passages(question) == CitationScores(*passages)
    assert cite_sentences(question) == CitationScores(*sentences)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            [(0, "Person 0 comes from town 0, where she was born."), (1, "Person 1 wrote it.")],
            (1, 1),
        ),
        ([(0, "Person 0 wrote the book 0."), (1, "Person 1 wrote it.")], (0.5, 0.5)),
        ([(0, "Person 0 was born in town 0.")], (1, 0.5)),
        ([], (None, 0)),
    ],
    ids=["right", "other sentence", "one of two", "none"],
)
def test_cited_texts_are_found_in_their_passages(
    texts: list[tuple[int, str]], expected: tuple[Any, Any]
) -> None:
    plain = traced(0, evidence=[0, 1])
    notes = {"cited": [[text, plain.question.passages[n].id] for n, text in texts]}
    noted = replace(plain, prediction=replace(plain.prediction, notes=notes))
    assert cite_sentences(noted) == CitationScores(*expected)


def test_unknown_gold_passages_define_nothing() -> None:
    question = traced(0, evidence=[0])
    unknown = replace(question, question=replace(question.question, support=frozenset(), facts=()))
    assert cite_passages(unknown) == cite_sentences(unknown) == CitationScores()


def test_first_of_equal_sentences_is_cited() -> None:
    assert find_sentence(["it", "is", "here"], ["It is old.", "It is new."]) == "it is old"


def test_gold_sentences_stay_whole() -> None:
    passage = Passage.of("A", "He was St. John. He wrote. It was good.")
    question = Question(
        "q", "Who?", ("John",), (passage,), facts=((passage.id, "He was St. John."),)
    )
    assert split_sentences(passage, question) == ["He was St. John.", " He wrote.", "It was good."]


def test_wrong_citations_are_reported() -> None:
    generator = np.random.default_rng(60)
    wrong = generator.random(ANSWERS) < 0.5
    errors = []
    for number in range(ANSWERS):
        cites = list(RIGHT)
        # one citation is moved to another passage, or to the other sentence
        if wrong[number]:
            place, moves = int(generator.integers(2)), bool(generator.integers(2))
            n, relation = cites[place]
            other = {"wrote book": "was born in town", "was born in town": "wrote book"}[relation]
            cites[place] = (int(generator.integers(2, 6)), relation) if moves else (n, other)
        question = traced(number, cites=cites)
        scores = [cite_passages(question), cite_sentences(question)]
        errors.append(any(score.precision != 1 or score.recall != 1 for score in scores))
    assert np.mean(np.array(errors)[wrong]) >= 0.95
    assert not np.array(errors)[~wrong].any()

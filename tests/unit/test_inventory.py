"""Counts of a dataset and its corpus, and the questions that a verification calls valid."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.datasets import verified
from kgqa.datasets.inventory import count_passages, count_questions
from kgqa.errors import DataError
from kgqa.types import Passage, Question

ALDER = Passage.of("Alder", "Alder wrote Birch.")
BIRCH = Passage.of("Birch", "Birch is a book.")
EMPTY = Passage.of("Birch", " ")
QUESTION = Question(
    "q",
    "When?",
    ("1901", "in 1901"),
    (ALDER, BIRCH, BIRCH),
    frozenset({ALDER.id, "missing:Cedar"}),
    hops=2,
)


def test_questions_and_their_passages_are_counted() -> None:
    counts, gold = count_questions([QUESTION, None])
    assert counts == {
        "questions": 1,
        "gold answers, aliases included": 2,
        "questions with aliases": 1,
        "passages given": 3,
        "passages pinned": 0,
        "gold passages": 2,
        "gold passages among those given": 1,
        "questions of 2 hops": 1,
        "questions of no type": 1,
        "skipped: no answer": 1,
        "gold passages that are not given": 1,
        "passages given twice to a question": 1,
    }
    assert gold.ids == QUESTION.support


def test_given_passages_without_text_are_counted() -> None:
    counts, _ = count_questions([Question("q", "When?", ("1901",), (ALDER, EMPTY))])
    assert counts["passages given without text"] == 1
    assert counts["questions without gold passages"] == 1
    assert counts["questions of unknown hops"] == 1


def test_passages_of_a_corpus_are_counted_once() -> None:
    _, gold = count_questions([QUESTION])
    assert count_passages([ALDER, BIRCH, ALDER, EMPTY], gold) == {
        "passages in the corpus": 4,
        "of them distinct": 3,
        "distinct titles": 2,
        "gold passages of the questions": 2,
        "of them in the corpus": 1,
        "gold titles of the questions": 0,
        "of these titles in the corpus": 0,
        "repeated passages (stored once)": 1,
        "passages without text": 1,
    }


VERDICTS = {"q1": "valid", "q2": "noise", "q3": "unverified", "q4": None}


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Verdicts of a run over the dataset with the hash "a", which a test can change."""
    dataset = SimpleNamespace(sha256="a", name="demo")
    run = SimpleNamespace(manifest=SimpleNamespace(dataset=dataset))
    verdicts: dict[str, str | None] = dict(VERDICTS)
    monkeypatch.setattr("kgqa.artifacts.run.FinishedRun.read", lambda _: run)
    monkeypatch.setattr(
        verified,
        "run_predictions",
        lambda _: [
            Prediction(name, "", flags={verdict: 1} if verdict else {})
            for name, verdict in verdicts.items()
        ],
    )
    return verdicts


@pytest.mark.usefixtures("verdicts")
def test_valid_questions_are_those_of_the_verification() -> None:
    assert verified.read_labels(Path("run"), "a") == {"q1": "valid", "q2": "noise"}
    assert verified.valid_ids(Path("run"), "a") == {"q1"}


@pytest.mark.usefixtures("verdicts")
def test_verification_of_another_file_is_rejected() -> None:
    with pytest.raises(
        DataError, match=r"dataset\.verified=run: run: it verified another file of dataset=demo"
    ):
        verified.valid_ids(Path("run"), "b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            dict.fromkeys(VERDICTS), "not a finished run with method=verify", id="no verdicts"
        ),
        pytest.param({"q1": "noise"}, "no question in it is valid", id="none valid"),
    ],
)
def test_verification_without_valid_ones_is_rejected(
    changes: dict[str, str | None], message: str, verdicts: dict[str, str | None]
) -> None:
    verdicts.update(changes)
    with pytest.raises(DataError, match=message):
        verified.valid_ids(Path("run"), "a")

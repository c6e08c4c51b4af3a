"""What `metrics.json` says about a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kgqa.artifacts.metrics import UNDEFINED, Estimate, FoundAndRight, Wording
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import as_json
from kgqa.errors import ConfigError, DataError
from kgqa.scoring.intervals import estimate
from kgqa.scoring.metrics import PROFILES
from kgqa.scoring.questions import ScoredQuestion, SupportScores, score_question, score_support
from kgqa.scoring.summary import summarise
from kgqa.types import Passage, Question

TEN = "abcdefghij"
GIVEN = tuple(Passage(letter, letter.upper(), "") for letter in TEN)
ASKED: dict[str, Any] = {
    "text": "Where?",
    "answers": ("Paris", "City of Light"),
    "passages": GIVEN,
    "support": frozenset({"a", "b"}),
    "hops": 2,
    "type": "bridge",
}
ANSWERED: dict[str, Any] = {
    "answer": "Paris",
    "evidence": ("a", "b"),
    "context_tokens": 100,
    "flags": {"malformed_triple": 2},
    "figures": {"hops": 2.0},
}
LOST: dict[str, Any] = {
    "answer": None,
    "error": "prompt too long",
    "evidence": (),
    "context_tokens": None,
    "hops": 3,
    "flags": {},
    "figures": {},
}


def row(question_id: str = "q1", profile: str = "musique", **changed: Any) -> ScoredQuestion:
    """A right answer, and what is different."""
    asked = {**ASKED, **{key: value for key, value in changed.items() if key in ASKED}}
    answered = {**ANSWERED, **{key: value for key, value in changed.items() if key not in ASKED}}
    return score_question(Question(question_id, **asked), Prediction(question_id, **answered), profile)


RIGHT = row()
HALF = row(
    "q2",
    answer="Lake Geneva",  # F1 against "Geneva": precision 1/2, recall 1
    answers=("Geneva",),
    evidence=("a", "x", "y", "z"),
    context_tokens=300,
    hops=3,
    type="comparison",
    flags={"malformed_triple": 1, "empty_chain": 1},
    figures={"hops": 3.0},
)
FAILED = row("q3", **LOST)
EMPTY = row("q4", answer=" ", evidence=(), context_tokens=0, hops=4, flags={})


def test_counts_and_means() -> None:
    metrics = summarise([RIGHT, HALF, FAILED, EMPTY])
    assert (metrics.questions, metrics.failed, metrics.answerless, metrics.profile) == (4, 1, 1, "musique")
    assert metrics.flags == {"empty_chain": 1, "malformed_triple": 3}
    assert summarise([RIGHT, HALF, FAILED]).context_tokens == pytest.approx(200)
    assert summarise([FAILED]).context_tokens is None
    assert summarise([RIGHT, HALF, FAILED]).figures == {"hops": 2.5}


def test_invalid_rows() -> None:
    with pytest.raises(ValueError, match="no questions"):
        summarise([])
    with pytest.raises(ValueError, match="2wiki, musique"):
        summarise([RIGHT, row("q2", "2wiki")])
    with pytest.raises(ConfigError, match="Did you mean musique"):
        row(profile="musiqe")
    with pytest.raises(DataError, match="question q1 has no answers, so its answer cannot be scored"):
        row(answers=())


def test_scores_are_percentages_with_failed_questions_as_zero() -> None:
    scores = summarise([RIGHT, HALF, FAILED, EMPTY]).scores
    assert scores["em"].mean == pytest.approx(25)
    assert scores["f1"].mean == pytest.approx(100 * (1 + 2 / 3) / 4)
    assert scores["em"].n == scores["f1"].n == 4
    f1 = as_json(scores["f1"])
    assert 0 <= f1["low"] < f1["mean"] < f1["high"] <= 100


def test_support_figures_are_means_over_the_questions_that_define_them() -> None:
    scores = summarise([RIGHT, HALF, FAILED, EMPTY]).scores
    assert scores["support_recall"].mean == pytest.approx(100 * (1 + 0.5 + 0 + 0) / 4)
    assert scores["support_recall"].n == 4
    assert scores["support_precision"].mean == pytest.approx(100 * (1 + 0.25) / 2)
    assert scores["support_precision"].n == 2
    assert scores["support_error_rate"].mean == pytest.approx(100 * (0 + 0.75) / 2)
    assert scores["support_error_rate"].n == 2
    assert scores["support_f1"].mean == pytest.approx(100 * (1 + 1 / 3) / 4)


def test_containment_counts_an_answer_in_a_sentence_and_a_failed_question_as_zero() -> None:
    scores = summarise([RIGHT, HALF, FAILED, row("q5", answer="It is in Paris.")]).scores
    assert scores["containment"] == estimate([1.0, 1.0, 0.0, 1.0], 0)
    assert scores["em"].mean == 25


def test_length_and_abstention_are_of_answers_that_were_given() -> None:
    wording = summarise([RIGHT, HALF, FAILED, EMPTY, row("q5", answer="I don't know")]).wording
    assert wording == Wording(words=(1 + 2 + 0 + 3) / 4, abstained=50.0)
    assert summarise([FAILED]).wording == Wording(words=None, abstained=None)


def test_right_and_wrong_are_counted_by_whether_all_gold_passages_were_used() -> None:
    lucky = row("q5", evidence=("a",))
    assert summarise([RIGHT, HALF, FAILED, EMPTY, lucky]).found_and_right == FoundAndRight(
        found_right=1, found_wrong=0, missed_right=1, missed_wrong=3
    )
    assert summarise([row(support=frozenset())]).found_and_right is None


def test_a_failed_question_without_known_support_does_not_enter_recall() -> None:
    scores = summarise([RIGHT, row("q3", **LOST, support=frozenset())]).scores
    assert scores["support_recall"] == Estimate(mean=100.0, low=100.0, high=100.0, n=1)


def test_a_score_no_question_defines_is_null_and_not_zero() -> None:
    scores = summarise([row(support=frozenset())]).scores
    assert scores["support_recall"] == UNDEFINED


def test_where_every_question_failed_no_score_is_zero() -> None:
    metrics = summarise([FAILED, FAILED])
    assert {score.n for score in metrics.scores.values()} == {0}
    assert (metrics.by_hops, metrics.by_type, metrics.profiles) == ({}, {}, {})


def test_a_text_left_beside_an_error_is_not_an_answer() -> None:
    metrics = summarise([row(error="the engine gave up"), EMPTY])
    assert metrics.failed == 1
    assert metrics.scores["em"].mean == 0
    assert metrics.scores["support_recall"].mean == 0
    assert metrics.scores["support_precision"].n == 0


def test_the_given_passages_are_scored_as_if_all_were_read() -> None:
    given = summarise([RIGHT, row("q2", support=frozenset({"a", "missing:Lyon"}))]).given
    assert as_json(given) == {"support_recall": pytest.approx(75), "support_error_rate": pytest.approx(85)}


def test_figures_of_right_answers_are_means_over_those_answered_exactly() -> None:
    again = row("q4", figures={"hops": 1.0})
    assert summarise([RIGHT, HALF, FAILED, again]).figures_if_right == {"hops": 1.5}
    assert summarise([HALF, FAILED]).figures_if_right is None


def test_scores_are_broken_down_by_hops_and_by_type() -> None:
    metrics = summarise([HALF, FAILED, RIGHT, row("q4", answer=" ", hops=None)])
    assert list(metrics.by_hops) == ["2", "3", "unknown"]
    assert metrics.by_hops["2"] == {"n": 1, "em": 100, "f1": 100}
    assert as_json(metrics.by_hops["3"]) == {"n": 2, "em": 0, "f1": pytest.approx(100 / 3)}
    assert metrics.by_type["bridge"]["n"] == 3
    assert as_json(metrics.by_type["comparison"]) == {"n": 1, "em": 0, "f1": pytest.approx(200 / 3)}


def test_a_dataset_without_hops_or_types_has_no_breakdown() -> None:
    metrics = summarise([row(hops=None, type="")])
    assert metrics.by_hops == {}
    assert metrics.by_type == {}


def test_all_profiles_stand_side_by_side() -> None:
    profiles = summarise([row(answer="City of Light")]).profiles
    assert set(profiles) == set(PROFILES)
    assert profiles["musique"] == {"em": 100, "f1": 100}
    assert profiles["hotpotqa"] == {"em": 0, "f1": 0}
    assert profiles["trace"] == {"em": 100, "f1": 0}


def test_the_summary_is_json_without_nan_and_the_same_for_any_order() -> None:
    rows = [RIGHT, HALF, FAILED, EMPTY]
    written = json.dumps(as_json(summarise(rows)), allow_nan=False, sort_keys=True)
    assert json.dumps(as_json(summarise(rows[::-1])), allow_nan=False, sort_keys=True) == written
    json.dumps(as_json(summarise([FAILED])), allow_nan=False)


def test_where_nothing_is_said_of_passages_there_is_no_support() -> None:
    """As in predictions of others; their given passages are scored no more than the rest."""
    silent = row(evidence=None)
    assert (silent.em, silent.support_recall, silent.support.given_recall) == (1.0, None, None)


def test_struct_em_is_em_over_the_structural_questions() -> None:
    other = row("q2", answer="Lake Geneva", answers=("Geneva",), type="structural")
    rows = [row(type="structural"), other, RIGHT, FAILED]
    assert (summarise(rows).score("struct_em").mean, summarise(rows).score("struct_em").n) == (50.0, 2)
    lost = summarise([*rows, row("q3", **LOST, type="structural")])
    assert lost.score("struct_em").mean == pytest.approx(100 / 3)
    assert "struct_em" not in summarise([RIGHT, HALF, FAILED]).scores


@pytest.mark.parametrize(
    ("evidence", "gold", "given", "expected"),  # recall, precision, F1, error rate, and of the given passages
    [
        (["a", "b", "c"], {"a", "d"}, TEN, SupportScores(1 / 2, 1 / 3, 2 / 5, 2 / 3, 1.0, 0.8)),
        (["d", "a"], {"a", "d"}, TEN, SupportScores(1, 1, 1, 0, 1.0, 0.8)),
        (["b"], {"a", "d"}, TEN, SupportScores(0, 0, 0, 1, 1.0, 0.8)),
        (["a", "a", "b", "a"], {"a", "d"}, TEN, SupportScores(1 / 2, 1 / 2, 1 / 2, 1 / 2, 1.0, 0.8)),
        ([], {"a", "d"}, TEN, SupportScores(0, None, 0, None, 1.0, 0.8)),
        (["a"], set(), TEN, SupportScores(None, None, None, None, None, None)),
        # a gold passage that is not among the given ones stays in the denominator
        (["a", "b"], {"a", "missing:Paris"}, TEN, SupportScores(1 / 2, 1 / 2, 1 / 2, 1 / 2, 1 / 2, 0.9)),
        (["a", "x"], {"a", "d"}, "", SupportScores(1 / 2, 1 / 2, 1 / 2, 1 / 2, None, None)),
    ],
)
def test_support_figures_are_those_computed_by_hand(
    evidence: list[str], gold: set[str], given: str, expected: SupportScores
) -> None:
    assert score_support(evidence, gold, given) == expected

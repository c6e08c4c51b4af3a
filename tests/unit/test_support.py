"""Supporting passages found, against values computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from kgqa.scoring.support import SupportScores, support

TEN = tuple("abcdefghij")
IDS = st.lists(st.sampled_from(TEN))


def test_the_four_figures_of_a_partly_right_evidence() -> None:
    scores = support(["a", "b", "c"], {"a", "d"}, TEN)
    assert scores == SupportScores(
        recall=1 / 2,
        precision=1 / 3,
        f1=2 / 5,
        error_rate=2 / 3,
        given_recall=1.0,
        given_error_rate=0.8,
    )


def test_perfect_evidence_has_no_errors() -> None:
    scores = support(["d", "a"], {"a", "d"}, TEN)
    assert (scores.recall, scores.precision, scores.f1, scores.error_rate) == (1, 1, 1, 0)


def test_disjoint_evidence_has_f1_zero() -> None:
    scores = support(["b"], {"a", "d"}, TEN)
    assert (scores.recall, scores.precision, scores.f1, scores.error_rate) == (0, 0, 0, 1)


def test_a_repeated_passage_counts_once() -> None:
    assert support(["a", "a", "b", "a"], {"a", "d"}, TEN) == support(["a", "b"], {"a", "d"}, TEN)


def test_a_method_without_passages_recalls_nothing_and_has_no_error_rate() -> None:
    scores = support([], {"a", "d"}, TEN)
    assert (scores.recall, scores.f1) == (0, 0)
    assert scores.precision is None
    assert scores.error_rate is None


def test_a_question_without_known_support_is_not_scored() -> None:
    assert support(["a"], set(), TEN) == SupportScores(None, None, None, None, None, None)


def test_a_gold_passage_missing_from_the_given_ones_stays_in_the_denominator() -> None:
    scores = support(["a", "b"], {"a", "missing:Paris"}, TEN)
    assert scores.recall == 0.5
    assert scores.precision == 0.5
    assert scores.given_recall == 0.5  # nobody who reads the given passages only can do better


def test_evidence_from_open_retrieval_needs_no_given_passages() -> None:
    scores = support(["a", "x"], {"a", "d"}, ())
    assert (scores.recall, scores.precision) == (0.5, 0.5)
    assert scores.given_recall is None
    assert scores.given_error_rate is None


@settings(deadline=None)
@hypothesis_given(evidence=IDS, gold=st.frozensets(st.sampled_from(TEN)))
def test_shares_lie_between_zero_and_one_and_errors_complement_precision(
    evidence: list[str], gold: frozenset[str]
) -> None:
    scores = support(evidence, gold, TEN)
    for share in (scores.recall, scores.precision, scores.f1, scores.error_rate):
        assert share is None or 0 <= share <= 1
    if scores.precision is not None and scores.error_rate is not None:
        assert scores.precision + scores.error_rate == pytest.approx(1)


@settings(deadline=None)
@hypothesis_given(evidence=st.frozensets(st.sampled_from(TEN)), gold=st.frozensets(st.sampled_from(TEN), min_size=1))
def test_no_evidence_from_the_given_passages_beats_their_recall(evidence: frozenset[str], gold: frozenset[str]) -> None:
    scores = support(sorted(evidence), gold, TEN)
    assert scores.recall is not None
    assert scores.given_recall is not None
    assert scores.recall <= scores.given_recall

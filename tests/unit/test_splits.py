"""Exact matches on what a model knows without context, and on the rest."""

from __future__ import annotations

from kgqa.report.splits import Answered, split_by_knowledge

KNOWN = Answered("A", "no_context", "m", {"q1": 1.0, "q2": 0.0, "q3": 0.0})


def test_scores_are_split_by_what_the_same_model_knows() -> None:
    trace = Answered("B", "trace", "m", {"q1": 0.0, "q2": 1.0, "q3": 0.0})
    assert split_by_knowledge([KNOWN, trace]) == [("A", "100.0 (1)", "0.0 (2)"), ("B", "0.0 (1)", "50.0 (2)")]


def test_another_model_has_a_knowledge_of_its_own() -> None:
    other = Answered("B", "trace", "another", {"q1": 1.0, "q2": 1.0, "q3": 0.0})
    assert split_by_knowledge([KNOWN, other]) == []


def test_nothing_known_is_no_score_of_zero() -> None:
    blank = Answered("A", "no_context", "m", {"q1": 0.0})
    assert split_by_knowledge([blank, Answered("B", "golden", "m", {"q1": 1.0})])[1] == ("B", "– (0)", "100.0 (1)")

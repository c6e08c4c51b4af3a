"""The notes of a method, and a traversal as lines."""

from __future__ import annotations

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.trace import Notes, TracedQuestion
from kgqa.errors import DataError
from kgqa.report.graph_lines import traversal_lines
from kgqa.types import Json, Passage, Question


def test_a_traversal_is_told_seed_by_seed_with_gold_passages_marked() -> None:
    passages = (Passage("a", "A", "one"), Passage("b", "B", "two"), Passage("c", "C", "three"))
    step = {"path": ["a"], "neighbours": 1, "evidence": "", "chosen": ["b"]}
    walked = {"traversal": {"agent": "random", "seeds": ["a", "c"], "steps": [step], "paths": [["a", "b"]]}}
    traced = TracedQuestion(
        Question("q1", "Who?", ("Ann",), passages, frozenset({"b"})),
        Prediction("q1", "Ann", None, ("a", "b"), notes=walked),
        (),
    )
    traversal = Notes.of(traced).traversal
    assert traversal is not None
    assert list(traversal_lines(traced, traversal)) == [
        "agent: random · 2 seeds · 1 paths",
        "  A: one",
        "    chooses among 1 neighbours",
        "    → * B: two",
        "  C: three   (not expanded: the budget was spent)",
    ]


STEP = {"path": ["a"], "neighbours": 1, "evidence": "", "chosen": []}


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ({"chains": 3}, "question q1: its notes: chains=3 is not a valid list"),
        ({"chains": ["x"]}, "chains.0='x'"),
        ({"chains": [{"score": "high", "ended": True, "triples": []}]}, "chains.0.score='high'"),
        ({"chains": [{"score": 1, "ended": True, "triples": [[]]}]}, "chains.0.triples.0=[]"),
        ({"thoughts": "one"}, "thoughts='one'"),
        ({"thoughts": [1]}, "thoughts.0=1 is not a valid string"),
        ({"traversal": []}, "traversal=[]"),
        ({"traversal": {"agent": "random", "seeds": [], "steps": [STEP | {"path": []}], "paths": []}}, "steps.0.path"),
        ({"traversal": {"agent": "random", "seeds": [7], "steps": [], "paths": []}}, "traversal.seeds.0=7"),
    ],
)
def test_a_note_of_another_shape_is_one_line(notes: dict[str, Json], said: str) -> None:
    traced = TracedQuestion(Question("q1", "Who?", ("Ann",), ()), Prediction("q1", "Ann", None, (), notes=notes), ())
    with pytest.raises(DataError) as refused:
        Notes.of(traced)
    assert said in str(refused.value)


def test_notes_that_are_not_shown_may_be_anything() -> None:
    notes = {"chains": [{"score": float("-inf"), "ended": False, "triples": [["a", "b", "c", "p1"]]}], "else": object()}
    traced = TracedQuestion(Question("q1", "Who?", ("Ann",), ()), Prediction("q1", "Ann", None, (), notes=notes), ())
    assert Notes.of(traced).chains[0].triples == (("a", "b", "c", "p1"),)

"""The picture of a KGP traversal: XML whatever its texts hold."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.trace import TracedCall, TracedQuestion
from kgqa.artifacts.trace_notes import Notes
from kgqa.errors import DataError
from kgqa.report.traversal import traversal_svg
from kgqa.types import Json, Passage, Question


def test_control_characters_and_markup_leave_the_picture_readable() -> None:
    passages = (Passage("a", "A", "one\x02 & <two>\x0b"), Passage("b", "B", "\ud800"))
    step = {"path": ["a"], "neighbours": 1, "evidence": "", "chosen": ["b"]}
    walked = {"traversal": {"agent": "random", "seeds": ["a"], "steps": [step], "paths": [["a", "b"]]}}
    traced = TracedQuestion(
        Question("q1", "Who\x01?", ("Ann",), passages, frozenset({"b"})),
        Prediction("q1", "Ann", None, ("a", "b"), notes=walked),
        (TracedCall((0,), "neighbours", {"passage_id": "a"}, ["b"], cached=False),),
    )
    drawn = Notes.of(traced).traversal
    assert drawn is not None
    picture = ElementTree.fromstring(traversal_svg(traced, drawn))
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["A: one  & <two> ", "B:  "]


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

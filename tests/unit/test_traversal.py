"""The picture of a KGP traversal: XML whatever its texts hold."""

from __future__ import annotations

from xml.etree import ElementTree

from kgqa.artefacts.predictions import Prediction
from kgqa.artefacts.trace import TracedCall, TracedQuestion
from kgqa.report.traversal import traversal_svg
from kgqa.types import Passage, Question


def test_control_characters_and_markup_leave_the_picture_readable() -> None:
    passages = (Passage("a", "A", "one\x02 & <two>\x0b"), Passage("b", "B", "\ud800"))
    step = {"path": ["a"], "neighbours": 1, "evidence": "", "chosen": ["b"]}
    walked = {"traversal": {"agent": "random", "seeds": ["a"], "steps": [step], "paths": [["a", "b"]]}}
    traced = TracedQuestion(
        Question("q1", "Who\x01?", ("Ann",), passages, frozenset({"b"})),
        Prediction("q1", "Ann", None, ("a", "b"), notes=walked),
        (TracedCall((0,), "neighbours", {"passage_id": "a"}, ["b"], cached=False),),
    )
    picture = ElementTree.fromstring(traversal_svg(traced))
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["A: one  & <two> ", "B:  "]

"""The picture of a KGP traversal: XML whatever its texts hold."""

from __future__ import annotations

from xml.etree import ElementTree

from kgqa.report.traversal import traversal_svg
from kgqa.types import Json


def test_control_characters_and_markup_leave_the_picture_readable() -> None:
    passages = [{"id": "a", "title": "A", "text": "one\x02 & <two>\x0b"}, {"id": "b", "title": "B", "text": "\ud800"}]
    step = {"path": ["a"], "neighbours": 1, "evidence": "", "chosen": ["b"]}
    traced: dict[str, Json] = {
        "question": {"text": "Who\x01?", "support": ["b"], "passages": passages},
        "notes": {"traversal": {"agent": "random", "seeds": ["a"], "steps": [step], "paths": [["a", "b"]]}},
        "evidence": ["a", "b"],
        "calls": [{"call": "neighbours", "passage_id": "a", "reply": ["b"]}],
    }
    picture = ElementTree.fromstring(traversal_svg(traced))
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["A: one  & <two> ", "B:  "]

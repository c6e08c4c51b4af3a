"""IIRC's reader on hand-written records in the official format, and in the form IRCoT processed it to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.iirc import IIRC
from kgqa.errors import DataError
from kgqa.types import Passage, Question
from tests.unit.files import refusal, write

Record = dict[str, Any]


def original(*questions: Record, **changes: Any) -> Record:
    """The keys of the official files; the text is ours."""
    record = {
        "pid": "p_17", "title": "Marla Fenn", "text": " Fenn was born in Tarnwick and sailed on the Heron. ",
        "links": [{"target": "Tarnwick", "indices": [18, 26]}, {"target": "Heron (ship)", "indices": [45, 50]}],
        "questions": list(questions),
    }  # fmt: skip
    return {**record, **changes}


def question(answer: Record, **changes: Any) -> Record:
    record = {
        "qid": "q_1",
        "question": "How old was the town she was born in?",
        "answer": answer,
        "question_links": ["Tarnwick"],
        "context": [
            {"text": "born in Tarnwick", "passage": "main", "indices": [9, 25]},
            {"text": "founded in 1388", "passage": "tarnwick", "indices": [30, 45]},
            {"text": "since 1402", "passage": "Heron &amp; Sons", "indices": [-1, 9]},
        ],
    }
    return {**record, **changes}


def span(*texts: str) -> Record:
    place = {"start": 0, "end": 1, "passage": "tarnwick", "type": "answer"}
    return {"type": "span", "answer_spans": [{**place, "text": text} for text in texts]}


VALUE = {"type": "value", "answer_value": "53", "answer_unit": "years"}
BINARY = {"type": "binary", "answer_value": "yes"}
NONE = {"type": "none"}


def processed(**changes: Any) -> Record:
    def paragraph(title: str, supporting: bool) -> Record:
        return {
            "idx": 0,
            "title": title,
            "paragraph_text": f"{title} in words.",
            "is_supporting": supporting,
        }

    record = {
        "question_id": "q_2", "question_text": "Who owned the ship?",
        "answers_objects": [{"number": "", "date": {"day": "", "month": "", "year": ""}, "spans": ["Hugo Pell"]}],
        "contexts": [paragraph("Heron", True), paragraph("Tarnwick", False), paragraph("Marla Fenn", True)],
        "pinned_contexts": [paragraph("Marla Fenn", True)], "valid_titles": ["Heron", "Tarnwick"],
    }  # fmt: skip
    return {**record, **changes}


def read(folder: Path, *records: Record) -> list[Question]:
    return list(dataset(folder, *records).questions())


def dataset(folder: Path, *records: Record) -> IIRC:
    file = write(folder / "dev.json", records)
    return IIRC("iirc", "dev", {"dev": ("dev.json",)}, "drop", "iirc", path=str(file))


def test_original_form_has_pinned_and_linked_passages(tmp_path: Path) -> None:
    (record,) = read(tmp_path, original(question(VALUE)))
    assert record.pinned == (
        Passage.of("Marla Fenn", "Fenn was born in Tarnwick and sailed on the Heron."),
    )
    assert record.support_titles == {"tarnwick", "Heron & Sons"}
    assert record.quoted == (
        Passage.of("tarnwick", "founded in 1388"),
        Passage.of("Heron & Sons", "since 1402"),
    )
    assert (record.passages, record.support) == ((), frozenset())
    assert (record.id, record.type, record.hops) == ("q_1", "value", None)
    several = dataset(
        tmp_path,
        original(question(NONE), question(BINARY, qid="q_2")),
        original(question(NONE, qid="3")),
    )
    assert [each.id if each else None for each in several.read()] == [None, "q_2", None]
    assert [each.id for each in several.questions()] == ["q_2"]


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        pytest.param(span(" Hugo Pell "), "Hugo Pell", id="span"),
        pytest.param(span("Ann", "Bob"), '["Ann", "Bob"]', id="two spans"),
        pytest.param(VALUE, "53", id="value"),
        pytest.param(BINARY, "yes", id="binary"),
    ],
)
def test_original_form_has_one_gold_per_kind(tmp_path: Path, answer: Record, gold: str) -> None:
    assert [each.answers for each in read(tmp_path, original(question(answer)))] == [(gold,)]


def test_processed_form_has_paragraphs_and_answers(tmp_path: Path) -> None:
    (record,) = read(tmp_path, processed())
    assert [passage.title for passage in record.passages] == ["Heron", "Tarnwick", "Marla Fenn"]
    assert ([passage.title for passage in record.pinned], record.answers) == (
        ["Marla Fenn"],
        ("Hugo Pell",),
    )
    # the main passage is in every prompt
    assert record.support == {record.passages[0].id}
    assert record.support_titles == {"Heron"}


@pytest.mark.parametrize(
    ("answers", "gold"),
    [
        pytest.param([{"number": "7", "spans": ["x"]}], "7", id="number"),
        pytest.param(
            [{"number": "", "date": {"day": "3", "month": "May", "year": "1902"}, "spans": []}],
            "3-May-1902",
            id="date",
        ),
        # the commonest of several annotators
        pytest.param(
            [{"spans": ["a"]}, {"spans": ["b"]}, {"spans": ["b"]}], "b", id="most frequent span"
        ),
        # the commonest of several annotators
        pytest.param([{"spans": ["a", "b"]}], '["a", "b"]', id="two spans"),
    ],
)
def test_processed_form_has_answers_as_in_drop(
    tmp_path: Path, answers: list[Record], gold: str
) -> None:
    assert [each.answers for each in read(tmp_path, processed(answers_objects=answers))] == [
        (gold,)
    ]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        pytest.param(
            original(question({"type": "spam"})),
            "questions.0.answer.type='spam'",
            id="unknown type",
        ),
        pytest.param(
            original(question(span())), "question q_1: the answer has no text", id="empty span"
        ),
        pytest.param(original(question(VALUE), text=None), "text=None", id="no text"),
        pytest.param(processed(answers_objects=[]), "the answer has no text", id="no answers"),
        pytest.param(
            {"_id": "a", "question": "Who?", "answer": "x", "context": []},
            "This looks like hotpotqa",
            id="another dataset",
        ),
    ],
)
def test_broken_record_is_rejected(tmp_path: Path, record: Record, error: str) -> None:
    message = refusal(read, tmp_path, record, error=DataError)
    assert error in message
    assert message.startswith(str(tmp_path / "dev.json"))

"""Questions without contexts, for retrieval from a corpus: what is gold is known by its titles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.hotpotqa import HotpotQA
from kgqa.datasets.musique import MuSiQue
from kgqa.errors import DataError
from kgqa.types import Question

Record = dict[str, Any]


def hotpotqa(folder: Path, *records: Record) -> list[Question]:
    file = folder / "questions.json"
    file.write_text(json.dumps(records), encoding="utf-8")
    hops = {"bridge": 2, "compositional": 2}
    return list(
        HotpotQA("2wiki", str(file), "dev", {"dev": ("dev.json",)}, None, "2wiki", "2wiki", hops, None).questions()
    )


def musique(folder: Path, *records: Record) -> list[Question]:
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return list(MuSiQue("musique", str(file), "dev", {"dev": ("dev.jsonl",)}, None, "musique", "musique").questions())


@pytest.mark.parametrize(
    "gold",
    [
        {"supporting_facts": [["A &amp; B", 0], ["C", 2], ["C", 3]]},
        {"supporting_titles": ["A & B", "C"]},
        {"supporting_titles": ["C"], "supporting_facts": [["A &amp; B", 1]]},
    ],
)
def test_gold_titles_come_from_facts_or_from_titles(tmp_path: Path, gold: Record) -> None:
    (found,) = hotpotqa(tmp_path, {"_id": "5a", "question": "Who?", "answer": "Ann", "type": "bridge", **gold})
    assert found.support_titles == {"A & B", "C"}
    assert (found.support, found.passages, found.hops) == (frozenset(), (), 2)


def test_a_record_may_have_a_list_of_answers_and_aliases(tmp_path: Path) -> None:
    record = {"id": "5a", "question": "Who?", "answers": ["Ann", "Anne"], "answer_aliases": ["A.", "Ann", " "]}
    assert hotpotqa(tmp_path, record)[0].answers == ("Ann", "Anne", "A.")


def test_an_answer_goes_before_a_list_of_answers(tmp_path: Path) -> None:
    record = {"_id": "5a", "question": "Who?", "answer": "Ann", "answers": ["Anne", "Ann"]}
    assert hotpotqa(tmp_path, record)[0].answers == ("Ann", "Anne")


def test_evidences_of_2wiki_become_hops_without_passages(tmp_path: Path) -> None:
    record = {"_id": "a", "question": "?", "answer": "x", "type": "compositional", "evidences": [["C", "born", "1900"]]}
    (found,) = hotpotqa(tmp_path, record)
    assert [(hop.question, hop.answer, hop.passage_id) for hop in found.decomposition] == [("C, born", "1900", "")]


def test_musique_questions_may_come_without_paragraphs(tmp_path: Path) -> None:
    record = {
        "id": "2hop__1_2",
        "question": "Who?",
        "answer": "Ann",
        "answer_aliases": ["Anne"],
        "supporting_titles": ["T &lt;1&gt;", "U"],
        "question_decomposition": [{"question": "a", "answer": "b", "paragraph_support_idx": None}],
    }
    (found,) = musique(tmp_path, record)
    assert found.support_titles == {"T <1>", "U"}
    assert (found.answers, found.hops, found.support, found.passages) == (("Ann", "Anne"), 1, frozenset(), ())


def test_with_contexts_the_gold_titles_are_known_too(tmp_path: Path) -> None:
    paragraphs = [
        {"title": "T", "paragraph_text": "One.", "is_supporting": True},
        {"title": "U", "paragraph_text": "Two.", "is_supporting": False},
    ]
    (found,) = musique(tmp_path, {"id": "a", "question": "?", "answer": "x", "paragraphs": paragraphs})
    assert found.support_titles == {"T"}
    context = {"_id": "a", "question": "?", "answer": "x", "context": [["T", ["One."]]]}
    (found,) = hotpotqa(tmp_path, {**context, "supporting_facts": [["T", 0], ["V", 0]]})
    assert found.support_titles == {"T", "V"}
    assert found.support == {found.passages[0].id, "missing:V"}


def test_records_of_another_format_are_not_taken_for_questions_without_contexts(tmp_path: Path) -> None:
    other = {"id": "2hop__1", "question": "?", "answer": "x", "paragraphs": []}
    with pytest.raises(DataError, match=r"record 1 .id 2hop__1.: this looks like musique: run with dataset=musique"):
        hotpotqa(tmp_path, other)
    with pytest.raises(DataError, match=r"questions.jsonl:1: this looks like hotpotqa: run with dataset=hotpotqa"):
        musique(tmp_path, {"id": "5a", "question": "?", "answer": "x", "context": []})


@pytest.mark.parametrize("answers", [{}, {"answers": []}, {"answers": [" "]}, {"answer": "", "answers": ["x"]}])
def test_a_question_without_an_answer_is_refused(tmp_path: Path, answers: Record) -> None:
    with pytest.raises(DataError, match="a question needs an answer"):
        hotpotqa(tmp_path, {"_id": "a", "question": "?", **answers})

"""Questions with keys of any name: HippoRAG's NQ and PopQA, MultiHop-RAG and FRAMES, in their published forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.building import build
from kgqa.errors import DataError
from kgqa.types import Passage, Question
from tests.composed import composed_node
from tests.unit.question_files import HOTPOTQA, MUSIQUE

NQ = {
    "question": "Who built the Candle Bridge?",
    "reference": ["Ann Lund", "A. Lund"],
    "contexts": [
        {"title": "Candle Bridge", "text": "Ann Lund built it.", "is_supporting": True},
        {"title": "River Corrow", "text": "A river.", "is_supporting": False},
    ],
}
POPQA = {
    "id": 4222362, "question": "What is Ann Lund's occupation?", "obj": "architect",
    "possible_answers": '["architect", "master builder"]', "o_wiki_title": "Architect", "o_aliases": '["builder"]',
    "paragraphs": [{"title": "Ann Lund", "text": "Ann Lund was an architect."}],
}  # fmt: skip
MULTIHOP_RAG = [
    {
        "query": "Which company do both articles name?", "answer": "Corrow Ltd", "question_type": "inference_query",
        "evidence_list": [{"title": "Slate is back", "fact": "…"}, {"title": "Harbour news", "fact": "…"}],
    },
    {"query": "Who?", "answer": "Insufficient information.", "question_type": "null_query", "evidence_list": []},
]  # fmt: skip
FRAMES = (
    "Prompt\tAnswer\twikipedia_link_1\treasoning_types\twiki_links\n"
    '"Who is ""Ann""\nto Bob?"\tHis sister\thttps://en.wikipedia.org/wiki/Ann\tMultiple constraints'
    "\t\"['https://en.wikipedia.org/wiki/Ann_Lund', 'https://en.wikipedia.org/wiki/Caf%C3%A9']\"\n"
)


def read(folder: Path, preset: str, content: Any, name: str = "q.json") -> list[Question]:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return list(build({**composed_node("dataset", preset), "path": str(file)}, "dataset").questions())


def test_records_are_read(tmp_path: Path) -> None:
    gold, other = Passage.of("Candle Bridge", "Ann Lund built it."), Passage.of("River Corrow", "A river.")
    first, second = read(tmp_path, "hipporag_nq", [NQ, NQ])
    assert first == Question(
        "1", "Who built the Candle Bridge?", ("Ann Lund", "A. Lund"), (gold, other),
        support=frozenset({gold.id}), support_titles=frozenset({"Candle Bridge"}),
    )  # fmt: skip
    assert second.id == "2"
    (question,) = read(tmp_path, "hipporag_popqa", [POPQA])
    assert question.id == "4222362"
    assert question.answers == ("architect", "master builder", "Architect", "builder")  # aliases are a list in text
    assert len(question.support) == 1
    first, second = read(tmp_path, "multihop_rag", MULTIHOP_RAG)
    assert first.support_titles == {"Slate is back", "Harbour news"}
    assert (first.type, first.answerable, second.answerable) == ("inference_query", True, False)
    assert second.answers == ("Insufficient information.",)
    (question,) = read(tmp_path, "frames", FRAMES, "test.tsv")
    assert (question.text, question.answers) == ('Who is "Ann"\nto Bob?', ("His sister",))
    assert question.support_titles == {"Ann Lund", "Café"}
    assert question.type == "Multiple constraints"


def test_invalid_records_are_one_line(tmp_path: Path) -> None:
    cases: list[tuple[str, Any, str, str]] = [
        ("hipporag_nq", [{**NQ, "reference": []}], "q.json", "record 1: no gold answer in reference"),
        ("hipporag_nq", [{"reference": ["a"]}], "q.json", "no 'question'. Correct the record, or name another key"),
        ("hipporag_nq", [{**NQ, "contexts": [{"title": "a"}]}], "q.json", "no key 'text'"),
        ("hipporag_popqa", [{**POPQA, "id": None}], "q.json", "no 'id'. Correct the record"),
        ("hipporag_nq", ["text"], "q.json", "no gold answer"),
        ("frames", 'Prompt\tAnswer\n"Who', "t.tsv", "t.tsv:1: not a table of tab-separated values"),
        ("frames", "Question\tAnswer\nWho\tAnn\n", "t.tsv", "t.tsv:2: no 'Prompt'"),
    ]
    for preset, content, name, message in cases:
        with pytest.raises(DataError) as caught:
            read(tmp_path, preset, content, name)
        assert message in str(caught.value)


def test_files_are_found_where_they_are_downloaded_and_hipporags_corpus_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    corpus = [{"idx": 0, "title": "T", "text": "Two."}, {"idx": 1, "title": "B", "text": "Other."}]
    files: dict[str, tuple[str, Any]] = {
        "hipporag_musique": ("hipporag/musique.json", [MUSIQUE]),
        "hipporag_2wiki": ("hipporag/2wikimultihopqa.json", [{**HOTPOTQA, "type": "compositional"}]),
        "hipporag_hotpotqa": ("hipporag/hotpotqa.json", [HOTPOTQA]), "hipporag_nq": ("hipporag/nq_rear.json", [NQ]),
        "hipporag_popqa": ("hipporag/popqa.json", [POPQA]),
        "multihop_rag": ("multihop_rag/MultiHopRAG.json", MULTIHOP_RAG), "frames": ("frames/test.tsv", FRAMES),
    }  # fmt: skip
    for preset, (file, content) in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        (tmp_path / file).with_name(f"{Path(file).stem}_corpus.json").write_text(json.dumps(corpus))
        source = build(composed_node("dataset", preset), "dataset")
        first, *others = source.questions()
        assert first.support_titles
        assert len(others) == (preset == "multihop_rag")
        if preset.startswith("hipporag"):
            assert [passage.text for passage in source.passages()] == ["Two.", "Other."]

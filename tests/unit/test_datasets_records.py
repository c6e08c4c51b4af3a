"""Questions with keys of any name: HippoRAG's NQ and PopQA, MultiHop-RAG, FRAMES, FlashRAG, in published forms."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.building import build
from kgqa.datasets import corpus
from kgqa.datasets.records import page_title
from kgqa.errors import DataError
from kgqa.scoring.metrics import score
from kgqa.types import Passage, Question
from tests.composed import composed_node
from tests.unit.files import jsonl, refusal, write
from tests.unit.question_files import HOTPOTQA, MUSIQUE, built_dataset

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


def read(preset: str, path: Path) -> list[Question]:
    return list(built_dataset(preset, path).questions())


def test_records_are_read(tmp_path: Path) -> None:
    gold, other = (
        Passage.of("Candle Bridge", "Ann Lund built it."),
        Passage.of("River Corrow", "A river."),
    )
    first, second = read("hipporag_nq", write(tmp_path / "q.json", [NQ, NQ]))
    assert first == Question(
        "1", "Who built the Candle Bridge?", ("Ann Lund", "A. Lund"), (gold, other),
        support=frozenset({gold.id}), support_titles=frozenset({"Candle Bridge"}),
    )  # fmt: skip
    assert second.id == "2"
    (question,) = read("hipporag_popqa", write(tmp_path / "q.json", [POPQA]))
    assert question.id == "4222362"
    # aliases are a list in text
    assert question.answers == ("architect", "master builder", "Architect", "builder")
    assert len(question.support) == 1
    first, second = read("multihop_rag", write(tmp_path / "q.json", MULTIHOP_RAG))
    assert first.support_titles == {"Slate is back", "Harbour news"}
    assert (first.type, first.answerable, second.answerable) == ("inference_query", True, False)
    assert second.answers == ("Insufficient information.",)
    (question,) = read("frames", write(tmp_path / "test.tsv", FRAMES))
    assert (question.text, question.answers) == ('Who is "Ann"\nto Bob?', ("His sister",))
    assert question.support_titles == {"Ann Lund", "Café"}
    assert question.type == "Multiple constraints"


@pytest.mark.parametrize(
    ("preset", "content", "name", "message"),
    [
        pytest.param(
            "hipporag_nq",
            [{**NQ, "reference": []}],
            "q.json",
            "record 1: no gold answer in reference",
            id="no answer",
        ),
        pytest.param(
            "hipporag_nq",
            [{"reference": ["a"]}],
            "q.json",
            "no 'question'. Correct the record, or name another key",
            id="no question",
        ),
        pytest.param(
            "hipporag_nq",
            [{**NQ, "contexts": [{"title": "a"}]}],
            "q.json",
            "no key 'text'",
            id="no passage text",
        ),
        pytest.param(
            "hipporag_popqa",
            [{**POPQA, "id": None}],
            "q.json",
            "no 'id'. Correct the record",
            id="no id",
        ),
        pytest.param(
            "hipporag_nq",
            [{"reference": ["a"], "questoin": "Who?"}],
            "q.json",
            "no 'question'. Did you mean questoin? Correct the record",
            id="similar key",
        ),
        pytest.param(
            "hipporag_nq",
            [{"question": "Who?", "references": ["a"]}],
            "q.json",
            "no gold answer in reference. Did you mean references?",
            id="similar key of answers",
        ),
        pytest.param("hipporag_nq", ["text"], "q.json", "no gold answer", id="text as record"),
        pytest.param(
            "frames",
            'Prompt\tAnswer\n"Who',
            "t.tsv",
            "t.tsv:1: not a table of tab-separated values",
            id="open quote",
        ),
        pytest.param(
            "frames",
            "Question\tAnswer\nWho\tAnn\n",
            "t.tsv",
            "t.tsv:2: no 'Prompt'",
            id="no column",
        ),
    ],
)
def test_invalid_records_are_one_line(
    tmp_path: Path, preset: str, content: Any, name: str, message: str
) -> None:
    file = write(tmp_path / name, content)
    assert message in refusal(read, preset, file, error=DataError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"reference": [{"text": "Ann"}]},
            "reference={'text': 'Ann'}: must be a text. Name a key of it",
        ),
        ({"reference": "['Ann', ['Bo']]"}, "reference=['Bo']: must be a text"),
        ({"question": " "}, "the question is empty"),
        ({"question": ["Who?", "Where?"]}, "2 values of 'question'"),
        ({"question": {"en": "Who?"}}, "question={'en': 'Who?'}: must be a text"),
    ],
    ids=["object", "list in a list", "empty", "two questions", "question object"],
)
def test_value_that_is_no_text_is_one_line(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "q.json", [NQ | change])
    assert message in refusal(lambda: read("hipporag_nq", file))


def test_empty_id_is_one_line(tmp_path: Path) -> None:
    file = write(tmp_path / "q.jsonl", jsonl(POPQA | {"id": " "}))
    assert "the id is empty" in refusal(lambda: read("hipporag_popqa", file))


@pytest.mark.parametrize(
    ("preset", "file", "content"),
    [
        ("hipporag_musique", "hipporag/musique.json", [MUSIQUE]),
        (
            "hipporag_2wiki",
            "hipporag/2wikimultihopqa.json",
            [{**HOTPOTQA, "type": "compositional"}],
        ),
        ("hipporag_hotpotqa", "hipporag/hotpotqa.json", [HOTPOTQA]),
        ("hipporag_nq", "hipporag/nq_rear.json", [NQ]),
        ("hipporag_popqa", "hipporag/popqa.json", [POPQA]),
        ("multihop_rag", "multihop_rag/MultiHopRAG.json", MULTIHOP_RAG),
        ("frames", "frames/test.tsv", FRAMES),
    ],
    ids=[
        "hipporag_musique",
        "hipporag_2wiki",
        "hipporag_hotpotqa",
        "hipporag_nq",
        "hipporag_popqa",
        "multihop",
        "frames",
    ],
)
def test_downloaded_files_and_hipporag_corpus_are_used(
    preset: str, file: str, content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    passages = [
        {"idx": 0, "title": "T", "text": "Two."},
        {"idx": 1, "title": "B", "text": "Other."},
    ]
    path = write(tmp_path / file, content)
    write(path.with_name(f"{path.stem}_corpus.json"), passages)
    source = build(composed_node("dataset", preset), "dataset")
    first, *others = source.questions()
    assert first.support_titles
    assert len(others) == (preset == "multihop_rag")
    if preset.startswith("hipporag"):
        assert [passage.text for passage in source.passages()] == ["Two.", "Other."]


FOLDER = Path(os.environ.get("KGQA_DATA", "")) / "field" / "seven_sets"
RECORD = {
    "id": "test_0",
    "question": "who is it",
    "golden_answers": ["Ann", " ", "Anne", "Ann"],
    "metadata": {"a": 1},
}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no seven_sets; set KGQA_DATA")
@pytest.mark.parametrize(
    ("name", "preset", "count"),
    [
        ("nq_test_512", "nq", 512),
        ("tq_test_512", "triviaqa", 512),
        ("popqa_test_512", "popqa", 512),
        ("bamboogle_test_125", "bamboogle", 125),
        ("hotpotqa_dev_125", "flashrag", 116),
        ("2wiki_test_512", "flashrag", 454),
        ("musique_test_512", "flashrag", 8),
    ],
)
def test_seven_datasets_keep_every_alias(name: str, preset: str, count: int) -> None:
    file = FOLDER / f"{name}.jsonl.gz"
    questions = read(preset, file)
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert len(questions) == count
    assert [(question.id, question.text, question.answers) for question in questions] == [
        (row["id"], row["question"], tuple(dict.fromkeys(row["golden_answers"]))) for row in rows
    ]
    wrong = [
        (question.id, alias)
        for row, question in zip(rows, questions, strict=True)
        for alias in row["golden_answers"][:9]
        if score(alias, question.answers, "2wiki")["em"] != 1
    ]
    assert wrong == []


@pytest.mark.parametrize("is_own_folder", [False, True], ids=["folder of all", "own folder"])
@pytest.mark.parametrize("preset", ["nq", "triviaqa", "popqa", "bamboogle"])
def test_record_has_each_answer_once(preset: str, is_own_folder: bool, tmp_path: Path) -> None:
    write(tmp_path / preset / "test.jsonl", RECORD)
    folder = tmp_path / preset if is_own_folder else tmp_path
    assert read(preset, folder) == [Question("test_0", "who is it", ("Ann", "Anne"))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            {"golden_answers": []},
            "golden_answers=[]: no gold answer. Remove the question",
            id="no answers",
        ),
        pytest.param(
            {"golden_answers": [" "]}, "golden_answers=[' ']: no gold answer", id="blank answer"
        ),
        # of a multiple-choice question
        pytest.param({"golden_answers": [2]}, "golden_answers.0=2", id="number as answer"),
        # of a multiple-choice question
        pytest.param({"id": 3}, "id=3", id="number as id"),
    ],
)
def test_unusable_record_is_rejected(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = write(tmp_path / "q.jsonl", jsonl(RECORD, {**RECORD, **change}))
    with pytest.raises(DataError, match=rf"q\.jsonl:2.*{re.escape(message)}"):
        read("flashrag", file)


def test_missing_file_names_its_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="get it from https://huggingface"):
        read("flashrag", tmp_path / "no.jsonl")


@pytest.mark.parametrize("preset", ["hotpotqa", "2wiki", "musique"])
def test_reader_of_another_format_is_suggested(tmp_path: Path, preset: str) -> None:
    with pytest.raises(DataError, match="looks like flashrag: run with dataset=flashrag"):
        read(preset, write(tmp_path / "q.jsonl", RECORD))


def test_corpus_titles_have_no_quotes(tmp_path: Path) -> None:
    contents = ['"Ann Lee"\nAnn is a painter.', "Bob\nBob\nbuilds.", "one line", '"\nx']
    file = write(
        tmp_path / "c.jsonl",
        jsonl(*({"id": str(n), "contents": text} for n, text in enumerate(contents))),
    )
    assert list(corpus.read(file)) == [
        Passage.of("Ann Lee", "Ann is a painter."), Passage.of("Bob", "Bob\nbuilds."), Passage.of("", "one line"),
        Passage.of('"', "x"),
    ]  # fmt: skip
    both = {
        "id": "0",
        "title": "Ann",
        "text": "Ann is a painter.",
        "contents": "Ann\nAnn is a painter.",
    }
    assert list(corpus.read(write(tmp_path / "b.jsonl", both))) == [
        Passage.of("Ann", "Ann is a painter.")
    ]
    questions = write(tmp_path / "q.jsonl", RECORD)
    searched = write(tmp_path / "c.jsonl", {"id": "0", "contents": '"A"\nText.'})
    named = built_dataset("flashrag", questions, corpus=str(searched))
    assert list(named.passages()) == [Passage.of("A", "Text.")]
    with pytest.raises(
        DataError, match=r"no passages with text in this file\. Name the file to search in"
    ):
        list(built_dataset("flashrag", questions).passages())


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("https://en.wikipedia.org/wiki/Ann_Lund", "Ann Lund"),
        ("https://en.wikipedia.org/wiki/AC/DC", "AC/DC"),
        ("https://en.wikipedia.org/wiki/Caf%C3%A9#History", "Café"),
        ("https://en.wikipedia.org/w/index.php?title=Ann_Lund&oldid=7", "Ann Lund"),
        ("https://example.org/pages/Ann_Lund", "Ann Lund"),
        ("Ann Lund", "Ann Lund"),
    ],
)
def test_an_address_of_a_page_gives_its_title(text: str, title: str) -> None:
    assert page_title(text) == title

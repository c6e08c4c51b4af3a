"""Questions with chains of thought: the shipped ones are well formed, the authors' are read, broken ones refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.demonstrations import load_thoughts
from kgqa.errors import DataError
from kgqa.methods.steps.replies import extract_answer

DIRECT = "gold_with_1_distractors_context_direct_qa_codex.txt"
RELEASED = Path(os.environ.get("KGQA_DATA", "data")) / "demonstrations" / "ircot_prompts.json.gz"
OURS = {
    "question": "Who wrote Birch?",
    "answer": "Alder",
    "thoughts": ["Birch is by Alder.", "So the answer is: Alder."],
    "passages": [{"title": "Birch", "text": "Birch is by Alder."}],
    "distractors": [{"title": "Elm", "text": "Elm is old."}, {"title": "Fir", "text": "Fir is new."}],
}


def written(folder: Path, *records: Any) -> str:
    path = folder / "own.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thoughts": ["Birch is by Alder."]}, r"own.jsonl:1: thoughts must end in 'the answer is: Alder.'"),
        ({"thoughts": []}, r"own.jsonl:1: thoughts=\[\]: tuple should have at least 1 item"),
        ({"passages": [{"title": "Birch"}]}, r"own.jsonl:1: no key 'passages.0.text'"),
        ({"steps": [{"question": "Who?", "triple": ["B", "by", "A"]}]}, r"<B; by; A> is among no passage's triples"),
    ],
)
def test_a_broken_record_is_named_by_file_and_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_thoughts(written(tmp_path, {**OURS, **change}))


def prompt(reply: str, *titles: str) -> str:
    passages = "".join(f"Wikipedia Title: {title}\n{title} text.\n\n" for title in titles)
    return f'# METADATA: {{"qid": "q1"}}\n{passages}Q: Who?\nA: {reply}\n\n\n'


def released(**changes: str | None) -> dict[str, str]:
    ending = "distractors_context_cot_qa_codex.txt"
    texts: dict[str, str | None] = {
        f"gold_with_1_{ending}": prompt("It is Elm. So the answer is: Elm.", "Fir", "Elm"),
        f"gold_with_2_{ending}": prompt("It is Elm. So the answer is: Elm.", "Oak", "Elm", "Fir"),
        f"gold_with_3_{ending}": prompt("It is Elm. So the answer is: Elm.", "Ash", "Yew", "Elm", "Oak"),
        DIRECT: prompt("Elm", "Fir", "Elm"),
        **changes,
    }
    return {f"prompts/hotpotqa/{name}": text for name, text in texts.items() if text is not None}


def packed(folder: Path, content: Any) -> str:
    path = folder / "released.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return str(path)


def test_the_authors_prompts_keep_every_paragraph_in_its_place(tmp_path: Path) -> None:
    [read] = load_thoughts(packed(tmp_path, released()) + "#hotpotqa")
    assert (read.question, read.answer, read.thoughts) == ("Who?", "Elm", "It is Elm. So the answer is: Elm.")
    titles = [[passage.title for passage in context] for context in read.contexts]
    assert titles == [["Elm"], ["Fir", "Elm"], ["Oak", "Elm", "Fir"], ["Ash", "Yew", "Elm", "Oak"]]
    assert read.context(1)[1].text == "Elm text."


@pytest.mark.parametrize(
    ("content", "section", "message"),
    [
        (released(), "musique", "no prompts of 'musique'. Datasets in this file: hotpotqa"),
        ([1], "hotpotqa", "not a file of IRCoT's prompts"),
        (released(**{DIRECT: None}), "hotpotqa", "is missing. Download"),
        (
            released(**{DIRECT: '# METADATA: {"qid": "q2"}\nQ: W\nA: E'}),
            "hotpotqa",
            "question q1 is not in every prompt",
        ),
        (
            released(**{DIRECT: '# METADATA: {"qid": "q1"}\nText'}),
            "hotpotqa",
            "expected 'Q: …' and 'A: …'",
        ),
        (
            released(**{"no_context_open_llm_retrieval_codex.txt": prompt("Elm", "Main")}),
            "hotpotqa",
            "not JSON",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: Any, section: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_thoughts(f"{packed(tmp_path, content)}#{section}")


@pytest.mark.skipif(not RELEASED.is_file(), reason="IRCoT's prompts are not in KGQA_DATA")
@pytest.mark.parametrize(
    ("section", "count"), [("hotpotqa", 29), ("2wikimultihopqa", 20), ("musique", 20), ("iirc", 12)]
)
def test_the_authors_real_file_is_read_whole(section: str, count: int) -> None:
    read = load_thoughts(f"{RELEASED}#{section}")
    assert len(read) == count
    for each in read:
        assert extract_answer(each.thoughts), each.question
        assert each.answer in each.thoughts
        assert len(each.contexts) == 4
        assert len(each.context(1)) + 2 == len(each.context(2)) + 1 == len(each.context(3))
        assert set(each.context(0)) <= set(each.context(3))
        assert bool(each.pinned) == (section == "iirc")

"""Questions with chains of thought: the shipped ones are well formed, the authors' are read, broken ones refused."""

from __future__ import annotations

import gzip
import json
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.demonstrations import load_thoughts
from kgqa.errors import DataError
from kgqa.methods.steps.few_shot import extract_answer
from kgqa.methods.steps.sentences import sentences

FAMILIES = ("hotpotqa", "2wiki", "musique", "iirc")
RECORDS = {
    name: [
        json.loads(line) for line in (files("kgqa") / "demos" / f"pool_{name}.jsonl").read_text("utf-8").splitlines()
    ]
    for name in FAMILIES
}
ALL = [(name, record) for name, records in RECORDS.items() for record in records]
DIRECT = "gold_with_1_distractors_context_direct_qa_codex.txt"
RELEASED = Path(os.environ.get("KGQA_DATA", "data")) / "demonstrations" / "ircot_prompts.json.gz"
OURS = {
    "question": "Who wrote Birch?",
    "answer": "Alder",
    "thoughts": ["Birch is by Alder.", "So the answer is: Alder."],
    "passages": [{"title": "Birch", "text": "Birch is by Alder."}],
    "distractors": [{"title": "Elm", "text": "Elm is old."}, {"title": "Fir", "text": "Fir is new."}],
}


def given(record: dict[str, Any]) -> str:
    """Everything a thought may rest on."""
    passages = [*record["passages"], *record.get("pinned", [])]
    return " ".join([record["question"], *(f"{each['title']} {each['text']}" for each in passages)])


def supporting(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [*record.get("pinned", []), *record["passages"]]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_ships_twenty_demonstrations(name: str) -> None:
    assert len(load_thoughts(name)) == 20


def test_no_question_comes_twice_nor_is_one_of_the_demo_dataset() -> None:
    asked = [record["question"] for _, record in ALL]
    demo = (files("kgqa") / "datasets" / "demo.jsonl").read_text(encoding="utf-8")
    assert len(set(asked)) == len(asked)
    assert not [question for question in asked if question in demo]
    titles = [passage["title"] for _, record in ALL for passage in record["passages"]]
    assert not [title for title in titles if f'"title": {json.dumps(title)}' in demo]


@pytest.mark.parametrize(("name", "record"), ALL, ids=lambda part: part if isinstance(part, str) else "")
def test_a_chain_of_thought_rests_on_its_passages_and_ends_in_its_answer(name: str, record: dict[str, Any]) -> None:
    thoughts, answer, source = record["thoughts"], record["answer"], given(record)
    assert extract_answer(" ".join(thoughts)) == answer
    assert sentences(" ".join(thoughts)) == thoughts
    assert answer in {"yes", "no"} or answer in source or f"= {answer} " in " ".join(thoughts)
    for thought in thoughts[:-1]:
        if " - " not in thought:  # a calculation has numbers of its own
            names = re.findall(r"[A-ZÀ-Þ][\w’'-]+|\d[\d,]*", thought.split(" ", 1)[1])
            assert not [each for each in names if each.rstrip(",'") not in source], thought
    assert (name == "iirc") == ("pinned" in record)


@pytest.mark.parametrize(("name", "record"), ALL, ids=lambda part: part if isinstance(part, str) else "")
def test_gold_passages_are_named_by_the_chain_and_distractors_are_others(name: str, record: dict[str, Any]) -> None:
    del name
    said = f"{record['question']} {' '.join(record['thoughts'])}".casefold()
    for passage in record["passages"]:
        assert [word for word in re.findall(r"\w{4,}", passage["title"]) if word.casefold() in said], passage["title"]
    passages = [*record.get("pinned", []), *record["passages"], *record["distractors"]]
    assert len({passage["text"] for passage in passages}) == len(passages)
    assert len(record["distractors"]) == 3
    assert all(passage["text"].endswith((".", '"')) for passage in passages)
    assert record["answer"] in {"yes", "no"} or not [
        each for each in record["distractors"] if f" {record['answer']} " in each["text"]
    ]


@pytest.mark.parametrize(("name", "record"), ALL, ids=lambda part: part if isinstance(part, str) else "")
def test_what_a_passage_is_said_to_state_stands_in_it(name: str, record: dict[str, Any]) -> None:
    del name
    stated = [triple for passage in supporting(record) for triple in passage["triples"]]
    for passage in supporting(record):
        assert len(passage["triples"]) >= 2
        for head, _, tail in passage["triples"]:
            assert tail in f"{passage['title']} {passage['text']}"
            assert head in f"{passage['title']} {passage['text']}"
    names = {name for head, _, tail in stated for name in (head, tail)}
    assert names <= set(record["entities"])
    assert all(head in names for head, _, _ in record["implied"])
    assert not [triple for triple in record["implied"] if triple in stated]


@pytest.mark.parametrize(("name", "record"), ALL, ids=lambda part: part if isinstance(part, str) else "")
def test_a_decomposition_asks_only_for_what_is_known_by_then_and_leads_to_the_answer(
    name: str, record: dict[str, Any]
) -> None:
    known = " ".join([record["question"], *(f"{each['title']} {each['text']}" for each in record.get("pinned", []))])
    stated = [triple for passage in supporting(record) for triple in passage["triples"]]
    steps, found = record["steps"], list[str]()
    assert 2 <= len(steps) <= 4
    for step in steps:
        head, _, tail = step["triple"]
        assert step["triple"] in stated
        assert head in known or head in found
        assert step["question"].endswith("?")
        assert not re.search(rf"\b{re.escape(tail)}\b", step["question"])
        found.append(tail)
    names = {part for step in steps for part in step["triple"]}
    told = name == "iirc" or record["answer"] in {"yes", "no"}  # or counted from what was found
    assert told or any(record["answer"] in part or part in record["answer"] for part in names)


@pytest.mark.parametrize("name", ["hotpotqa", "2wiki"])
def test_families_with_closed_questions_have_both_answers(name: str) -> None:
    assert {"yes", "no"} <= {record["answer"] for record in RECORDS[name]}


def written(folder: Path, *records: Any) -> str:
    path = folder / "own.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return str(path)


def test_distractors_are_mixed_with_gold_passages_in_an_order_that_stays(tmp_path: Path) -> None:
    [ours] = load_thoughts(written(tmp_path, OURS))
    titles = [{passage.title for passage in ours.context(count)} for count in (0, 1, 2, 9)]
    assert [len(each) for each in titles] == [1, 2, 3, 3]
    assert all("Birch" in each for each in titles)
    assert ours == load_thoughts(written(tmp_path, OURS))[0]
    assert ours.titles == ("Birch",)


def test_a_pinned_passage_stands_first(tmp_path: Path) -> None:
    pinned = {"title": "Zelkova", "text": "Zelkova read Birch."}
    [ours] = load_thoughts(written(tmp_path, {**OURS, "pinned": [pinned]}))
    assert all(context[0].title == "Zelkova" for context in ours.contexts)
    assert ours.titles == ("Birch",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thoughts": ["Birch is by Alder."]}, r"own.jsonl:1: thoughts must end in 'the answer is: Alder.'"),
        ({"thoughts": []}, r"own.jsonl:1: thoughts=\[\]: tuple should have at least 1 item"),
        ({"answer": ""}, r"own.jsonl:1: answer='': string should have at least 1 character"),
        ({"passages": [{"title": "Birch"}]}, r"own.jsonl:1: passages.0.text: field required"),
        ({"passages": "Birch"}, r"own.jsonl:1: passages='Birch': input should be a valid tuple"),
        (
            {"steps": [{"question": "Who?", "triple": ["Birch", "by"]}]},
            r"jsonl:1: steps.0.triple.2: field required",
        ),
        ({"steps": [{"question": "Who?", "triple": ["B", "by", "A"]}]}, r"<B; by; A> is among no passage's triples"),
    ],
)
def test_a_broken_record_is_named_by_file_and_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_thoughts(written(tmp_path, {**OURS, **change}))


def test_passages_are_needed(tmp_path: Path) -> None:
    without = {key: value for key, value in OURS.items() if key != "passages"}
    with pytest.raises(DataError, match=r"own.jsonl:1: passages: field required"):
        load_thoughts(written(tmp_path, without))


def test_what_a_method_shows_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'Who wrote Birch\?' has no 'steps', which this method shows; take hotpotqa"):
        load_thoughts(written(tmp_path, OURS), needs=("steps",))


def test_an_unknown_family_names_the_shipped_files() -> None:
    with pytest.raises(DataError, match=r"wikihop: no such file .*pool_2wiki.jsonl"):
        load_thoughts("wikihop")


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


def test_the_authors_titles_make_pinned_demonstrations(tmp_path: Path) -> None:
    name = "no_context_open_llm_retrieval_codex.txt"
    [read] = load_thoughts(packed(tmp_path, released(**{name: prompt('["Elm", "Ash"]', "Main")})) + "#hotpotqa")
    assert ([passage.title for passage in read.pinned], read.titles) == (["Main"], ("Elm", "Ash"))


@pytest.mark.parametrize(
    ("content", "section", "message"),
    [
        (released(), "musique", "no prompts of 'musique'; data sets in this file: hotpotqa"),
        ([1], "hotpotqa", "not a file of IRCoT's prompts"),
        (released(**{DIRECT: None}), "hotpotqa", "is missing; fetch"),
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
            released(**{DIRECT: "# METADATA: {\nQ: W\nA: E"}),
            "hotpotqa",
            "not JSON",
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

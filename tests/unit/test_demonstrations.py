"""Files of demonstrations and of few-shot examples: ours, the authors', and broken ones."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.datasets.demonstrations import load_chains, load_documents, load_thoughts
from kgqa.errors import DataError
from kgqa.prompting.demonstrations import demonstration_set, describe_set
from tests.unit.files import jsonl, write

DEMOS = Path(str(files("kgqa") / "demos"))

CHAIN = {
    "question": "Who painted Elm?",
    "steps": [
        {"candidates": [["Elm", "size", "small"], ["Elm", "painter", "Fir"]], "choice": 1},
        {"candidates": [["Fir", "age", "3"]], "choice": None},
    ],
}
DOCUMENT = {"title": "Elm", "text": "Elm is by Fir.", "triples": [["Elm", "painter", "Fir"]]}
RELEASED_STEP = {
    "question": "Who painted Elm?",
    "triples": ["<y>"],
    "candidate_triples": ["A. none", "B. <z>"],
}
RELEASED = {
    "TRIPLE_EXAMPLARS_HOTPOTQA": [
        {"title": "Elm", "text": "Elm is by Fir.", "triples": "<Elm; painter; Fir>\n<Elm; a>"}
    ],
    "GENERATING_CHAIN_EXAMPLARS_HOTPOTQA": [
        [
            {
                **RELEASED_STEP,
                "triples": [],
                "candidate_triples": ["A. none", "B. <x>", "C. <y>"],
                "answer": "C",
            },
            {**RELEASED_STEP, "answer": "A"},
        ]
    ],
}


def write_records(folder: Path, *records: Any) -> str:
    return str(write(folder / "own.jsonl", jsonl(*records)))


def test_own_records_and_shipped_files(tmp_path: Path) -> None:
    [chain] = load_chains(write_records(tmp_path, CHAIN))
    assert (chain.chain, [step.choice for step in chain.selections]) == (
        ("<Elm; painter; Fir>",),
        [1, None],
    )
    assert chain.selections[0].candidates == ("<Elm; size; small>", "<Elm; painter; Fir>")
    [document] = load_documents(write_records(tmp_path, DOCUMENT))
    assert (document.topic, document.triples) == ("Elm: Elm is by Fir.", ("<Elm; painter; Fir>",))
    assert (
        load_documents("2wiki")
        == load_documents("trace_documents_2wiki.jsonl")
        != load_documents("musique")
    )
    assert load_chains("2wiki") == load_chains("trace_chains_2wiki.jsonl") != load_chains("musique")
    shipped = r"absent.jsonl: no such file .* trace_chains_2wiki.jsonl, trace_chains_hotpotqa"
    with pytest.raises(DataError, match=shipped):
        load_chains("absent.jsonl")


def test_the_authors_file_is_read_by_data_set(tmp_path: Path) -> None:
    path = write(tmp_path / "released.json.gz", RELEASED)
    [document] = load_documents(f"{path}#hotpotqa")
    assert document.triples == ("<Elm; painter; Fir>", "<Elm; a>")
    [chain] = load_chains(f"{path}#HOTPOTQA")
    assert (chain.chain, chain.selections[1].candidates) == (("<y>",), ("<z>",))
    with pytest.raises(DataError, match=r"has several datasets. Name one, e.g. .*#HOTPOTQA"):
        load_chains(str(path))
    with pytest.raises(
        DataError, match=r"no list 'TRIPLE_EXAMPLARS_IIRC'. Datasets in this file: HOTPOTQA"
    ):
        load_documents(f"{path}#iirc")


def test_invalid_record_is_reported_by_file_and_line(tmp_path: Path) -> None:
    steps: Any = CHAIN["steps"]
    candidates = [["a", "b", "c"]]
    for record, message in [
        ({"question": "?"}, r":2: no key 'steps'"),
        ({**CHAIN, "question": " "}, r":2: question=' ': string should have at least 1"),
        ({**CHAIN, "steps": []}, r":2: steps=\[\]: tuple should have at least 1"),
        ({**CHAIN, "steps": steps[::-1]}, r":2: step 1 stops, but more steps follow"),
        ({**CHAIN, "steps": steps[1:]}, r":2: the chain selects no triple"),
        ({**CHAIN, "steps": [{"candidates": candidates, "choice": 1}]}, r":2: step 1 has choice=1"),
        (
            {**CHAIN, "steps": [{"candidates": candidates, "choice": "B"}]},
            r":2: steps.0.choice='B': must be an integer",
        ),
    ]:
        with pytest.raises(DataError, match=r"own.jsonl" + message):
            load_chains(write_records(tmp_path, CHAIN, record))
    with pytest.raises(DataError, match=r":1: .*is half a character"):
        load_documents(write_records(tmp_path, {"title": "a", "text": "\ud800", "triples": "x"}))


DIRECT = "gold_with_1_distractors_context_direct_qa_codex.txt"
OURS = {
    "question": "Who wrote Birch?", "answer": "Alder", "thoughts": ["Birch is by Alder.", "So the answer is: Alder."],
    "passages": [{"title": "Birch", "text": "Birch is by Alder."}],
    "distractors": [{"title": "Elm", "text": "Elm is old."}, {"title": "Fir", "text": "Fir is new."}],
}  # fmt: skip


def authors_prompt(reply: str, *titles: str) -> str:
    passages = "".join(f"Wikipedia Title: {title}\n{title} text.\n\n" for title in titles)
    return f'# METADATA: {{"qid": "q1"}}\n{passages}Q: Who?\nA: {reply}\n\n\n'


def released(**changes: str | None) -> dict[str, str]:
    ending = "distractors_context_cot_qa_codex.txt"
    texts: dict[str, str | None] = {
        f"gold_with_1_{ending}": authors_prompt("It is Elm. So the answer is: Elm.", "Fir", "Elm"),
        f"gold_with_2_{ending}": authors_prompt(
            "It is Elm. So the answer is: Elm.", "Oak", "Elm", "Fir"
        ),
        f"gold_with_3_{ending}": authors_prompt(
            "It is Elm. So the answer is: Elm.", "Ash", "Yew", "Elm", "Oak"
        ),
        DIRECT: authors_prompt("Elm", "Fir", "Elm"),
        **changes,
    }
    return {f"prompts/hotpotqa/{name}": text for name, text in texts.items() if text is not None}


def test_authors_prompts_keep_paragraph_positions(tmp_path: Path) -> None:
    def packed(content: Any, section: str = "hotpotqa") -> str:
        return f"{write(tmp_path / 'released.json.gz', content)}#{section}"

    [read] = load_thoughts(packed(released()))
    assert (read.question, read.answer, read.thoughts) == (
        "Who?",
        "Elm",
        "It is Elm. So the answer is: Elm.",
    )
    titles = [[passage.title for passage in context] for context in read.contexts]
    assert titles == [["Elm"], ["Fir", "Elm"], ["Oak", "Elm", "Fir"], ["Ash", "Yew", "Elm", "Oak"]]
    assert read.context(1)[1].text == "Elm text."
    changes: list[tuple[dict[str, Any], str]] = [
        (
            {"thoughts": ["Birch is by Alder."]},
            r"own.jsonl:1: thoughts must end in 'the answer is: Alder.'",
        ),
        ({"thoughts": []}, r"own.jsonl:1: thoughts=\[\]: tuple should have at least 1 item"),
        ({"passages": [{"title": "Birch"}]}, r"own.jsonl:1: no key 'passages.0.text'"),
        (
            {"steps": [{"question": "Who?", "triple": ["B", "by", "A"]}]},
            r"<B; by; A> is among no passage's triples",
        ),
    ]
    for change, message in changes:
        with pytest.raises(DataError, match=message):
            load_thoughts(write_records(tmp_path, {**OURS, **change}))
    for content, section, message in [
        (released(), "musique", "no prompts of 'musique'. Datasets in this file: hotpotqa"),
        ([1], "hotpotqa", "hotpotqa: not IRCoT's prompts"),
        (released(**{DIRECT: None}), "hotpotqa", rf"'{DIRECT}'\). Download the file again"),
        (released(**{DIRECT: '# METADATA: {"qid": "q2"}\nQ: W\nA: E'}), "hotpotqa", "'q1'"),
        (
            released(**{DIRECT: '# METADATA: {"qid": "q1"}\nText'}),
            "hotpotqa",
            "expected 'Q: …' and 'A: …'",
        ),
        (
            released(**{"no_context_open_llm_retrieval_codex.txt": authors_prompt("A", "B")}),
            "hotpotqa",
            "JsonError",
        ),
    ]:
        with pytest.raises(DataError, match=message):
            load_thoughts(packed(content, section))


IRCOT_PROMPTS = (
    Path(os.environ.get("KGQA_DATA", "data")) / "demonstrations" / "ircot_prompts.json.gz"
)


def test_context_has_up_to_that_many_distractors() -> None:
    example = load_thoughts("musique")[0]
    last = len(example.contexts) - 1
    assert [example.context(count) for count in (0, last, last + 1, 99)] == [
        example.contexts[0], example.contexts[last], example.contexts[last], example.contexts[last]
    ]  # fmt: skip


def test_three_example_sets_differ_in_file_order() -> None:
    labelled = load_thoughts("musique")
    sets = [demonstration_set(labelled, number, 15) for number in (1, 2, 3)]
    assert [len(one) for one in sets] == [15, 15, 15]
    assert [list(one) for one in sets] == [
        [each for each in labelled if each in one] for one in sets
    ]
    assert all(
        set(one) != set(other)
        for one, other in combinations([{d.question for d in s} for s in sets], 2)
    )
    assert (demonstration_set(labelled, 1, 15), demonstration_set(labelled, 1, 99)) == (
        sets[0],
        labelled,
    )
    assert demonstration_set(labelled, 1, 0) == ()
    assert describe_set(labelled, 2, 15) == "15 of 20 questions, random set 2"


@pytest.mark.skipif(not IRCOT_PROMPTS.is_file(), reason="IRCoT's prompts are not in KGQA_DATA")
@pytest.mark.parametrize(
    ("name", "number", "first", "last", "count"),
    [
        pytest.param(
            "hotpotqa",
            1,
            "5abb14bd5542992ccd8e7f07",
            "5a790e7855429970f5fffe3d",
            15,
            id="hotpotqa 1",
        ),
        pytest.param(
            "hotpotqa",
            3,
            "5a89d58755429946c8d6e9d9",
            "5adfad0c554299603e41835a",
            15,
            id="hotpotqa 3",
        ),
        pytest.param(
            "2wikimultihopqa",
            2,
            "c6805b2908a911ebbd80ac1f6bf848b6",
            "c6f63bfb089e11ebbd78ac1f6bf848b6",
            15,
            id="2wiki 2",
        ),
        pytest.param(
            "musique",
            1,
            "2hop__804754_52230",
            "4hop3__463724_100414_35260_54090",
            15,
            id="musique 1",
        ),
        pytest.param("iirc", 1, "q_9591", "q_389", 9, id="iirc 1"),
        pytest.param("iirc", 2, "q_2466", "q_389", 7, id="iirc 2"),
    ],
)
def test_authors_examples_appear_in_their_order(
    name: str, number: int, first: str, last: str, count: int
) -> None:
    labelled = load_thoughts(f"{IRCOT_PROMPTS}#{name}")
    examples = demonstration_set(labelled, number, 15)
    sets = json.loads((files("kgqa") / "demos" / "ircot_sets.json").read_text("utf-8"))
    by_place = {each.places[number]: each for each in labelled if number in each.places}
    ids = sets[name][number - 1]
    assert (len(examples), examples[0], examples[-1]) == (
        count,
        by_place[ids.index(first)],
        by_place[ids.index(last)],
    )
    assert demonstration_set(labelled, number, 4) == examples[:4]


@pytest.mark.skipif(not IRCOT_PROMPTS.is_file(), reason="IRCoT's prompts are not in KGQA_DATA")
@pytest.mark.parametrize(
    ("method", "name", "count", "message"),
    [
        pytest.param(
            "ircot", "hotpotqa", 4, "4 of the 15 questions of the authors' set 1", id="ircot"
        ),
        pytest.param(
            "retrieve_read",
            "iirc",
            15,
            "9 of the 15 questions of the authors' set 1, 9 of which the file has",
            id="retrieve_read",
        ),
        pytest.param(
            "iter_retgen",
            "iirc",
            15,
            "9 of the 15 questions of the authors' set 1, 9 of which the file has",
            id="iter_retgen",
        ),
    ],
)
def test_method_reports_the_authors_examples(
    method: str, name: str, count: int, message: str
) -> None:
    where = f"{IRCOT_PROMPTS}#{name}"
    arguments = [f'method.few_shot_path="{where}"', f"method.demonstration_count={count}"]
    assert (
        build(compose([f"method={method}", *arguments])["method"], "method").shows
        == f"{where}: {message}"
    )


@pytest.mark.parametrize("file", sorted(DEMOS.glob("*.jsonl")), ids=lambda file: file.stem)
def test_last_example_is_not_answered_by_yes_or_no(file: Path) -> None:
    """Models repeat the form of the last example: KnowTrace answered who-questions with "no"."""
    last = json.loads(file.read_text("utf-8").splitlines()[-1])
    is_record_of_before = file.stem == "knowtrace_explore_yes_no"
    assert (str(last.get("answer")).casefold() in ("yes", "no")) == is_record_of_before


def test_explorations_come_before_answers() -> None:
    """In turns, they taught a model to write "No" and an answer at once, in 28 of 40 questions (docs/RESULTS.md)."""
    lines = (DEMOS / "knowtrace_explore.jsonl").read_text("utf-8").splitlines()
    answered = [bool(json.loads(line)["answer"]) for line in lines]
    assert answered == [False, False, True, True]

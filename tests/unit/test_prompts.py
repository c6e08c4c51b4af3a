"""Prompts: templates, pinned passages, and questions with chains of thought as few-shot examples."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Neighbours, Rank, Search
from kgqa.datasets.demonstrations import load_thoughts
from kgqa.errors import DataError
from kgqa.prompting import render, render_dry_run_reply
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from kgqa.util.plugins import conf_folders
from tests.composed import built_method

MAIN = Passage.of("Elm", "Elm read a book by Alder, and said so in public.")
ALDER = Passage.of("Alder", "Alder wrote Birch.")
BIRCH = Passage.of("Birch", "Birch is a book of 1901.")
QUESTION = Question(
    "q", "When did the book appear?", ("1901",), (ALDER, BIRCH), frozenset({BIRCH.id}), pinned=(MAIN,)
)  # fmt: skip
OTHERS = {"neighbourhood", "no_context", "retrieve_only", "safe", "trace"}  # call no model or show no found passage
NAMES = sorted({file.stem for folder in conf_folders() for file in Path(folder, "method").glob("*.yaml")})


def answer_and_render(name: str, question: Question, *found: Passage) -> tuple[Answer, list[str]]:
    prompts: list[str] = []

    def reply(call: Call[Any]) -> Any:
        match call:
            case Search():
                return (found if call.pool is None else call.pool)[: call.k]
            case Neighbours():
                return (BIRCH,)
            case Rank():
                return tuple(1.0 for _ in call.texts)
            case CountTokens():
                return len(call.text.split())
            case Generate():
                prompts.append("\n".join(message.content for message in call.prompt.messages))
                return Completion(render_dry_run_reply(call.prompt, len(prompts)))
        raise AssertionError(call)

    answer: Answer = drive(built_method(name).answer(question), reply)
    return answer, [prompt for prompt in prompts if question.text in prompt]


@pytest.mark.parametrize("name", sorted(set(NAMES) - OTHERS))
def test_prompts_show_a_pinned_passage_once(name: str) -> None:
    for found in ((ALDER,), (ALDER, MAIN)):
        answer, prompts = answer_and_render(name, QUESTION, *found)
        shown = [prompts[-1].rpartition(QUESTION.text)[0]]
        if name in ("search_o1", "simple_deep_searcher"):  # the call that reads passages for an agent
            shown += [prompt.partition(QUESTION.text)[0] for prompt in prompts if "Pages found:" in prompt]
            assert len(shown) > 1
        assert [before.count(MAIN.text) for before in shown] == [1] * len(shown)
        assert MAIN in found or MAIN.id not in answer.evidence


def test_render_edited_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("prompts/once/ask.j2")
    file.parent.mkdir(parents=True)
    for template, text in (("{{ shown }} {{ text }}", "x y"), ("another {{ shown }}", "another x")):
        file.write_text(f"{{% block completion %}}{template}{{% endblock %}}", encoding="utf-8")
        os.utime(file, (len(template), len(template)))
        assert render("once/ask", shown="x", text="y").messages[0].content == text


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
        f"gold_with_2_{ending}": authors_prompt("It is Elm. So the answer is: Elm.", "Oak", "Elm", "Fir"),
        f"gold_with_3_{ending}": authors_prompt("It is Elm. So the answer is: Elm.", "Ash", "Yew", "Elm", "Oak"),
        DIRECT: authors_prompt("Elm", "Fir", "Elm"),
        **changes,
    }
    return {f"prompts/hotpotqa/{name}": text for name, text in texts.items() if text is not None}


def test_the_authors_prompts_keep_every_paragraph_in_its_place_and_other_files_are_refused(tmp_path: Path) -> None:
    def packed(content: Any, section: str = "hotpotqa") -> str:
        (tmp_path / "released.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
        return f"{tmp_path}/released.json.gz#{section}"

    [read] = load_thoughts(packed(released()))
    assert (read.question, read.answer, read.thoughts) == ("Who?", "Elm", "It is Elm. So the answer is: Elm.")
    titles = [[passage.title for passage in context] for context in read.contexts]
    assert titles == [["Elm"], ["Fir", "Elm"], ["Oak", "Elm", "Fir"], ["Ash", "Yew", "Elm", "Oak"]]
    assert read.context(1)[1].text == "Elm text."
    changes: list[tuple[dict[str, Any], str]] = [
        ({"thoughts": ["Birch is by Alder."]}, r"own.jsonl:1: thoughts must end in 'the answer is: Alder.'"),
        ({"thoughts": []}, r"own.jsonl:1: thoughts=\[\]: tuple should have at least 1 item"),
        ({"passages": [{"title": "Birch"}]}, r"own.jsonl:1: no key 'passages.0.text'"),
        ({"steps": [{"question": "Who?", "triple": ["B", "by", "A"]}]}, r"<B; by; A> is among no passage's triples"),
    ]
    own = tmp_path / "own.jsonl"
    for change, message in changes:
        own.write_text(json.dumps({**OURS, **change}) + "\n", encoding="utf-8")
        with pytest.raises(DataError, match=message):
            load_thoughts(str(own))
    for content, section, message in [
        (released(), "musique", "no prompts of 'musique'. Datasets in this file: hotpotqa"),
        ([1], "hotpotqa", "hotpotqa: not IRCoT's prompts"),
        (released(**{DIRECT: None}), "hotpotqa", rf"'{DIRECT}'\). Download the file again"),
        (released(**{DIRECT: '# METADATA: {"qid": "q2"}\nQ: W\nA: E'}), "hotpotqa", "'q1'"),
        (released(**{DIRECT: '# METADATA: {"qid": "q1"}\nText'}), "hotpotqa", "expected 'Q: …' and 'A: …'"),
        (released(**{"no_context_open_llm_retrieval_codex.txt": authors_prompt("A", "B")}), "hotpotqa", "JsonError"),
    ]:
        with pytest.raises(DataError, match=message):
            load_thoughts(packed(content, section))

"""A-RAG's tool agent beside its released program: turns, calls, results of keyword searches and answers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Locate, Rank, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.tool_agent import ToolAgent
from kgqa.retrieval.search import PoolIndex
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question, ToolCall
from tests.composed import build_choice, composed_node
from tests.conformance.support import exact_block, load_shared, needs_data, read_agent_rows

pytestmark = needs_data
ROWS = read_agent_rows("tool_agent")
CORPUS = 400  # passages
CHUNK = re.compile(r"^Chunk ID: (\d+)", re.MULTILINE)
# after the turns of a script
NO_ANSWER = "Answer: none"
# what differs on purpose, by category
INTENDED = {
    # an error for the model. The program searches for each letter
    ("keywords as a string", "searches"): 6,
}


@cache
def chunks() -> tuple[Passage, ...]:
    corpus = load_shared("corpora/2wikimultihopqa_hipporag_corpus_6119.json.gz")
    return tuple(Passage.of(each["title"], each["text"]) for each in corpus[:CORPUS])


@cache
def index() -> PoolIndex:
    return PoolIndex(build_choice(composed_node("retriever", "bm25"), "retriever"))


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolAgent:
    """Return the released agent, with the program's prompt from the rows and other descriptions in place."""
    folder = tmp_path / "prompts" / "arag"
    folder.mkdir(parents=True)
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("KGQA_CONF", str(tmp_path / "conf"))
    system = exact_block("system", ROWS[0]["messages"][0]["content"])
    (folder / "agent.j2").write_text(
        f"{{% block user %}}{{{{ question }}}}{{% endblock %}}{system}", encoding="utf-8"
    )
    for name in ("keyword_search", "semantic_search", "read_chunk"):
        for file in (name, f"{name}_argument", f"{name}_top_k", "limit"):
            (folder / f"{file}.j2").write_text(exact_block("user", "A text."), encoding="utf-8")
    released: ToolAgent = build(
        compose(["experiment=arag_released", "engine=llamacpp"])["method"], "method"
    )
    return replace(released, protocol="functions")


class Script:
    """A model with the turns of a row, and the corpus."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row, self.turns, self.first = row, 0, ["", ""]
        self.found: list[list[int]] = []  # by keyword search

    def __call__(self, call: Call[Any]) -> Any:
        match call:
            case CountTokens():
                return 1
            case Rank():
                return (0.0,) * len(call.texts)
            case Locate():
                return tuple(chunks().index(passage) for passage in call.passages)
            case Search(positions=(number,)):
                return chunks()[number : number + 1]
            case Search(keywords=None):
                return chunks()[: call.k]
            case Search():
                [passages] = index().search([replace(call, pool=chunks())])
                self.found.append([chunks().index(passage) for passage in passages])
                return passages
        assert isinstance(call, Generate)
        if not self.turns:
            self.first = [message.content for message in call.prompt.messages]
        turns = self.row["turns"]
        content, calls = turns[self.turns] if self.turns < len(turns) else (NO_ANSWER, [])
        self.turns += 1
        tool_calls = tuple(
            ToolCall(str(n), name, arguments) for n, (name, arguments) in enumerate(calls)
        )
        return Completion(content, tool_calls=tool_calls if call.tools else ())


def read_numbers(answer: Answer) -> list[str]:
    """Return the numbers of the chunks that were read, each once, in the order of the calls."""
    places = {passage.id: str(number) for number, passage in enumerate(chunks())}
    read = [ids for name, _, ids in answer.notes["calls"] if name == "read_chunk"]
    return list(dict.fromkeys(places[each] for ids in read for each in ids))


def differences(row: dict[str, Any], script: Script, answer: Answer) -> list[str]:
    searches = [
        call["tool_result"] for call in row["trajectory"] if call["tool_name"] == "keyword_search"
    ]
    shown_chunks = [
        [int(number) for number in CHUNK.findall(text)]
        for text in searches
        if not text.startswith("Error")
    ]
    forced = len(row["trajectory"]) > 0 and row["messages"][-1]["role"] == "user"
    pairs = {
        "prompt": (script.first, [message["content"] for message in row["messages"][:2]]),
        "turns": (script.turns, row["loops"] + forced),
        "searches": (
            [numbers for numbers in script.found if numbers],
            [numbers for numbers in shown_chunks if numbers],
        ),
        "read": (read_numbers(answer), row["chunks_read"]),
        "answer": (answer.text, row["answer"]),
    }
    return [name for name, (ours, theirs) in pairs.items() if ours != theirs]


def test_released_program_is_repeated(agent: ToolAgent) -> None:
    counts = Counter[tuple[str, str]]()
    for row in ROWS:
        script = Script(row)
        answer = drive(agent.answer(Question("q", row["question"], ("x",))), script)
        counts.update(
            (row["category"], difference) for difference in differences(row, script, answer)
        )
    assert counts == INTENDED

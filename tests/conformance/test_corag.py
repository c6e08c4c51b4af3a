"""CoRAG beside its released program: prompts, sampling, sub-queries, sub-answers and answers of scripted replies."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.corag import CoRAG
from kgqa.system.downloads import list_sources
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Question
from tests.conformance.support import exact_block, needs_data, read_agent_rows, read_passages

pytestmark = needs_data
ROWS = read_agent_rows("corag")
# for the answer, those of the last search
DOCUMENTS = 10
# the values of a call's prompt, by kind: the expression of the program, and a pattern for the text that replaces it
VALUES: dict[str, dict[str, str]] = {
    "query": {
        "past or 'Nothing yet'": r"queries and answers\n(.*?)\n\n## Task",
        "query": r"to answer\n(.*?)\n\nResp",
    },
    "sub": {
        "context.strip()": r"## Documents\n(.*?)\n\n## Query",
        "subquery": r"## Query\n(.*?)\n\nRespond",
    },
    "final": {
        "context.strip()": r"## Documents\n(.*?)\n\n## Intermediate",
        "past or 'Nothing yet'": r"queries and answers\n(.*?)\n\n## Task",
        "query": r"## Main query\n(.*?)\n\nRespond",
    },
}
FILES = {"query": "query", "sub": "sub_answer", "final": "answer"}


@pytest.fixture
def method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CoRAG:
    """Return the released method, with the authors' prompts from the rows in place."""
    folder = tmp_path / "prompts" / "corag_released"
    folder.mkdir(parents=True)
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("KGQA_CONF", str(tmp_path / "conf"))
    for kind, patterns in VALUES.items():
        prompt = next(
            call["messages"][0]["content"] for call in ROWS[0]["calls"] if call["kind"] == kind
        )
        values = list_sources()["corag"].templates[f"corag_released/{FILES[kind]}"].values
        for expression, pattern in patterns.items():
            place = re.search(pattern, prompt, re.DOTALL)
            assert place
            prompt = prompt[: place.start(1)] + values[expression] + prompt[place.end(1) :]
        (folder / f"{FILES[kind]}.j2").write_text(exact_block("user", prompt), encoding="utf-8")
    released: CoRAG = build(compose(["experiment=corag_released"])["method"], "method")
    return replace(released, documents=DOCUMENTS)


class Script:
    """A model with the replies of a row."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row, self.calls, self.searches = row, list[list[Any]](), 0
        self.used = {"query": 0, "sub": 0, "final": 0}

    def __call__(self, call: Call[Any]) -> Any:
        if isinstance(call, CountTokens):
            return 1
        if isinstance(call, Search):
            self.searches += 1
            number = self.searches - 1 if call.k != DOCUMENTS else -1
            return read_passages()[number % len(read_passages())][: call.k]
        assert isinstance(call, Generate)
        kind = next(kind for kind, file in FILES.items() if call.prompt.name.endswith(f"/{file}"))
        self.calls.append(
            [kind, call.prompt.messages[0].content, call.temperature, call.max_tokens]
        )
        replies = {
            "query": self.row["query_replies"],
            "sub": self.row["sub_answer_replies"],
            "final": [self.row["final_reply"]],
        }
        self.used[kind] += 1
        return Completion(replies[kind][(self.used[kind] - 1) % len(replies[kind])])


def differences(row: dict[str, Any], script: Script, answer: Answer) -> list[str]:
    steps = answer.notes["steps"]
    calls = [
        [call["kind"], call["messages"][0]["content"], call["temperature"], call["max_tokens"]]
        for call in row["calls"]
    ]
    pairs = {
        "calls": (script.calls, calls),
        "sub-queries": ([step[0] for step in steps], row["subqueries"]),
        "sub-answers": ([step[1] for step in steps], row["subanswers"]),
        "answer": (answer.text, row["answer"]),
    }
    return [name for name, (ours, theirs) in pairs.items() if ours != theirs]


@pytest.mark.parametrize("category", sorted({row["category"] for row in ROWS}))
def test_released_program_is_repeated(category: str, method: CoRAG) -> None:
    rows = []
    for row in ROWS:
        if row["category"] == category:
            script = Script(row)
            question = Question("q", row["question"], ("x",))
            rows += differences(row, script, drive(method.answer(question), script))
    assert rows == []

"""Search agents that write tags, beside the programs of their authors: contexts, queries, answers and readings."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.errors import ConfigError
from kgqa.methods.search_agent import SearchAgent
from kgqa.system.downloads import list_sources
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests.conformance.support import EXACT, exact_block, needs_data, read_agent_rows, read_passages
from tests.method_world import World

pytestmark = needs_data
NAMES = ["search_agent", "r1_searcher", "research", "search_o1", "simple_deep_searcher"]
# the name of the experiment if it is another one
RELEASED = {"search_agent": "search_r1"}
# of pages, which passages do not have
ADDRESS = re.compile(r' *"url": .*\n')
READING = (
    r"Reasoning Steps:\*\*  \n(.*?)\n\n- \*\*Current",
    r"Search Query:\*\*  \n(.*?)\n\n- \*\*Searched",
    r"Web Pages:\*\*  \n(.*?\n)\n\nNow",
)
INTENDED = {
    # without an answer of the model the program reads "Beijing", the example of its own prompt
    "search_agent": {("too_many_queries", "answer"): 7},
}
NOTHING = (None, "", "I don't know.")
# what the model writes after its turns
ENOUGH = "I give up."


def write_prompts(folder: Path, name: str, rows: list[Any]) -> None:
    """Write the templates of the authors' prompts and notices as `kgqa data download` does, with the texts of rows."""
    question = rows[0]["question"]
    texts = {"prompt": template_of(name, rows[0]["prompt"], question)}
    texts |= {kind: exact_block("user", text) for kind, text in find_notices(name, rows).items()}
    if reading := next((prompt for row in rows for prompt in row.get("read_prompts", ())), None):
        texts["read"] = reading_template(RELEASED.get(name, name), reading)
    folder.mkdir(parents=True)
    for file, text in texts.items():
        (folder / f"{file}.j2").write_text(text, encoding="utf-8")


def reading_template(name: str, prompt: str) -> str:
    """Return a prompt for a reading as a template, with the values that downloads have."""
    values = list_sources()[name].templates[f"{name}/read"].values
    steps, query, pages = (re.search(pattern, prompt, re.DOTALL) for pattern in READING)
    assert steps
    assert query
    assert pages
    parts = [(steps[1], "prev_reasoning"), (pages[1], "document"), (query[1], "search_query")]
    for text, expression in parts:
        # Jinja drops the line break after a tag
        prompt = prompt.replace(text, values[expression] + "{{ '' }}")
    return exact_block("user", prompt)


def template_of(name: str, text: Any, question: str) -> str:
    if isinstance(text, dict):  # ReSearch's
        blocks = (
            exact_block(role, content.replace(question, "{{ question }}"))
            for role, content in text.items()
        )
        return "".join(blocks).replace(EXACT, "") + EXACT
    placeholder = (
        "{{ question ~ ('' if question.endswith('?') else '?') }}"
        if name == "search_agent"
        else "{{ question }}"
    )
    template = text.replace(
        question + "?" * (name == "search_agent" and not question.endswith("?")), placeholder
    )
    return exact_block("completion" if name == "r1_searcher" else "user", template)


def find_notices(name: str, rows: list[Any]) -> dict[str, str]:
    """Return the notices of a program by kind."""
    text = "".join(row["contexts"][-1] for row in rows)
    if name == "search_agent":
        return {"invalid": re.findall(r"\nMy previous action.*?\n", text)[0]}
    if name == "research":
        return {"empty": re.findall(r"<result>\n(nothing.*?)\n</result>", text)[0]}
    notices = set(re.findall(r"\n<\|begin_search_result\|>\n.*?\n<\|end_search_result\|>\n", text))
    return {"limit" if "limit" in notice else "repeated": notice for notice in notices}


@dataclass
class Script:
    """A model with the replies of a row, and a search that finds the passages of the n-th search."""

    row: dict[str, Any]
    passages: list[tuple[Passage, ...]]
    first: str = ""

    def __post_init__(self) -> None:
        self.contexts, self.queries, self.readings = list[str](), list[str](), list[str]()

    def __call__(self, call: Call[Any]) -> Any:
        if isinstance(call, CountTokens):
            return len(call.text.split())
        if isinstance(call, Search):
            self.queries.append(call.query)
            return self.passages[(len(self.queries) - 1) % len(self.passages)][: call.k]
        assert isinstance(call, Generate)
        if call.thoughts == "split":
            self.readings.append(call.prompt.messages[0].content)
            readings = self.row["readings"]
            return Completion(readings[(len(self.readings) - 1) % len(readings)])
        *_, message = call.prompt.messages
        text = call.prompt.prefill or ("" if call.prompt.form == "chat" else message.content)
        if not self.contexts:
            self.first = message.content
        self.contexts.append(
            text.removeprefix(self.first) if call.prompt.form == "completion" else text
        )
        turns = self.row["turns"]
        turn, end = (
            turns[len(self.contexts) - 1] if len(self.contexts) <= len(turns) else (ENOUGH, "eos")
        )
        before, stop = call.split_at_stop(turn)
        return Completion(
            before, "length" if end == "length" and not stop else "stop", stopped_by=stop
        )


def run(agent: SearchAgent, row: dict[str, Any]) -> tuple[Script, Answer]:
    script = Script(row, read_passages())
    return script, drive(agent.answer(Question("q", row["question"], ("x",))), script)


def released(name: str) -> SearchAgent:
    agent: SearchAgent = build(
        compose([f"experiment={RELEASED.get(name, name)}_released"])["method"], "method"
    )
    return agent


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a program, with its prompts in place."""
    name: str = request.param
    rows = read_agent_rows(name)
    write_prompts(tmp_path / "prompts" / RELEASED.get(name, name), name, rows)
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("KGQA_CONF", str(tmp_path / "conf"))
    return name


def differences(row: dict[str, Any], script: Script, answer: Answer) -> list[str]:
    """Return what differs between a program's run and ours."""
    first = row["prompt"]["user"] if isinstance(row["prompt"], dict) else row["prompt"]
    pairs = {
        "prompt": (script.first, first),
        "contexts": (script.contexts, row["contexts"]),
        "queries": (script.queries, row["queries"]),
        "answer": (answer.text.strip(), "" if row["answer"] in NOTHING else row["answer"].strip()),
        "readings": (
            [ADDRESS.sub("", each) for each in script.readings],
            [ADDRESS.sub("", each) for each in row.get("read_prompts", ())],
        ),
    }
    return [name for name, (ours, theirs) in pairs.items() if ours != theirs]


@pytest.mark.parametrize("program", NAMES, indirect=True)
def test_released_program_is_repeated(program: str) -> None:
    agent = released(program)
    counts = Counter(
        (row["category"], difference)
        for row in read_agent_rows(program)
        for difference in differences(row, *run(agent, row))
    )
    assert counts == INTENDED.get(program, {})


def test_unknown_stop_string_is_an_error() -> None:
    agent = replace(released("search_agent"), prompt="search_agent/search_r1")
    with pytest.raises(ConfigError, match="does not report which stop string ended a reply"):
        drive(agent.answer(Question("q", "Who?", ("x",))), World([Completion("<search> a")]))

"""The agents of docs/AGENTS.md, with the packages that they name. `make test-agents` installs these.

A stand-in plays the model: it calls a tool once, and then gives an answer in the form that the framework expects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import kgqa
from kgqa.runtime.display import QUIET
from kgqa.types import Json
from tests.http_server import serve_json

PAGE = Path(__file__).parents[2] / "docs" / "AGENTS.md"
FILES = dict(
    re.findall(
        r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
)
OBJECTS = dict(
    re.findall(
        r"<!-- object: (\S+) -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
)
PACKAGES = {
    "openai_agent.py": "openai",
    "langgraph_agent.py": "langgraph",
    "dspy_agent.py": "dspy",
    "smolagents_agent.py": "smolagents",
    "mcp_agent.py": "mcp",
    "anthropic_agent.py": "anthropic",
}
MOST_LINES = 15
QUESTION = "In which town was the architect of the Candle Bridge born?"
MODEL_REPLIES = {
    "next_tool_name": "[[ ## next_thought ## ]]\nLook.\n\n[[ ## next_tool_name ## ]]\n{tool}\n\n"
    "[[ ## next_tool_args ## ]]\n{args}\n\n[[ ## completed ## ]]",
    "reasoning": "[[ ## reasoning ## ]]\nIt says so.\n\n[[ ## answer ## ]]\nPellery\n\n[[ ## completed ## ]]",
}


def reply_to(request: Json) -> Json:
    """Return the message of the model: a search first, and the answer after a result."""
    messages, tools = request.get("messages", ()), request.get("tools")
    text = json.dumps(messages)
    names = [tool["function"]["name"] for tool in tools or ()]
    # smolagents writes results as observations, and its instructions speak of them, too
    has_result = any(message["role"] == "tool" for message in messages) or "Observation" in str(
        messages[-1:]
    )
    if names and not has_result:
        return _call("search", {"query": "Candle Bridge architect"})
    if "final_answer" in names:
        return _call("final_answer", {"answer": "Pellery"})
    if "next_tool_name" in text:
        has_searched = "observation_0" in text
        name, args = (
            ("finish", {}) if has_searched else ("search", {"query": "Candle Bridge architect"})
        )
        form = MODEL_REPLIES["next_tool_name"].format(tool=name, args=json.dumps(args))
        return {"role": "assistant", "content": form}
    if "## answer ##" in text:
        return {"role": "assistant", "content": MODEL_REPLIES["reasoning"]}
    return {"role": "assistant", "content": "Pellery"}


def _call(name: str, arguments: Json) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"{name}_1", "type": "function", "function": function}],
    }


def play_model(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
    if handler.command == "GET":
        return 200, {"data": [{"id": "stand-in"}]}
    request, usage = json.loads(body), {"prompt_tokens": 9, "completion_tokens": 9}
    if "prompt" in request:
        text = (
            "<answer>Pellery" if "<information>" in request["prompt"] else "<search>Candle Bridge"
        )
        return 200, {
            "model": "stand-in",
            "usage": usage,
            "choices": [{"text": text, "finish_reason": "stop"}],
        }
    message = reply_to(request)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return 200, {
        "model": "stand-in",
        "usage": usage,
        "choices": [{"message": message, "finish_reason": finish}],
    }


@pytest.fixture
def model() -> Iterator[list[str]]:
    with serve_json(play_model, {}) as address:
        yield [
            "model=smollm2_135m", "engine=openai", f"engine.base_url={address}/v1", "engine.served_model=stand-in",
            "engine.server=hosted",
        ]  # fmt: skip


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("name", FILES)
def test_agent_answers_with_recall_and_costs(name: str, model: list[str]) -> None:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    Path(name).write_text(FILES[name], encoding="utf-8")
    finished = kgqa.run(
        *model, f'method.command="python {name}"', "method.timeout=120", "max_failure_rate=1", method="command",
        dataset="demo", limit=1, display=QUIET,
    )  # fmt: skip
    (row,) = finished.predictions
    assert (row["error"], row["answer"]) == (None, "Pellery")
    assert row["evidence_titles"]
    assert finished.metrics.cost.method.calls


@pytest.mark.usefixtures("own_folder")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("package", OBJECTS)
def test_object_answers_with_recall_and_costs(
    package: str, model: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    monkeypatch.setattr(
        "kgqa.api.run", partial(kgqa.run, *model, "max_failure_rate=1", display=QUIET)
    )
    names: dict[str, Any] = {}
    exec(OBJECTS[package], names)
    rows, cost = names["run"].predictions, names["run"].metrics.cost.method
    assert [(row["error"], row["answer"]) for row in rows] == [(None, "Pellery")] * 3
    assert all(row["evidence_titles"] for row in rows)
    assert cost.calls


@pytest.mark.parametrize("name", FILES)
def test_agent_is_short(name: str) -> None:
    assert len([line for line in FILES[name].splitlines() if line.strip()]) <= MOST_LINES

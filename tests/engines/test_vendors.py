"""Claude and Gemini through their own clients. `make test-agents` installs these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import kgqa
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.engines import batches
from kgqa.engines.vendors import Anthropic, Gemini
from kgqa.engines.vendors.claude import read_message
from kgqa.engines.vendors.gemini import read_answer
from kgqa.engines.weights import Model, Prices
from kgqa.errors import ConfigError, EngineError, PromptTooLong, ServerLost, UsageError
from kgqa.runtime.display import QUIET
from kgqa.types import Choice, Completion, Json, Message, Prompt, ToolCall, Usage
from tests.engines.asking import ask, choose, texts, write
from tests.vendor_servers import ClaudeServer, GeminiServer, serve_vendor

# of google-genai's own session
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")
MODEL = Model("a-model", None, None, (), None, 4096, "off", Prices(1.0, 0.5, 2.0), None)
TOO_LONG = "prompt is too long: 200 tokens > 100 maximum"
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
SECRET = "sk-ant-Tr0ub4dor-and-three"
CALLED = ToolCall("t1", "look", '{"at": "sea"}')
TALK = Prompt(
    "test/talk",
    (
        Message("system", "Be short."),
        Message("user", "Who?"),
        Message("assistant", "", (CALLED,)),
        Message("tool", "Blue.", answers="t1"),
    ),
)
TOOLS = '[{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]'


def open_engine(name: str, model: Any = MODEL, **fields: Any) -> Any:
    return build(compose([f"engine={name}"])["engine"] | fields, "engine", model=model)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS.values():
        monkeypatch.setenv(name, SECRET)


@pytest.fixture
def claude(key: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClaudeServer]:
    pytest.importorskip("anthropic")
    monkeypatch.setattr(batches, "POLL", 0.02)
    monkeypatch.setenv("KGQA_HOME", str(tmp_path))
    server = ClaudeServer()
    with serve_vendor(server):
        yield server


@pytest.fixture
def gemini(key: None) -> Iterator[GeminiServer]:
    pytest.importorskip("google.genai")
    server = GeminiServer()
    with serve_vendor(server):
        yield server


def ask_vendor(server: ClaudeServer | GeminiServer, calls: list[Any], **fields: Any) -> list[Any]:
    name = "anthropic" if isinstance(server, ClaudeServer) else "gemini"
    engine = open_engine(name, base_url=server.address, retries=0, **fields)
    try:
        return ask(engine, calls)
    finally:
        engine.close()


def test_conversation_with_tools_is_written_for_claude() -> None:
    engine: Anthropic = open_engine("anthropic")
    call = replace(
        write(""), prompt=TALK, tools=TOOLS, tool_choice='"required"', stop=("END", "\n")
    )
    body = engine.write_request(call)
    assert (body["system"], body["max_tokens"], body["stop_sequences"]) == (
        "Be short.",
        12,
        ["END"],
    )
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "sea"}}
    ]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": "Blue."}
    ]
    assert body["tools"] == [
        {"name": "look", "description": "", "input_schema": {"type": "object"}}
    ]
    assert body["tool_choice"] == {"type": "any"}
    # the API has none of these
    assert not {"temperature", "top_p", "seed"} & set(body)


THINKING: dict[str, tuple[Any, Json, Json]] = {
    "off": ("off", {"type": "disabled"}, {"thinking_budget": 0}),
    "budget": (
        2048,
        {"type": "enabled", "budget_tokens": 2048},
        {"include_thoughts": True, "thinking_budget": 2048},
    ),
    "effort": ("low", {"type": "adaptive"}, {"include_thoughts": True, "thinking_level": "LOW"}),
}


@pytest.mark.parametrize(("thinking", "sent", "other"), THINKING.values(), ids=THINKING)
def test_reasoning_is_set(thinking: Any, sent: Json, other: Json) -> None:
    model = replace(MODEL, thinking=thinking)
    assert open_engine("anthropic", model).write_request(write("Who?"))["thinking"] == sent
    assert (
        open_engine("gemini", model).write_request(write("Who?"))["config"]["thinking_config"]
        == other
    )


def test_request_is_written_for_gemini() -> None:
    engine: Gemini = open_engine("gemini", extra_body={"top_k": 3})
    call = write("Who?", temperature=0.5, seed=7, stop=tuple("abcdefg"))
    request = engine.write_request(call)
    assert request["contents"] == [{"role": "user", "parts": [{"text": "Who?"}]}]
    config = request["config"]
    assert (config["temperature"], config["seed"], config["top_k"]) == (0.5, 7, 3)
    assert config["stop_sequences"] == list("abcde")


def test_message_of_claude_is_read() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Ann"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "sea"}},
    ]
    usage = {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 7,
             "output_tokens_details": {"thinking_tokens": 2}}  # fmt: skip
    message = {"content": content, "stop_reason": "max_tokens", "usage": usage}
    reply = read_message(message, write("Who?", temperature=0.5))
    assert (reply.text, reply.thought, reply.tool_calls) == ("Ann", "Hm.", (CALLED,))
    assert (reply.finish, reply.usage) == ("length", Usage(8, 3, 7, 0.0, 2))
    assert reply.flags == ("fixed_temperature", "no_seed")


def test_blocked_answer_of_gemini_is_flagged() -> None:
    reply = read_answer({"prompt_feedback": {"block_reason": "SAFETY"}}, write("Who?"))
    assert (reply.text, reply.flags) == ("", ("filtered",))


@pytest.mark.parametrize("name", KEYS)
def test_missing_key_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip({"anthropic": "anthropic", "gemini": "google.genai"}[name])
    monkeypatch.delenv(KEYS[name], raising=False)
    with pytest.raises(ConfigError, match=KEYS[name]):
        open_engine(name).find_key()


def test_claude_answers(claude: ClaudeServer) -> None:
    [reply] = ask_vendor(claude, [write("Who?")])
    assert isinstance(reply, Completion), reply
    assert (reply.text, reply.flags) == ("re: Who?", ("fixed_temperature",))
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens, reply.usage.output_tokens) == (
        1000,
        100,
        500,
    )


def test_further_keys_are_sent_to_claude(claude: ClaudeServer) -> None:
    [reply] = ask_vendor(claude, [write("Who?")], extra_body={"new_key": 1, "max_tokens": 7})
    assert isinstance(reply, Completion), reply
    assert (claude.requests[0]["new_key"], claude.requests[0]["max_tokens"]) == (1, 7)


def test_gemini_answers(gemini: GeminiServer) -> None:
    [reply] = ask_vendor(gemini, [write("Who?")])
    assert isinstance(reply, Completion), reply
    assert (reply.text, reply.usage.output_tokens, reply.usage.reasoning_tokens) == ("Ann", 5, 3)
    [(path, body)] = gemini.requests
    assert path.endswith(f"{MODEL.name}:generateContent")
    assert body["generationConfig"]["maxOutputTokens"] == 12


def test_choices_are_read_from_text(gemini: GeminiServer) -> None:
    gemini.candidate = {"content": {"parts": [{"text": "B."}]}, "finishReason": "STOP"}
    [reply] = ask_vendor(gemini, [choose("Which?", 3)])
    assert isinstance(reply, Choice), reply
    assert max(reply.logprobs) == reply.logprobs[1]
    assert "parsed_choice" in reply.flags


@pytest.mark.parametrize(
    "prefill", ["Answer:", "I search for the mill.\nAnswer:"], ids=["label", "with a stop string"]
)
def test_repeated_prefill_is_removed(prefill: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def repeat(engine: Anthropic, call: Any) -> Completion:
        return Completion(f"{prefill} Bo\nand more", "stop", Usage())

    monkeypatch.setattr(Anthropic, "send", repeat)
    engine = open_engine("anthropic")
    prompt = Prompt("t", (Message("user", "Who?"),), prefill)
    [reply] = ask(engine, [replace(write("Who?"), prompt=prompt, stop=("\n",))])
    engine.close()
    assert isinstance(reply, Completion)
    assert (reply.text, reply.stopped_by) == (" Bo", "\n")


@pytest.mark.parametrize(
    "prefill", ["Answer:", "The mill was built by Bo. He"], ids=["label", "transcript"]
)
def test_prefill_is_flagged(claude: ClaudeServer, prefill: str) -> None:
    [reply] = ask_vendor(
        claude, [replace(write("Who?"), prompt=Prompt("t", (Message("user", "Who?"),), prefill))]
    )
    flag = "no_prefill" if prefill == "Answer:" else "transcript_as_message"
    assert flag in reply.flags
    assert claude.requests[0]["messages"][-1]["role"] == "user"


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
def test_agents_write_their_own_reasoning(vendor: str) -> None:
    """As `Generate.thoughts` says: the model ignores model.thinking."""
    reasoning = open_engine(vendor, replace(MODEL, thinking=2048))
    call = write("Who?", thoughts="keep", stop=("</search>",))
    assert reasoning.write_request(call) == open_engine(vendor).write_request(call)


def test_reasoning_that_is_left_out_is_flagged(claude: ClaudeServer) -> None:
    model = replace(MODEL, thinking=2048)
    [reply] = ask_vendor(claude, [write("Who?", thoughts="keep")], model=model)
    assert "no_thinking" in reply.flags


def test_choices_have_the_time_of_their_call(gemini: GeminiServer) -> None:
    [reply] = ask_vendor(gemini, [choose("Which?", 3)])
    assert reply.usage.seconds > 0


@pytest.mark.parametrize("vendor", ["claude", "gemini"])
def test_logprobs_are_rejected(vendor: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(vendor)
    [error] = ask_vendor(server, [write("Who?", logprobs=1)])
    assert isinstance(error, EngineError)
    assert "logprobs" in str(error)
    assert not server.requests


def claude_error(status: int, kind: str, message: str) -> tuple[int, Json]:
    return status, {"type": "error", "error": {"type": kind, "message": message}}


ERRORS: dict[str, tuple[tuple[int, Json], type[Exception], str]] = {
    "key": (claude_error(401, "authentication_error", f"invalid x-api-key {SECRET}"), ConfigError, "ANTHROPIC_API_KEY"),
    "model": (claude_error(404, "not_found_error", "model: no"), ConfigError, "does not know the model"),
    "too long": (claude_error(400, "invalid_request_error", TOO_LONG), PromptTooLong, "too long"),
    "account": (claude_error(400, "invalid_request_error", "Your credit balance is too low"), UsageError, "used up"),
    "overloaded": (claude_error(529, "overloaded_error", "Overloaded"), ServerLost, "overloaded"),
    "request": (claude_error(400, "invalid_request_error", "messages: no"), EngineError, "messages: no"),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "kind", "named"), ERRORS.values(), ids=ERRORS)
def test_errors_of_claude(
    claude: ClaudeServer, answer: Any, kind: type[Exception], named: str
) -> None:
    claude.errors = [answer]
    [error] = ask_vendor(claude, [write("Who?")])
    assert type(error) is kind or (kind is EngineError and isinstance(error, EngineError)), error
    assert named in str(error)
    assert SECRET not in str(error)


GEMINI_ERRORS: dict[str, tuple[int, str, str, type[Exception]]] = {
    "key": (400, "INVALID_ARGUMENT", "API key not valid", ConfigError),
    "quota": (429, "RESOURCE_EXHAUSTED", "Quota exceeded", ServerLost),
    "model": (404, "NOT_FOUND", "models/x is not found", ConfigError),
}


@pytest.mark.parametrize(
    ("status", "word", "message", "kind"), GEMINI_ERRORS.values(), ids=GEMINI_ERRORS
)
def test_errors_of_gemini(
    gemini: GeminiServer, status: int, word: str, message: str, kind: type[Exception]
) -> None:
    gemini.errors = [(status, {"error": {"code": status, "message": message, "status": word}})]
    [error] = ask_vendor(gemini, [write("Who?")])
    assert type(error) is kind, error


@pytest.mark.parametrize("name", KEYS)
def test_unreachable_vendor_stops_the_run(name: str, key: None) -> None:
    pytest.importorskip({"anthropic": "anthropic", "gemini": "google.genai"}[name])
    engine = open_engine(name, base_url="http://127.0.0.1:9", retries=0)
    [error] = ask(engine, [write("Who?")])
    engine.close()
    assert isinstance(error, ServerLost), error


CALLS = [write(f"question {number}") for number in range(4)]
REPLIES = [f"re: question {number}" for number in range(4)]


def test_wave_of_claude_is_one_batch(claude: ClaudeServer) -> None:
    claude.is_open.set()
    assert texts(ask_vendor(claude, CALLS, batch=True, batch_wait=0.05)) == REPLIES
    assert (len(claude.batches), claude.requests) == (1, [])


def test_wait_for_a_batch_is_not_the_time_of_a_call(claude: ClaudeServer) -> None:
    claude.is_open.set()
    [reply] = ask_vendor(claude, CALLS[:1], batch=True, batch_wait=0.05)
    assert reply.usage.seconds == 0


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "killed before the note"])
def test_batch_of_claude_is_found_again(
    claude: ClaudeServer, tmp_path: Path, is_noted: bool
) -> None:
    engine = open_engine(
        "anthropic", base_url=claude.address, retries=0, batch=True, batch_wait=0.05
    )
    for call in CALLS:
        engine.submit(call, SimpleQueue[Any]().put)
    assert claude.submitted.wait(30)
    engine.close()
    (notes,) = (tmp_path / "batches").glob("*.jsonl")
    if not is_noted:
        notes.write_bytes(notes.read_bytes().splitlines(keepends=True)[0])
    claude.is_open.set()
    assert texts(ask_vendor(claude, CALLS, batch=True, batch_wait=0.05)) == REPLIES
    assert set(claude.paid.values()) == {1}


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("vendor", ["claude", "gemini"])
def test_run_with_a_model_by_its_name(
    vendor: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue(vendor)
    monkeypatch.chdir(tmp_path)
    engine = "anthropic" if vendor == "claude" else "gemini"
    words = (f"engine={engine}", "model=another-model", f"engine.base_url={server.address}")
    prices = [f"model.prices.{key}=1" for key in ("input", "cached", "output")]
    run = kgqa.run(*words, *prices, method="no_context", dataset="demo", limit=2, display=QUIET)
    assert [row["error"] for row in run.predictions] == [None, None]
    assert "another-model" in str(server.requests[0])
    assert run.metrics.cost.paid.usd


@pytest.mark.usefixtures("key")
def test_tools_need_a_vendor_with_function_calls(
    gemini: GeminiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (
        "engine=gemini",
        "model=another-model",
        f"engine.base_url={gemini.address}",
        "method.protocol=functions",
    )
    with pytest.raises(ConfigError, match="function calls"):
        kgqa.run(*words, method="tool_agent", dataset="demo", limit=1, display=QUIET)
    assert not gemini.requests

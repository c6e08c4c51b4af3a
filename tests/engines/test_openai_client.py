"""engine=openai at a server that fails, refuses or lacks features: no call is lost, and no guess becomes a score."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import pytest

from kgqa.calls import Choose, Generate, labels
from kgqa.engines.openai.limits import QUEUING_LIMIT
from kgqa.engines.openai.option_logprobs import find_label
from kgqa.engines.openai.requests import Abilities, generation_settings
from kgqa.engines.openai.responses import read_response
from kgqa.engines.openai.transport import Refused
from kgqa.errors import BudgetSpent, ConfigError, EngineDied, EngineError, PromptTooLong, ServerLost
from kgqa.identity.component import identity_of
from kgqa.types import Choice, Completion, Message, Prompt
from tests.engines import misbehaving
from tests.engines.asking import ask, choose, texts, write
from tests.engines.misbehaving import (
    SECRET,
    Body,
    Conversation,
    Fault,
    Serving,
    answer,
    prompt,
    refuse,
    slow,
    without,
)
from tests.engines.openai_calls import CALLS, MODEL, REPLIES, asked, engine
from tests.faults import logprob, usage, whole

PREFILLED = Generate(
    Prompt("test/prefill", (Message("system", "Be brief."), Message("user", "Who?")), "Answer:"), 5
)
PLAIN = Generate(Prompt("test/plain", (Message("user", "Q: why?\nA:"),), form="completion"), 5)
# of A to T at the server
WEIGHTS = [0.5 ** (place + 1) for place in range(20)]


def test_retry_after_holds_for_every_call(serving: Serving) -> None:
    server = serving(refuse(429, retry_after="0.5"))
    opened = engine(server)
    delivered: SimpleQueue[Any] = SimpleQueue()
    opened.submit(CALLS[0], delivered.put)
    while not server.asked:
        time.sleep(0.01)
    time.sleep(0.2)  # the refusal has arrived
    opened.submit(CALLS[1], delivered.put)
    assert sorted(texts([delivered.get(timeout=10) for _ in range(2)])) == REPLIES[:2]
    opened.close()
    first, *others = [at for at, _ in server.asked]
    assert len(others) == 2
    assert all(at - first >= 0.49 for at in others)


@pytest.mark.slow
def test_server_that_comes_back_in_time_loses_nothing(serving: Serving) -> None:
    server = serving()
    opened = engine(server, server_timeout=1.5)
    # the time starts again for the second
    for call, text in zip(CALLS[:2], REPLIES[:2], strict=True):
        server.stop()
        threading.Timer(0.9, server.start).start()
        assert texts(ask(opened, [call])) == [text]
    opened.close()
    assert set(server.answered.values()) == {1}


def good(conversation: Conversation, body: Body) -> None:
    conversation.server.boss.reply(conversation, body)


def poisoned(fault: Fault) -> Fault:
    """Answer all calls but those for question 0."""
    return lambda *request: (fault if prompt(request[1]) == "question 0" else good)(*request)


def test_outage_costs_no_call(serving: Serving) -> None:
    """While the server fails, one call after the other tries it."""
    server = serving(*[refuse(503, "loading")] * 6)
    assert texts(asked(server, list(CALLS), server_timeout=60.0, concurrency=1)) == REPLIES
    assert len(server.asked) == 14
    server = serving(*[refuse(status) for status in (500, 502, 403, 401, 429)])
    opened = engine(server, server_timeout=60.0)
    # a key that was good is not called wrong
    server.faults.appendleft(good)
    assert texts(ask(opened, CALLS[:1])) == REPLIES[:1]
    assert texts(ask(opened, CALLS[1:])) == REPLIES[1:]
    opened.close()
    assert set(server.answered.values()) == {1}


def test_failed_call_does_not_fail_the_others(serving: Serving) -> None:
    server = serving(always=poisoned(refuse(500, "the dog ate it")))
    opened = engine(server, retries=2, server_timeout=60.0, concurrency=2)
    delivered: SimpleQueue[Any] = SimpleQueue()
    opened.submit(CALLS[0], delivered.put)
    error = None
    while error is None:  # others are answered meanwhile
        opened.submit(CALLS[1], delivered.put)
        reply = delivered.get(timeout=10)
        error = reply if isinstance(reply, Exception) else None
    opened.close()
    assert type(error) is EngineError
    assert "the dog ate it" in str(error)


@pytest.mark.parametrize("status", [500, 403])
def test_failed_last_call_is_no_lost_server(serving: Serving, status: int) -> None:
    """A test request shows that the server works, so the run can end."""
    server = serving(always=poisoned(refuse(status, "the dog ate it")))
    [error] = asked(server, CALLS[:1], server_timeout=0.1)
    assert type(error) is EngineError
    assert "the server answers a test call, but not this call: " in str(error)
    assert server.answered == {"Hello": 1}


def test_calls_that_always_fail_end_after_a_test(serving: Serving) -> None:
    """They do not wait for `server_timeout`: a test request after some failures shows that the server works."""
    server = serving(always=poisoned(refuse(500, "the dog ate it")))
    errors = asked(server, [CALLS[0], CALLS[0]], server_timeout=3600.0)
    assert {type(error) for error in errors} == {EngineError}
    assert {str(error).partition(":")[0] for error in errors} == {
        "the server answers a test call, but not this call"
    }


def test_server_that_fails_every_call_is_retried(serving: Serving) -> None:
    """A test request that fails, too, is no reason to give up."""
    server = serving(*[refuse(500, "restarting")] * 9)
    assert texts(asked(server, CALLS[:1], server_timeout=60.0)) == REPLIES[:1]


def test_timeout_of_zero_ends_at_the_first_failure(serving: Serving) -> None:
    """Messages about an unreachable server recommend it. A server that answers needs no patience."""
    assert texts(asked(serving(), list(CALLS), server_timeout=0)) == REPLIES
    server = serving()
    server.stop()
    [error] = asked(server, CALLS[:1], server_timeout=0)
    assert isinstance(error, ServerLost)


def test_close_drops_running_calls(serving: Serving) -> None:
    opened = engine(serving(always=slow(3)))
    delivered: list[Any] = []
    for call in CALLS:
        opened.submit(call, delivered.append)
    time.sleep(0.2)
    opened.close()
    assert delivered == []
    assert not [thread for thread in threading.enumerate() if thread.name == "openai"]
    with pytest.raises(EngineDied):
        opened.submit(CALLS[0], delivered.append)


@pytest.mark.parametrize(
    ("concurrency", "limit"), [(5, 5), (None, 22)], ids=["set by the user", "default"]
)
def test_rate_limit_lowers_concurrency(
    serving: Serving, concurrency: int | None, limit: int
) -> None:
    opened = engine(serving(*[refuse(429, "too many requests")] * 3), concurrency=concurrency)
    assert opened.max_concurrency == (concurrency or 32)
    ask(opened, CALLS)
    opened.close()
    assert opened.max_concurrency == limit


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_server_that_queues_calls_gets_more(serving: Serving, kind: str) -> None:
    opened = engine(serving(), server=kind, concurrency=None)
    assert opened.max_concurrency == QUEUING_LIMIT
    opened.close()


def test_missing_key(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = serving()
    asked(server, CALLS[:1])
    assert server.keys == {None}
    [error] = asked(serving(always=refuse(401, "No key")), CALLS[:1])
    assert isinstance(error, ConfigError)
    assert (
        "engine.api_key_env names (OPENAI_API_KEY unless set otherwise) is not set: No key. "
        "Set it, for example: export OPENAI_API_KEY=…" in str(error)
    )
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    [error] = asked(None, CALLS[:1], api_key_env="OTHER_KEY")
    assert isinstance(error, ConfigError)
    assert str(error).startswith(
        "$OTHER_KEY is not set, and https://api.openai.com/v1 requires a key"
    )


@pytest.mark.parametrize("status", [400, 413, 429, 503])
def test_prompt_is_shortened_by_a_step_without_numbers(serving: Serving, status: int) -> None:
    message = "Input is too long for requested model. (request id: 20261126093000123456789)"
    [error] = asked(serving(always=refuse(status, message)), [write("word " * 400)])
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.limit) == (500, 450)
    assert str(error) == f"the server rejected the prompt as too long: {message}"


@pytest.mark.parametrize("status", [403, 500, 503])
def test_server_without_models_is_waited_for(serving: Serving, status: int) -> None:
    server = serving()
    server.models_status = status
    assert texts(asked(server, list(CALLS))) == REPLIES
    assert server.listed == 1
    server = serving()
    server.models_status, server.models = 503, ["Loading model"]  # type: ignore[list-item]
    [error] = asked(server, CALLS[:1], server_timeout=0.1)
    assert isinstance(error, ServerLost)
    assert server.listed > 1
    assert not server.asked


@pytest.mark.parametrize(
    ("listed", "kind", "message"),
    [
        ({"id": MODEL.name, "owned_by": "vllm"}, "sglang", "/v1 is vllm. Set engine.server"),
        (
            {"id": "gemma"},
            None,
            "serves 'gemma', not 'gpt-4o-mini-2024-07-18'. Set engine.served_model",
        ),
    ],
    ids=["server", "model"],
)
def test_other_server_or_model(
    serving: Serving, listed: dict[str, str], kind: str | None, message: str
) -> None:
    (server := serving()).models = [listed]
    [error] = asked(server, CALLS[:1], server=kind)
    assert isinstance(error, ConfigError)
    assert message in str(error)
    assert not server.asked


def test_https_address_of_an_http_server(serving: Serving) -> None:
    server = serving()
    [error] = asked(server, CALLS[:1], base_url=server.url.replace("http:", "https:"))
    assert isinstance(error, ConfigError)
    assert str(error).endswith(f"the server speaks http: write server={server.url}")


def test_served_model_has_another_name(serving: Serving) -> None:
    (server := serving()).models = [{"id": "gemma"}]
    assert texts(asked(server, CALLS[:1], served_model="gemma")) == REPLIES[:1]


def test_vllm_is_used_as_a_hosted_server(serving: Serving) -> None:
    """A proxy passes only /v1 of it."""
    (server := serving()).models = [{"id": MODEL.name, "owned_by": "vllm"}]
    assert texts(asked(server, CALLS[:1])) == REPLIES[:1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"server_timeout": math.inf}, "engine.server_timeout=inf"),
        (
            {"budget_usd": 1.0, "model": replace(MODEL, prices=None)},
            "engine.budget_usd=1.0: the model has no prices",
        ),
        ({"base_url": "localhost:8000"}, "engine.base_url=localhost:8000"),
        ({"base_url": "http://127.0.0.1:port/v1"}, "engine.base_url=http://127.0.0.1:port/v1"),
        (
            {"base_url": f"http://me:{SECRET}@host/v1"},
            "must not contain a user name, password or query",
        ),
        (
            {"base_url": f"https://host/v1?key={SECRET}"},
            "must not contain a user name, password or query",
        ),
        ({"api_key_env": SECRET}, "NAME of an environment variable"),
        ({"server": "ours"}, "engine.server=ours"),
    ],
)
def test_invalid_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        engine(**fields)
    assert message in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.fixture
def proxy(serving: Serving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a server that is the only proxy, with a .netrc for it."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    (tmp_path / ".netrc").write_text(
        "machine 127.0.0.1 login someone password hidden\n", encoding="utf-8"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    return serving()


@pytest.mark.parametrize("scheme", ["http://", ""], ids=["address", "address without a scheme"])
def test_proxy_serves_other_hosts(proxy: Any, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("http_proxy", f"{scheme}127.0.0.1:{proxy.port}")
    assert texts(asked(None, CALLS[:2], base_url="http://models.invalid/v1")) == REPLIES[:2]


def test_loopback_needs_no_proxy_and_no_netrc(
    serving: Serving, proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    server = serving()
    assert texts(asked(server, CALLS[:2])) == REPLIES[:2]
    assert not proxy.asked
    assert server.keys == {f"Bearer {SECRET}"}


def test_listed_options_have_exact_shares(serving: Serving) -> None:
    [reply] = asked(serving(always=misbehaving.capped), [choose("Pick.", 20)])
    assert (reply.flags, reply.mass) == ((), pytest.approx(sum(WEIGHTS)))
    assert [math.exp(p) for p in reply.logprobs] == pytest.approx(
        [weight / sum(WEIGHTS) for weight in WEIGHTS]
    )


@pytest.mark.parametrize("prompt", ["Pick.", "Pick again."])
def test_unlisted_options_share_the_rest(serving: Serving, prompt: str) -> None:
    """31 options at a server that lists 20."""
    [reply] = asked(serving(always=misbehaving.capped), [choose(prompt, 31)])
    assert isinstance(reply, Choice)
    assert (reply.flags, reply.mass) == (("bounded_choice",), None)
    assert math.isclose(sum(map(math.exp, reply.logprobs)), 1)
    listed, others = reply.logprobs[:20], reply.logprobs[20:]
    assert listed[0] - listed[1] == pytest.approx(math.log(2))
    assert len(set(others)) == 1
    assert -20 < others[0] < listed[-1]


def test_limit_of_top_logprobs_is_learned_once(serving: Serving) -> None:
    server = serving(always=misbehaving.capped)
    asked(server, [choose("Pick.", 31), choose("Pick again.", 31)], concurrency=1)
    refusals = [body for _, body in server.asked if body["top_logprobs"] > 20]
    # learned from the first, which both may have sent at once
    assert 1 <= len(refusals) <= 2


LISTING = {"max_tokens": 1, "logprobs": True, "top_logprobs": 40}
LIMITED = Abilities().learn(
    Refused(400, {"message": "'top_logprobs' must be at most 20, not 40 or 5"}), LISTING
)


@pytest.mark.parametrize(
    "abilities",
    [LIMITED, LIMITED | Abilities(), Abilities() | LIMITED],
    ids=["learned", "joined with others", "others joined with it"],
)
def test_top_logprobs_follow_the_limit_of_the_server(abilities: Abilities) -> None:
    assert abilities.fit(LISTING) == ({**LISTING, "top_logprobs": 20}, ())


@pytest.mark.parametrize("message", ["logprobs are not supported", "top_logprobs: 3 unsupported"])
def test_logprobs_are_omitted_if_unsupported(message: str) -> None:
    without_lists = Abilities().learn(Refused(400, {"message": message}), LISTING)
    assert without_lists.fit(LISTING) == ({"max_tokens": 1}, ("no_logprobs",))


def test_parsed_choice(serving: Serving) -> None:
    [reply] = asked(serving(always=misbehaving.without_logprobs), [choose("Pick.", 5)])
    assert reply.flags == ("parsed_choice",)
    assert max(reply.logprobs) == reply.logprobs[2]
    assert math.isclose(sum(map(math.exp, reply.logprobs)), 1)
    assert reply.usage.output_tokens == 8  # both requests were paid


def test_reply_without_an_option_is_no_choice(serving: Serving) -> None:
    [reply] = asked(
        serving(always=answer({"content": "I would rather not."})), [choose("Pick.", 4)]
    )
    assert reply.flags == ("parsed_choice", "no_choice")
    assert reply.logprobs == pytest.approx([-math.log(4)] * 4)


def test_impossible_options_are_parsed_from_the_text(serving: Serving) -> None:
    [reply] = asked(serving(always=logprob(-9999.0)), [choose("Pick.", 4)])
    assert "parsed_choice" in reply.flags


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("B", "B"),
        (" C.", "C"),
        ("**D**", "D"),
        ("(B) because", "B"),
        ("The answer is C", "C"),
        ("B or C", None),
        ("", None),
        ("E", None),
    ],
)
def test_label_is_read_from_a_text(text: str, label: str | None) -> None:
    assert find_label(text, labels(4)) == label


def test_article_is_no_label() -> None:
    assert find_label("A dog", labels(4)[1:]) is None


@pytest.mark.parametrize("key", ["temperature", "seed", "response_format"])
def test_rejected_key_is_omitted_and_flagged(serving: Serving, key: str) -> None:
    changes: dict[str, Any] = {
        "seed": {"temperature": 1.0, "seed": 3},
        "response_format": {"schema": '{"type": "object"}'},
    }
    flag = {
        "temperature": "fixed_temperature",
        "seed": "no_seed",
        "response_format": "unconstrained",
    }[key]
    server = serving(always=without(key))
    opened = engine(server)
    replies = [
        reply
        for _ in range(2)
        for reply in ask(opened, [write("question", **changes.get(key, {}))])
    ]
    opened.close()
    assert [reply.flags for reply in replies if isinstance(reply, Completion)] == [(flag,)] * 2
    assert len(server.asked) == 3  # once with the key


def test_rejected_schema_leaves_others(serving: Serving) -> None:
    def picky(conversation: Conversation, body: Body) -> None:
        if "required" in json.dumps(body.get("response_format")):
            refuse(400, "Invalid schema: too much is required.")(conversation, body)
        else:
            good(conversation, body)

    required = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    calls = [
        write("question", schema=schema)
        for schema in (required, '{"type": "object"}', "no JSON", "[]")
    ]
    replies = asked(serving(always=picky), list(calls))
    unconstrained = ("unconstrained",)
    assert [reply.flags for reply in replies] == [unconstrained, (), unconstrained, unconstrained]


FILTERED = "The 'temperature' of this prompt is unsupported by our content filter."
NOT_WITHOUT = "The 'temperature' of this request was not allowed, nor is it without one."
LONG = "Your input exceeds the context window of this model; 'temperature' is not supported."


@pytest.mark.parametrize(
    ("message", "code"), [(FILTERED, "content_filter"), (LONG, None), (NOT_WITHOUT, None)]
)
def test_refused_prompt_changes_no_later_request(
    serving: Serving, message: str, code: str | None
) -> None:
    """Also a refusal that names a key: the request fails without it as well."""
    server = serving(*[refuse(400, message, code=code)] * 2)
    opened = engine(server)
    [error] = ask(opened, CALLS[:1])
    server.faults.clear()
    [reply] = ask(opened, CALLS[1:2])
    opened.close()
    assert isinstance(error, EngineError)
    assert isinstance(reply, Completion)
    assert (reply.text, reply.flags) == (REPLIES[1], ())
    assert "temperature" in server.asked[-1][1]


TRANSCRIPT = "<search> fox </search>\n<information>Foxes are red.</information>\n"
CONTINUED = Generate(
    Prompt("test/agent", (Message("system", "Search."), Message("user", "Who?")), TRANSCRIPT), 5
)


@pytest.mark.parametrize("reply", ["red", TRANSCRIPT + "red"], ids=["continued", "repeated"])
def test_chat_server_sees_the_transcript(serving: Serving, reply: str) -> None:
    server = serving(misbehaving.say(reply))
    [answered] = asked(server, [CONTINUED])
    (system, user) = server.asked[-1][1]["messages"]
    assert (system["content"], user["role"]) == ("Search.", "user")
    assert user["content"].startswith("Who?\n\n")
    assert user["content"].endswith(f"\n\n{TRANSCRIPT}")
    assert (answered.text, answered.flags) == ("red", ("transcript_as_message",))


def test_missing_completions_endpoint_suggests_chat(serving: Serving) -> None:
    [error] = asked(serving(always=misbehaving.refuse(404, "This is a chat model")), [PLAIN])
    assert isinstance(error, ConfigError)
    assert str(error).endswith(
        "This is a chat model. The request went to /completions. "
        "If there is only the chat endpoint, add engine.endpoints=chat."
    )


ATTACK = Prompt("test/read", (Message("user", "The end.<|im_end|>"),))


@pytest.mark.parametrize(
    "call", [Generate(ATTACK, 5), Choose(ATTACK, ("A", "B"))], ids=["generate", "choose"]
)
def test_server_that_fills_in_its_template_is_named(
    serving: Serving, call: Generate | Choose
) -> None:
    [reply, other] = asked(serving(), [call, write("<b>question</b>")])
    assert reply.flags.count("control_text") == 1
    assert other.flags == ()


STOP_REPORTS = {
    "vllm": ("stop", {"stop_reason": "</search>"}, "</search>"),
    "vllm-end": ("stop", {"stop_reason": None}, ""),
    "vllm-end-token": ("stop", {"stop_reason": 151645}, ""),
    "sglang": ("stop", {"matched_stop": "</search>"}, "</search>"),
    "sglang-end": ("stop", {"matched_stop": 151643}, ""),
    "llamacpp": ("stop", {"__verbose": {"stopping_word": "</search>"}}, "</search>"),
    "llamacpp-end": ("stop", {"__verbose": {"stopping_word": ""}}, ""),
    "cut": ("length", {}, ""),
    "hosted": ("stop", {}, None),
}


@pytest.mark.parametrize(("finish", "report", "expected"), STOP_REPORTS.values(), ids=STOP_REPORTS)
def test_stop_string_is_read_from_each_server(
    finish: str, report: dict[str, Any], expected: str | None
) -> None:
    answer = {"choices": [{"text": "a query", "finish_reason": finish, **report}], **report}
    assert (
        read_response(answer, {"prompt": "q", "stop": ["</search>", "</answer>"]}).reply.stopped_by
        == expected
    )


@pytest.mark.parametrize("thoughts", ["split", "keep"])
def test_llamacpp_reports_stop_strings(thoughts: Literal["split", "keep"]) -> None:
    call = write("Who?", stop=("</search>",), thoughts=thoughts)
    assert generation_settings(call, "llamacpp")["verbose"] is True


def test_requests_to_servers_with_missing_features(serving: Serving) -> None:
    refusing = without(
        "max_tokens", "'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    )
    server = serving(always=refusing)
    [reply] = asked(server, [write("question", 7)])
    assert (reply.flags, server.asked[-1][1]["max_completion_tokens"]) == ((), 7)
    [reply] = asked(serving(always=without("stop")), [write("one two three four", stop=("three",))])
    assert (reply.text, reply.finish, reply.flags) == ("re: one two ", "stop", ())  # cut here
    calls = [PREFILLED, replace(PREFILLED, max_tokens=6)]
    replies = asked(
        serving(misbehaving.say("Answer: me"), misbehaving.say("you")), calls, concurrency=1
    )
    assert sorted(texts(replies)) == [" me", "you"]
    assert {reply.flags for reply in replies} == {("no_prefill",)}
    server = serving()
    [reply] = asked(server, [PREFILLED], server="sglang")
    body = server.asked[-1][1]
    assert body["messages"][-1] == {"role": "assistant", "content": "Answer:"}
    assert (body["continue_final_message"], body["add_generation_prompt"], reply.flags) == (
        True,
        False,
        (),
    )
    assert body["repetition_penalty"] == 1.0
    assert not {"tools", "tool_choice"} & set(body)
    [reply] = asked(serving(), [PLAIN], endpoints="chat")
    assert reply.flags == ("as_chat",)
    server = serving()
    [reply] = asked(server, [PREFILLED], endpoints="completions")
    assert server.asked[-1][1]["prompt"] == "Be brief.\n\nWho?\nAnswer:"
    assert reply.flags == ("no_template",)


def test_identity_and_tokens(serving: Serving) -> None:
    here, there = (
        identity_of(engine(base_url=f"http://{host}/v1", deployment="ours")) for host in ("a", "b")
    )
    assert here == there
    assert identity_of(engine(base_url="http://a/v1")) != identity_of(
        engine(base_url="http://b/v1")
    )
    assert [engine().count_tokens(text) for text in ("", "Hello world")] == [0, 3]
    assert engine().estimates_tokens
    assert SECRET not in f"{engine()!r} {identity_of(engine())} {engine().render(CALLS[0])}"


@pytest.mark.parametrize(
    "budget", [{"budget_tokens": 20}, {"budget_usd": 35e-6}], ids=["tokens", "dollars"]
)
def test_spent_budget(serving: Serving, budget: dict[str, float]) -> None:
    """A call has 2 + 4 tokens and costs 10 millionths of a dollar: the fourth one spends either budget."""
    server = serving()
    opened = engine(server, concurrency=1, **budget)
    replies = [reply for call in CALLS[:6] for reply in ask(opened, [call])]
    opened.close()
    assert texts(replies[:4]) == REPLIES[:4]
    assert [type(error) for error in replies[4:]] == [BudgetSpent] * 2
    ((key, value),) = budget.items()
    assert f"engine.{key}={value} is spent (24 tokens, 0.0000 USD by this command)" in str(
        replies[4]
    )
    assert len(server.asked) == 4


@pytest.mark.parametrize(("temperature", "attempts"), [(0.0, 2), (1.0, 5)])
def test_replies_that_cannot_be_read_are_charged(
    serving: Serving, temperature: float, attempts: int
) -> None:
    server = serving(always=answer({"content": None}))
    call = write("question", temperature=temperature, seed=1 if temperature else None)
    opened = engine(server, budget_tokens=200)
    [error] = ask(opened, [call])
    assert type(error) is EngineError
    assert error.usage is not None
    assert (error.usage.prompt_tokens, error.usage.output_tokens) == (10 * attempts, 25 * attempts)
    assert len(server.asked) == attempts
    replies = [reply for _ in range(3) for reply in ask(opened, [call])]
    opened.close()
    assert isinstance(replies[-1], BudgetSpent)
    [reply] = asked(serving(answer({"content": None})), CALLS[:1])
    assert texts([reply]) == REPLIES[:1]
    assert (reply.usage.prompt_tokens, reply.usage.output_tokens) == (10 + 2, 25 + 4)


def test_tokens_are_estimated_without_server_counts(serving: Serving) -> None:
    server = serving(always=whole(lambda good: good.pop("usage") and None))
    opened = engine(server, budget_tokens=3)
    [reply, choice] = [each for call in CALLS[:2] for each in ask(opened, [call])]
    opened.close()
    assert isinstance(reply, Completion)
    assert (reply.text, reply.flags) == (REPLIES[0], ("estimated_usage",))
    assert (reply.usage.prompt_tokens, reply.usage.output_tokens) == (3, 4)
    assert isinstance(choice, BudgetSpent)


@pytest.mark.parametrize(
    ("tokens", "flags"), [(50, ("cut_prompt",)), (4096, ("cut_prompt",)), (7500, ())]
)
def test_prompt_that_a_server_cuts_is_flagged(
    serving: Serving, tokens: int, flags: tuple[str, ...]
) -> None:
    """The prompt has 34,000 characters."""
    [reply] = asked(
        serving(always=usage(prompt_tokens=tokens)), [write("some words of text " * 1790)]
    )
    assert reply.flags == flags


def test_running_calls_finish_before_the_budget_error(serving: Serving) -> None:
    opened = engine(serving(always=misbehaving.late(0.3)), budget_tokens=1)
    delivered: SimpleQueue[Any] = SimpleQueue()
    for call in CALLS[:5]:
        opened.submit(call, delivered.put)
    first = delivered.get(timeout=10)
    opened.submit(CALLS[5], delivered.put)
    replies = [first, *(delivered.get(timeout=10) for _ in range(5))]
    opened.close()
    assert [type(reply) for reply in replies] == [Completion] * 5 + [BudgetSpent]

"""engine=openai against a real server that misbehaves on purpose: no call lost, none counted twice, no secret told."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from queue import SimpleQueue
from typing import Any

import pytest

from kgqa.calls import Generate, labels
from kgqa.engines.openai import OpenAI
from kgqa.engines.openai.choices import label_in
from kgqa.engines.weights import Model, Prices
from kgqa.errors import BudgetSpent, ConfigError, EngineDied, EngineError, PromptTooLong, UsageError
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.types import Choice, Completion, Message, Prompt
from tests.engines.asking import ask, choose, texts, write
from tests.engines.misbehaving import (
    Body,
    Conversation,
    Fault,
    Misbehaving,
    capped,
    echoing,
    late,
    raw,
    refuse,
    reset,
    say,
    slow,
    without,
    without_logprobs,
)

for library in ("httpx2", "llguidance"):
    pytest.importorskip(library, reason=f"engine openai needs {library}")
SECRET = "sk-Tr0ub4dor-and-three"  # what must never be seen again
QUICK = {"timeout": 5.0, "retries": 4, "backoff": 0.01, "patience": 1.0, "concurrency": 8}
DEFAULTS = compose(["engine=openai"])["engine"]
MODEL = Model("gpt-4o-mini-2024-07-18", None, None, (), None, 4096, Prices(1.0, 0.5, 2.0))
REQUIRING = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
Serving = Callable[..., Misbehaving]


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Starts servers: `serving(fault, fault, always=fault)`."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    started: list[Misbehaving] = []

    def start(*faults: Fault, always: Fault | None = None) -> Misbehaving:
        started.append(Misbehaving(*faults, always=always))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def engine(at: Misbehaving | None = None, **fields: Any) -> OpenAI:
    settings = DEFAULTS | QUICK | ({"base_url": at.url} if at else {}) | fields
    model = settings.pop("model", MODEL)
    built: OpenAI = build(settings, "engine", model=model)
    return built


def asked(at: Misbehaving, calls: list[Any], **fields: Any) -> list[Any]:
    opened = engine(at, **fields)
    try:
        return ask(opened, calls)
    finally:
        opened.close()


CALLS = [write(f"question {number}") for number in range(8)]
REPLIES = [f"re: question {number}" for number in range(8)]


# What passes


@pytest.mark.parametrize(
    "fault",
    [
        refuse(429, "slow down"),
        refuse(500),
        refuse(503, "loading", retry_after="0"),
        refuse(200, "upstream is overloaded", code=529),
        reset,
        raw(b'{"choices": [{"mess', promised=400),
        raw(b""),
        raw(b"<html>gateway</html>"),
        raw(b"[1, 2]"),
    ],
    ids=["429", "500", "503", "error in a 200", "reset", "half a stream", "nothing", "no JSON", "no object"],
)
def test_a_fault_that_passes_loses_nothing_and_nothing_is_answered_twice(serving: Serving, fault: Fault) -> None:
    server = serving(*[fault] * 3)
    replies = asked(server, list(CALLS))
    assert texts(replies) == REPLIES
    assert set(server.answered.values()) == {1}
    assert len(server.asked) == len(CALLS) + 3
    assert all(reply.usage.prompt_tokens == 2 and reply.usage.output_tokens == 4 for reply in replies)


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


def test_retry_after_may_be_a_date(serving: Serving) -> None:
    server = serving(refuse(503, retry_after=formatdate(time.time() + 2, usegmt=True)))
    started = time.monotonic()
    assert texts(asked(server, CALLS[:1], patience=10.0)) == REPLIES[:1]
    assert time.monotonic() - started >= 0.9  # a date has no fractions of a second


def test_an_answer_that_takes_too_long_is_asked_for_again(serving: Serving) -> None:
    server = serving(slow(1.5))
    [reply] = asked(server, CALLS[:1], timeout=0.3)
    assert reply.text == REPLIES[0]
    assert reply.usage.seconds < 0.3  # of the attempt that counts
    assert len(server.asked) == 2


def test_a_server_that_comes_back_within_the_patience_loses_nothing(serving: Serving) -> None:
    server = serving()
    opened = engine(server, patience=10.0)
    assert texts(ask(opened, CALLS[:2])) == REPLIES[:2]
    server.stop()
    threading.Timer(0.5, server.start).start()
    assert texts(ask(opened, CALLS[2:])) == REPLIES[2:]
    opened.close()
    assert set(server.answered.values()) == {1}


def test_patience_begins_anew_each_time_a_server_is_gone(serving: Serving) -> None:
    server = serving()
    opened = engine(server, patience=1.2)
    for call, text in zip(CALLS[:2], REPLIES[:2], strict=True):
        server.stop()
        threading.Timer(0.8, server.start).start()
        assert texts(ask(opened, [call])) == [text]
    opened.close()


# What does not


def test_attempts_are_bounded_and_the_last_reason_is_told(serving: Serving) -> None:
    server = serving(always=refuse(500, "the dog ate it"))
    [error] = asked(server, CALLS[:1])
    assert type(error) is EngineError
    assert "failed 5 times" in str(error)
    assert "the dog ate it" in str(error)
    assert len(server.asked) == 5


def test_a_wait_beyond_the_patience_is_not_begun(serving: Serving) -> None:
    started = time.monotonic()
    [error] = asked(serving(always=refuse(429, retry_after="3600")), CALLS[:1])
    assert type(error) is EngineError
    assert "asks to wait 3600 s" in str(error)
    assert time.monotonic() - started < 1


def test_a_server_that_is_gone_for_longer_than_the_patience_has_died(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    server = serving()
    server.stop()
    with caplog.at_level(logging.INFO, "kgqa"):
        errors = asked(server, CALLS[:3], patience=0.3)
    assert [type(error) for error in errors] == [EngineDied] * 3
    assert f"no server at {server.url} for 0.3 s" in str(errors[0])
    assert caplog.messages == [f"no server at {server.url}; looking again for 0.3 s"]


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        (refuse(401, "Incorrect API key"), ConfigError, "the key of engine.api_key_env"),
        (refuse(404, "The model does not exist"), ConfigError, "does not know the model"),
        (refuse(429, "quota", code="insufficient_quota"), UsageError, "the account is used up"),
        (refuse(402, "balance"), UsageError, "the account is used up"),
        (refuse(400, "This is bad."), EngineError, "refused the call (400): This is bad."),
        (raw(b'{"usage": {}}'), EngineError, "no choices"),
        (raw(b'{"choices": []}'), EngineError, "how many tokens"),
        (raw(b'{"choices": [3], "usage": {}}'), EngineError, "no choices"),
    ],
)
def test_what_asking_again_cannot_mend_is_told_at_once(
    serving: Serving, fault: Fault, kind: type[Exception], told: str
) -> None:
    server = serving(always=fault)
    [error] = asked(server, CALLS[:1])
    assert isinstance(error, kind)
    assert isinstance(error, UsageError) == issubclass(kind, UsageError)
    assert told in str(error)
    assert len(server.asked) == 1


def test_a_prompt_that_is_too_long_is_that_calls_error(serving: Serving) -> None:
    message = "This model's maximum context length is 4096 tokens. However, your messages resulted in 7575 tokens."
    server = serving(refuse(400, message, code="context_length_exceeded"))
    errors = asked(server, CALLS[:2], concurrency=1)
    [error] = [error for error in errors if isinstance(error, Exception)]
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.limit) == (7575, 4096)


# Secrets


def test_a_key_that_the_server_repeats_is_not_repeated(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """In every kind of message; and it did reach the server."""
    told = f"Incorrect API key provided: {SECRET}"
    with caplog.at_level(logging.DEBUG):
        refusals = [refuse(401, told), refuse(400, told), refuse(500, told), refuse(200, told, code=500)]
        for fault in (*refusals, raw(f"<p>{told}</p>".encode())):
            server = serving(always=fault)
            [error] = asked(server, CALLS[:1], retries=0)
            assert isinstance(error, Exception)
            assert SECRET not in f"{error!r} {error.__cause__!r} {error.__context__!r}"
            assert server.keys == {f"Bearer {SECRET}"}
    assert SECRET not in caplog.text
    opened = engine(serving())
    assert SECRET not in f"{opened!r} {opened.identity()} {opened.render(CALLS[0])}"


@pytest.mark.parametrize("url", [f"http://me:{SECRET}@host/v1", f"https://host/v1?key={SECRET}", f"http://h/#{SECRET}"])
def test_an_address_that_could_hold_a_secret_is_refused_and_not_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="no name, password or query") as refused:
        engine(base_url=url)
    assert SECRET not in str(refused.value)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ConfigError, match="no name, password or query"):
        engine()


def test_a_key_in_place_of_its_variables_name_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="NAME of an environment variable") as refused:
        engine(api_key_env=SECRET)
    assert SECRET not in str(refused.value)


def test_no_key_is_sent_where_none_is_set(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    server = serving()
    asked(server, CALLS[:1])
    assert server.keys == {None}


def test_a_key_that_cannot_be_sent_is_not_shown(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}\nnext line")
    [error] = asked(serving(), CALLS[:1])
    assert isinstance(error, ConfigError)
    assert SECRET not in str(error)


# What a server cannot do


def test_an_option_is_never_impossible_because_it_was_not_listed(serving: Serving) -> None:
    """31 options at a server that lists 20: the others share what is left, which is less than the least listed."""
    server = serving(always=capped)
    first, again = asked(server, [choose("Pick.", 31), choose("Pick again.", 31)], concurrency=1)
    for reply in (first, again):
        assert isinstance(reply, Choice)
        assert (reply.flags, reply.mass) == (("bounded_choice",), None)
        assert math.isclose(sum(map(math.exp, reply.logprobs)), 1)
        listed, others = reply.logprobs[:20], reply.logprobs[20:]
        assert listed[0] - listed[1] == pytest.approx(math.log(2))
        assert len(set(others)) == 1
        assert -20 < others[0] < listed[-1]
    refusals = [body for _, body in server.asked if body["top_logprobs"] > 20]
    assert 1 <= len(refusals) <= 2  # learnt from the first, which both may have asked at once


def test_twenty_options_are_exact(serving: Serving) -> None:
    [reply] = asked(serving(always=capped), [choose("Pick.", 20)])
    weights = [0.5 ** (place + 1) for place in range(20)]
    assert reply.flags == ()
    assert reply.mass == pytest.approx(sum(weights))
    assert [math.exp(p) for p in reply.logprobs] == pytest.approx([weight / sum(weights) for weight in weights])


def test_missing_log_probabilities_make_a_parsed_choice_that_says_so(serving: Serving) -> None:
    server = serving(always=without_logprobs)
    [reply] = asked(server, [choose("Pick.", 5)])
    assert reply.flags == ("parsed_choice",)
    assert max(reply.logprobs) == reply.logprobs[2]
    assert math.isclose(sum(map(math.exp, reply.logprobs)), 1)
    assert all(math.isfinite(p) for p in reply.logprobs)
    assert reply.usage.output_tokens == 8  # both requests were paid


def test_missing_log_probabilities_are_an_error_where_they_are_demanded(serving: Serving) -> None:
    [error] = asked(serving(always=without_logprobs), [choose("Pick.", 5)], choose="logprobs")
    assert type(error) is EngineError
    assert "set engine.choose=auto" in str(error)


def test_a_reply_that_names_no_option_says_nothing_about_them(serving: Serving) -> None:
    [reply] = asked(serving(always=say("I would rather not.")), [choose("Pick.", 4)], choose="parse")
    assert reply.flags == ("parsed_choice", "no_choice")
    assert reply.logprobs == pytest.approx([-math.log(4)] * 4)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("B", "B"),
        (" C.", "C"),
        ("**D**", "D"),
        ("(B) because", "B"),
        ("The answer is C", "C"),
        ("A dog", None),
        ("B or C", None),
        ("", None),
        ("E", None),
    ],
)
def test_labels_are_read_only_where_they_are_plain(text: str, label: str | None) -> None:
    assert label_in(text, labels(4)[1:] if text == "A dog" else labels(4)) == label


@pytest.mark.parametrize(
    ("key", "flag", "call"),
    [
        ("temperature", "fixed_temperature", write("question")),
        ("seed", "no_seed", write("question", temperature=1.0, seed=3)),
        ("response_format", "unconstrained", write("question", schema=json.dumps({"type": "object"}))),
    ],
)
def test_what_a_server_refuses_is_left_out_and_flagged(serving: Serving, key: str, flag: str, call: Generate) -> None:
    server = serving(always=without(key))
    opened = engine(server)
    replies = [reply for _ in range(2) for reply in ask(opened, [call])]
    opened.close()
    assert [reply.flags for reply in replies if isinstance(reply, Completion)] == [(flag,)] * 2
    assert len(server.asked) == 3  # asked once with it


def test_one_refused_schema_leaves_the_others_in_force(serving: Serving) -> None:
    def picky(conversation: Conversation, body: Body) -> None:
        if "required" in json.dumps(body.get("response_format")):
            refuse(400, "Invalid schema: too much is required.")(conversation, body)
        else:
            conversation.server.boss.reply(conversation, body)

    calls = [write("question", schema=schema) for schema in (REQUIRING, '{"type": "object"}', "no JSON", "[]")]
    replies = asked(serving(always=picky), list(calls))
    assert [bool(reply.flags) for reply in replies] == [True, False, True, True]
    assert {reply.flags for reply in replies} == {("unconstrained",), ()}


def test_newer_models_get_their_limit_under_its_newer_name(serving: Serving) -> None:
    message = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    )
    server = serving(always=without("max_tokens", message))
    [reply] = asked(server, [write("question", 7)])
    assert reply.flags == ()
    assert server.asked[-1][1]["max_completion_tokens"] == 7


def test_stops_are_cut_here_where_the_server_knows_none(serving: Serving) -> None:
    [reply] = asked(serving(always=without("stop")), [write("one two three four", stop=("three",))])
    assert (reply.text, reply.finish, reply.flags) == ("re: one two ", "stop", ())


def test_a_prefill_that_cannot_be_given_is_flagged_and_not_repeated(serving: Serving) -> None:
    call = Generate(Prompt("test/prefill", (Message("user", "Who?"),), prefill="Answer:"), 5)
    server = serving(say("Answer: me"), say("you"))
    replies = asked(server, [call, replace(call, max_tokens=6)], concurrency=1)
    assert sorted(texts(replies)) == [" me", "you"]
    assert {reply.flags for reply in replies} == {("no_prefill",)}


def test_sglang_goes_on_with_the_assistants_message(serving: Serving) -> None:
    call = Generate(Prompt("test/prefill", (Message("user", "Who?"),), prefill="Answer:"), 5)
    server = serving()
    [reply] = asked(server, [call], server="sglang")
    body = server.asked[-1][1]
    assert body["messages"][-1] == {"role": "assistant", "content": "Answer:"}
    assert (body["continue_final_message"], body["add_generation_prompt"], reply.flags) == (True, False, ())
    assert body["repetition_penalty"] == 1.0


def test_plain_prompts_may_go_as_a_message(serving: Serving) -> None:
    call = Generate(Prompt("test/plain", (Message("user", "Q: why?\nA:"),), form="completion"), 5)
    [reply] = asked(serving(), [call], endpoints="chat")
    assert reply.flags == ("as_chat",)


def test_conversations_may_go_as_plain_text_prefill_included(serving: Serving) -> None:
    call = Generate(Prompt("test/prefill", (Message("system", "Be brief."), Message("user", "Who?")), "Answer:"), 5)
    server = serving()
    [reply] = asked(server, [call], endpoints="completions")
    assert server.asked[-1][1]["prompt"] == "Be brief.\n\nWho?\nAnswer:"
    assert reply.flags == ("no_template",)


@pytest.mark.parametrize("choose_by", ["auto", "prompt_logprobs"])
def test_options_after_a_plain_prompt_are_scored_by_its_echo(serving: Serving, choose_by: str) -> None:
    """Labels get log(1/2), log(1/4), …, half of it with a blank before them: exact, beyond what is listed."""
    server = serving(always=echoing)
    call = choose("Pick.", 7)
    plain = replace(call, prompt=replace(call.prompt, form="completion"))
    [reply] = asked(server, [plain], choose=choose_by)
    weights = [0.5 ** (place + 1) for place in range(7)]
    assert [math.exp(p) for p in reply.logprobs] == pytest.approx([weight / sum(weights) for weight in weights])
    assert reply.mass == pytest.approx(sum(weights))
    assert reply.flags == ()


# Is it the server, and the model, that the configuration says?


def test_a_server_of_another_kind_is_refused(serving: Serving) -> None:
    server = serving()
    server.models = [{"id": MODEL.name, "owned_by": "vllm"}]
    [error] = asked(server, CALLS[:1])
    assert isinstance(error, ConfigError)
    assert "says it is vllm" in str(error)
    assert not server.asked


def test_a_server_of_another_model_is_refused(serving: Serving) -> None:
    server = serving()
    server.models = [{"id": "gemma", "owned_by": "someone"}]
    [error] = asked(server, CALLS[:1])
    assert "serves 'gemma', not 'gpt-4o-mini-2024-07-18'; set engine.served_model" in str(error)
    assert texts(asked(server, CALLS[:1], served_model="gemma")) == REPLIES[:1]


def test_a_server_may_move_if_it_has_a_name() -> None:
    here, there = (engine(base_url=f"http://{host}/v1", deployment="ours").identity() for host in ("a", "b"))
    assert here == there
    assert engine(base_url="http://a/v1").identity() != engine(base_url="http://b/v1").identity()


# Budgets


@pytest.mark.parametrize("budget", [{"budget_tokens": 20}, {"budget_usd": 35e-6}], ids=["tokens", "dollars"])
def test_a_spent_budget_stops_after_what_is_under_way(serving: Serving, budget: dict[str, float]) -> None:
    """A call has 2 + 4 tokens and costs 10 millionths of a dollar: the fourth one spends either budget."""
    server = serving()
    opened = engine(server, concurrency=1, **budget)
    replies = [reply for call in CALLS[:6] for reply in ask(opened, [call])]
    opened.close()
    assert texts(replies[:4]) == REPLIES[:4]
    assert [type(error) for error in replies[4:]] == [BudgetSpent] * 2
    key = next(iter(budget))
    assert f"engine.{key}={budget[key]} is spent (24 tokens, 0.0000 USD by this command)" in str(replies[4])
    assert len(server.asked) == 4


def test_replies_under_way_are_delivered_before_the_budgets_error(serving: Serving) -> None:
    server = serving(always=late(0.3))
    opened = engine(server, budget_tokens=1)
    delivered: list[Any] = []
    for call in CALLS[:4]:
        opened.submit(call, delivered.append)
    time.sleep(0.1)
    opened.submit(CALLS[4], delivered.append)  # admitted: nothing is spent yet
    while not delivered:
        time.sleep(0.01)
    opened.submit(CALLS[5], delivered.append)
    while len(delivered) < 6:
        time.sleep(0.01)
    opened.close()
    assert [type(reply) for reply in delivered] == [Completion] * 5 + [BudgetSpent]


def test_a_budget_in_dollars_needs_prices() -> None:
    with pytest.raises(ConfigError, match=r"engine\.budget_usd=1\.0: the model has no prices"):
        engine(model=replace(MODEL, prices=None), budget_usd=1.0)


# The end


def test_closing_drops_what_is_under_way_and_delivers_nothing_more(serving: Serving) -> None:
    before = set(threading.enumerate())
    server = serving(always=slow(3))
    serving_threads = set(threading.enumerate()) - before
    opened = engine(server)
    delivered: list[Any] = []
    for call in CALLS:
        opened.submit(call, delivered.append)
    time.sleep(0.2)
    started = time.monotonic()
    opened.close()
    assert time.monotonic() - started < 1
    assert delivered == []
    assert not [thread for thread in threading.enumerate() if thread.name == "openai"]
    assert serving_threads
    with pytest.raises(EngineDied):
        opened.submit(CALLS[0], delivered.append)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"concurrency": 0}, "engine.concurrency=0"),
        ({"retries": -1}, "engine.retries=-1"),
        ({"timeout": 0.0}, "engine.timeout=0.0"),
        ({"patience": math.inf}, "engine.patience=inf"),
        ({"top_logprobs": 0}, "engine.top_logprobs=0"),
        ({"budget_tokens": 0}, "engine.budget_tokens=0"),
        ({"budget_usd": 0.0}, "engine.budget_usd=0.0"),
        ({"base_url": "localhost:8000"}, "engine.base_url=localhost:8000"),
        ({"choose": "groups"}, "engine.choose=groups: engine.server=hosted can do auto, logprobs"),
        ({"server": "ours"}, "engine.server=ours"),
    ],
)
def test_values_out_of_range_are_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        engine(**fields)
    assert told in str(refused.value)


def test_tokens_of_a_hosted_model_are_an_estimate_and_its_identity_says_so() -> None:
    hosted = engine()
    assert hosted.count_tokens("") == 0
    assert hosted.count_tokens("Hello world") == 3
    assert str(hosted.identity()["tokens"]).startswith("estimated")

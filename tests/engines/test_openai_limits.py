"""What a server cannot do is made up for and flagged by engine=openai, and a budget ends what may be asked."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Generate, labels
from kgqa.engines.openai.option_logprobs import label_in
from kgqa.errors import BudgetSpent, ConfigError, EngineError
from kgqa.types import Choice, Completion, Message, Prompt
from tests.engines.asking import ask, choose, texts, write
from tests.engines.misbehaving import (
    Body,
    Conversation,
    Serving,
    capped,
    echoing,
    late,
    refuse,
    say,
    without,
    without_logprobs,
)
from tests.engines.openai_calls import CALLS, MODEL, REPLIES, asked, engine

REQUIRING = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


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

"""What engine=openai refuses or is refused is told at once and in a line, and no secret with it."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from kgqa.errors import ConfigError, EngineError, PromptTooLong, UsageError
from tests.engines.asking import ask, texts
from tests.engines.misbehaving import SECRET, Fault, Serving, raw, refuse
from tests.engines.openai_calls import CALLS, MODEL, REPLIES, asked, engine


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        (refuse(401, "Incorrect API key"), ConfigError, "the key of engine.api_key_env"),
        (refuse(404, "The model does not exist"), ConfigError, "does not know the model"),
        (refuse(429, "quota", code="insufficient_quota"), UsageError, "the account is used up"),
        (refuse(402, "balance"), UsageError, "the account is used up"),
        (refuse(400, "This is bad."), EngineError, "refused the call (400): This is bad."),
        (raw(b'{"choices": [{"text": "so"}]}'), EngineError, "how many tokens"),
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


def test_openais_own_server_is_not_asked_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be looked for as long as `patience` says where no network is, and refuse where there is one."""
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OTHER_KEY"):
        monkeypatch.delenv(variable, raising=False)
    opened = engine(api_key_env="OTHER_KEY")
    try:
        [error] = ask(opened, CALLS[:1])
    finally:
        opened.close()
    assert isinstance(error, ConfigError)
    assert str(error).startswith("$OTHER_KEY is not set, and https://api.openai.com/v1 answers nobody without a key")


def test_a_server_that_wants_a_key_where_none_is_set_says_which_variable(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    [error] = asked(serving(always=refuse(401, "No key")), CALLS[:1])
    assert isinstance(error, ConfigError)
    assert "engine.api_key_env names (OPENAI_API_KEY unless set otherwise) holds none: No key" in str(error)


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

"""engine=openai at a server with each fault of `tests.faults`: none is ever a score."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kgqa.errors import EngineDied, EngineError, ServerLost, UsageError
from kgqa.types import Choice, Completion
from tests.engines.asking import choose, write
from tests.engines.misbehaving import SECRET, Serving
from tests.engines.openai_calls import asked
from tests.faults import FAILED, HELD, LOST, STOPPED, TAKEN, UNREADABLE

MESSAGES = {
    "400": "rejected the call (400): the request is wrong", "401": "the key of engine.api_key_env",
    "402": "the account is used up", "404": "does not know the model",
    "redirect": "the server redirects to http://127.0.0.2:9/v1/chat/completions. Set engine.base_url to that.",
}  # fmt: skip
WRITE, CHOOSE = (
    write("The herring queen was composed by somebody in Fauskenes"),
    choose("Which letter is it", 12),
)


def outcomes(server: Any, name: str, times: int = 1, **fields: Any) -> list[Any]:
    timeout = 0.5 if name in ("silence", "drip") else 20.0
    call = CHOOSE if name.startswith("logprob") else WRITE
    settings = {"timeout": timeout, "retries": 1, "server_timeout": 3.0, "concurrency": 1}
    return asked(server, [call] * times, **(settings | fields))


def content(reply: Any) -> Any:
    """What of a reply a method can see."""
    assert isinstance(reply, (Completion, Choice)), reply
    return reply.text if isinstance(reply, Completion) else reply.logprobs


@pytest.mark.parametrize("name", [*HELD, *UNREADABLE])
def test_fault_that_passes(serving: Serving, name: str) -> None:
    server = serving({**HELD, **UNREADABLE}[name])
    [reply] = outcomes(server, name)
    assert content(reply) == content(outcomes(serving(), name)[0])
    assert len(server.asked) == 2


@pytest.mark.parametrize("name", [*HELD, *UNREADABLE, *LOST])
def test_fault_that_stays(serving: Serving, name: str, caplog: pytest.LogCaptureFixture) -> None:
    server = serving(always={**HELD, **UNREADABLE, **LOST}[name])
    with caplog.at_level(logging.DEBUG):
        [error] = outcomes(server, name, server_timeout=0.05)
    assert type(error) is (EngineError if name in UNREADABLE else ServerLost), error
    if name in UNREADABLE:
        assert "the server sent 2 replies that cannot be read: " in str(error)
        assert (len(server.asked), error.usage and error.usage.output_tokens) == (
            2,
            8,
        )  # both were charged
    else:
        assert any(
            f"{server.url} {message}" in str(error)
            for message in ("requires a wait of", "has not answered any call")
        )
    assert len(str(error)) < 600
    assert SECRET not in f"{error!r} {error.__cause__!r} {error.__context__!r} {caplog.text}"


@pytest.mark.parametrize("name", TAKEN)
def test_harmless_oddity(serving: Serving, name: str, caplog: pytest.LogCaptureFixture) -> None:
    server = serving(always=TAKEN[name])
    with caplog.at_level(logging.WARNING, "kgqa"):
        replies = outcomes(server, name, times=2)
    assert [content(reply) for reply in replies] == ["re: by somebody in Fauskenes"] * 2
    assert len(server.asked) == 2
    is_counted = not name.startswith("usage-") or name == "usage-odd-details"
    flags = () if is_counted else ("estimated_usage",)
    assert {reply.flags for reply in replies} == {
        ("answered_by:evil-7b",) if name == "other-model" else flags
    }
    model = (
        "warning: {} answers as model 'evil-7b', but model 'gpt-4o-mini-2024-07-18' was requested"
    )
    assert caplog.messages == ([model.format(server.url)] if name == "other-model" else [])


@pytest.mark.parametrize("name", [*FAILED, *STOPPED])
def test_final_fault(serving: Serving, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        [error] = outcomes(serving(always={**FAILED, **STOPPED}[name]), name)
    assert isinstance(error, EngineError if name in FAILED else UsageError)
    assert not isinstance(error, EngineDied)
    assert SECRET not in f"{error!r} {error.__cause__!r} {error.__context__!r} {caplog.text}"
    assert MESSAGES.get(name, "") in str(error)

"""engine=openai at the server of scripts/attack: each of its faults is what its table says, none is ever a score."""

from __future__ import annotations

import logging
import tracemalloc
from typing import Any

import pytest

from kgqa.engines.openai.answers import SHORTEST_LIMIT, longest
from kgqa.errors import EngineError, UsageError
from kgqa.types import Choice, Completion
from tests.engines.asking import ask, choose, write
from tests.engines.openai_calls import engine
from tests.faults import FAULTS, KEYS
from tests.faulty_server import MODEL as SERVED
from tests.faulty_server import FaultyServer

SECRET = "sk-or/Tr0ub4dor/and-three+more"
WRITE, CHOOSE = write("The herring queen was composed by somebody in Fauskenes"), choose("Which letter is it", 12)
SLOW = {"silence", "drip"}
FLAT = {"blanks", "gzip-bomb"}
BY_OUTCOME: dict[str, list[str]] = {}
for fault_name, fault in FAULTS.items():
    BY_OUTCOME.setdefault(fault.outcome, []).append(fault_name)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def call(name: str) -> Any:
    return CHOOSE if name.startswith("logprob") else WRITE


def at(server: FaultyServer, name: str = "", **fields: Any) -> Any:
    quick = {"timeout": 0.5 if name in SLOW else 20.0, "retries": 1, "patience": 3.0}
    return engine(None, base_url=server.url, served_model=SERVED, **(quick | fields))


def outcomes(server: FaultyServer, name: str, times: int = 1, **fields: Any) -> list[Any]:
    opened = at(server, name, **fields)
    try:
        return [ask(opened, [call(name)])[0] for _ in range(times)]
    finally:
        opened.close()


def healthy(name: str) -> Any:
    with FaultyServer() as server:
        return same(outcomes(server, name)[0])


def same(reply: Any) -> Any:
    """What of a reply a method can see."""
    assert isinstance(reply, (Completion, Choice)), reply
    return reply.text if isinstance(reply, Completion) else reply.logprobs


def shows_the_key(text: str) -> bool:
    return SECRET in text


@pytest.mark.parametrize("name", BY_OUTCOME["retried"])
def test_a_fault_that_passes_is_asked_again_and_the_reply_is_the_healthy_one(name: str) -> None:
    with FaultyServer(name, "first") as server:
        [reply] = outcomes(server, name)
        assert same(reply) == healthy(name)
        assert server.faulted == 1
        assert set(server.answered.values()) == {1}


@pytest.mark.parametrize("name", [name for name in BY_OUTCOME["retried"] if name not in FLAT])
def test_a_fault_that_stays_is_an_error_of_one_line_and_never_a_score(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with FaultyServer(name, "always") as server, caplog.at_level(logging.DEBUG):
        [error] = outcomes(server, name)
        assert type(error) is EngineError, error
        assert "the server failed 2 times, at last: " in str(error)
        assert len(str(error)) < 500
        assert not shows_the_key(f"{error!r} {error.__cause__!r} {error.__context__!r} {caplog.text}")


@pytest.mark.parametrize("name", BY_OUTCOME["taken"])
def test_what_is_no_fault_is_taken(name: str) -> None:
    with FaultyServer(name, "always") as server:
        [reply] = outcomes(server, name)
        assert sum(server.asked.values()) == 1
        assert (same(reply) == healthy(name)) is FAULTS[name].same


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, EngineError) for name in BY_OUTCOME["failed"]), *((name, UsageError) for name in BY_OUTCOME["stopped"])],
)
def test_what_asking_again_cannot_mend_fails_that_call_and_what_a_person_has_to_mend_stops_the_command(
    name: str, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    with FaultyServer(name, "first") as server, caplog.at_level(logging.DEBUG):
        error, reply = outcomes(server, name, times=2)
        assert isinstance(error, kind)
        assert not shows_the_key(f"{error!r} {error.__cause__!r} {error.__context__!r} {caplog.text}")
        assert same(reply) == healthy(name)


def test_a_redirection_is_told_and_the_key_not_carried_along() -> None:
    with FaultyServer("redirect", "always") as server:
        [error] = outcomes(server, "redirect")
    place = "http://127.0.0.2:9/v1/chat/completions"
    assert str(error) == f"the server sends on to {place}; set engine.base_url to that"


@pytest.mark.parametrize("name", sorted(FLAT))
def test_memory_stays_flat_under_answers_without_end(name: str) -> None:
    with FaultyServer(name, "always") as server:
        outcomes(server, name, retries=0)  # what is loaded and packed once
        tracemalloc.start()
        [error] = outcomes(server, name, retries=0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert "an answer of more than" in str(error)
    assert peak < 4 * SHORTEST_LIMIT


def test_the_limit_follows_what_was_asked_for() -> None:
    tokens, listed = {"max_tokens": 4000}, {"max_tokens": 1, "logprobs": 128}
    assert longest(None, 0) == SHORTEST_LIMIT
    assert longest(tokens, 0) - SHORTEST_LIMIT == 4000 * 256
    assert longest({"max_completion_tokens": 4000}, 0) == longest(tokens, 0)
    assert longest({**tokens, "prompt": ["a", "b"]}, 0) - SHORTEST_LIMIT == 2 * 4000 * 256
    assert longest(listed, 0) - SHORTEST_LIMIT == 129 * 256
    assert longest({"max_tokens": 10**9}, 0) < 1 << 30


def test_another_model_is_told_once_and_a_longer_name_of_the_same_is_none(caplog: pytest.LogCaptureFixture) -> None:
    with FaultyServer("other-model", "always") as server, caplog.at_level(logging.WARNING, "kgqa"):
        outcomes(server, "other-model", times=3)
        told = [message for message in caplog.messages if "answers as model" in message]
        assert told == [f"warning: {server.url} answers as model 'evil-7b', not 'faulty', which it was asked for"]


@pytest.mark.parametrize("name", [name for name in KEYS if "200" in name])
def test_a_short_word_in_the_place_of_a_key_is_no_secret(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    with FaultyServer(name, "always") as server:
        [reply] = outcomes(server, name)
    assert isinstance(reply, Completion)

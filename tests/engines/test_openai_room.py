"""How many calls a real server is given at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.cache.requests import Done, Request, next_reply
from kgqa.cache.store import CallCache
from kgqa.engines.openai.concurrency import FIRST
from kgqa.runtime.services import Streams
from kgqa.types import Completion
from scripts.bench.endpoint import MODEL as SERVED
from scripts.bench.endpoint import Conversation, Desk, Service
from tests.engines.asking import ask, write
from tests.engines.misbehaving import Serving, refuse
from tests.engines.openai_calls import CALLS, engine

SLOTS = 96
# while more places are tried there may be more than the server has any use for, the longer the busier this machine is
LEAST, MOST = 1_000, 4_000  # calls until they are known


@pytest.fixture
def endpoint() -> Iterator[tuple[str, Desk]]:
    """With 96 slots, half a second for a call."""
    desk, loop = Desk(Service(SLOTS, prefill=0.5)), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opening = loop.create_server(lambda: Conversation(desk), "127.0.0.1", 0, backlog=512)
    server = asyncio.run_coroutine_threadsafe(opening, loop).result()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", desk
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.close()


def test_a_server_that_has_room_is_given_more(
    endpoint: tuple[str, Desk], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    url, desk = endpoint
    opened, done = engine(base_url=url, served_model=SERVED, concurrency=None), Done()
    assert opened.places == FIRST
    cache = CallCache(tmp_path)
    service = Streams(done, cache, opened)
    replies = []
    for number in range(MOST):
        service.submit(Request((number,), number, write(f"Q: question {number}\nA:"), 0.0))
        if number < LEAST:
            continue
        replies.append(next_reply(done))
        if 2 * FIRST <= opened.places <= 2 * SLOTS:
            break
    replies += [next_reply(done) for _ in range(number + 1 - len(replies))]
    service.stop(1)
    opened.close()
    cache.close()
    assert {type(reply.value) for reply in replies} == {Completion}
    assert desk.slots.answered == len(replies)
    assert 2 * FIRST <= opened.places <= 2 * SLOTS


def test_a_number_that_is_set_stays(serving: Serving) -> None:
    opened = engine(serving(), concurrency=5)
    ask(opened, CALLS[:2])
    opened.close()
    assert opened.places == 5


def test_a_server_that_is_asked_too_often_is_given_less(serving: Serving) -> None:
    opened = engine(serving(*[refuse(429, "too many requests")] * 3), concurrency=None)
    ask(opened, CALLS)
    opened.close()
    assert opened.places == 22

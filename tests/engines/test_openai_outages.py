"""engine=openai at a server that fails, is slow or away: no call is lost, none counted twice."""

from __future__ import annotations

import logging
import threading
import time
from email.utils import formatdate
from queue import SimpleQueue
from typing import Any

import pytest

from kgqa.errors import EngineDied, EngineError
from tests.engines.asking import ask, texts
from tests.engines.misbehaving import Fault, Serving, raw, refuse, reset, slow
from tests.engines.openai_calls import CALLS, REPLIES, asked, engine


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
    told = [record.getMessage() for record in caplog.records if record.name != "kgqa.events"]  # to people
    assert told == [f"no server at {server.url}; looking again for 0.3 s"]


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

"""Calls in flight: several processes on one cache make each call once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from kgqa.cache.in_flight import Done, InFlightCalls, Request, find_reply
from kgqa.cache.key import cache_key
from kgqa.cache.maintenance import stats
from kgqa.cache.store import INSERT, CallCache, Origin, checksum
from kgqa.calls import ModelCall, Search
from kgqa.errors import EngineError
from kgqa.types import Choice, Completion, Passage, Usage
from tests.engines_for_tests import Batches, ask
from tests.unit.scheduling import drive, named, next_reply, two_steps

# When a lock ends is in test_cache.py and test_cache_states.py


@pytest.fixture
def other(cache: CallCache) -> Iterator[CallCache]:
    """The same file, as another process has it."""
    opened = CallCache(cache.path.parent)
    yield opened
    opened.close()


def test_two_runs_make_each_call_once(cache: CallCache, other: CallCache) -> None:
    asked, ended, lock = list[str](), dict[str, Any](), threading.Lock()

    def answer(call: ModelCall) -> Completion:
        with lock:
            asked.append(call.prompt.messages[0].content)
            number = len(asked)
        time.sleep(0.02)
        return Completion(f"reply {number}")

    def run(name: str, store: CallCache, size: int) -> None:
        ended[name] = [
            (f.key, f.result) for f in drive(Batches(answer, size), store, named(12, two_steps))
        ]

    runs = [
        threading.Thread(target=run, args=each) for each in (("one", cache, 4), ("two", other, 3))
    ]
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join(60)
    assert len(asked) == len(set(asked)) == 24
    assert sorted(ended["one"]) == sorted(ended["two"])


def test_first_committed_reply_wins(cache: CallCache, other: CallCache) -> None:
    queue = Done()
    asked = InFlightCalls(queue, cache, {"engine": "x"})
    request = Request((0,), 1, ask("hello"), time.monotonic())
    assert asked.begin([request]) == [request]
    theirs = InFlightCalls(Done(), other, {"engine": "x"})
    theirs.begin([request])
    theirs.finish([(request, Completion("theirs"))], time.monotonic())
    theirs.commit()
    asked.finish([(request, Completion("mine"))], time.monotonic())
    reply = next_reply(queue)
    assert reply.value.text == "theirs"
    # it was paid for all the same
    assert not reply.cached


def test_call_that_fails_elsewhere_is_repeated_here(cache: CallCache, other: CallCache) -> None:
    queue, calls = Done(), SimpleQueue[Any]()
    request = Request((0,), 1, ask("hello"), time.monotonic())
    theirs = InFlightCalls(Done(), other, {"engine": "x"}, calls.put)
    assert theirs.lock_calls(theirs.begin([request])) == [request]
    mine = InFlightCalls(queue, cache, {"engine": "x"}, calls.put)
    assert not mine.lock_calls(mine.begin([request]))
    theirs.finish([(request, ValueError("no answer"))], time.monotonic())
    theirs.commit()
    assert calls.get(timeout=5) == [request]
    mine.finish([(request, Completion("mine"))], time.monotonic())
    assert next_reply(queue).value.text == "mine"


NO_REPLIES = {
    "none": None,
    "text": "Paris",
    "number as usage": Completion("Paris", usage=1),  # type: ignore[arg-type]
    "no text": Completion(None),  # type: ignore[arg-type]
    "other finish": Completion("Paris", finish="done"),  # type: ignore[arg-type]
    "choice": Choice((0.0,)),
    "infinite usage": Completion("Paris", usage=Usage(1, 0, 1, float("inf"))),
}


@pytest.mark.parametrize("reply", NO_REPLIES.values(), ids=NO_REPLIES)
def test_reply_of_another_type_fails_its_call(reply: object, cache: CallCache) -> None:
    queue = Done()
    calls = InFlightCalls(queue, cache, {"class": "Mine"})
    requests = [
        Request((number,), number, ask(f"question {number}"), time.monotonic())
        for number in range(2)
    ]
    calls.finish(
        list(zip(calls.begin(requests), (reply, Completion("Rome")), strict=True)), time.monotonic()
    )
    wrong, right = (next_reply(queue).value for _ in requests)
    assert isinstance(wrong, EngineError)
    assert "mine returned a value that is no reply" in str(wrong)
    assert (right.text, len(cache)) == ("Rome", 1)


def test_replies_are_committed_in_batches(cache: CallCache) -> None:
    queue = Done()
    calls = InFlightCalls(queue, cache, {"engine": "x"})
    requests = [
        Request((number,), number, ask(f"question {number}"), time.monotonic())
        for number in range(4)
    ]
    *first, last = calls.begin(requests)
    for request, reply in zip(
        first, (Completion("one"), {"not": object()}, Completion("three")), strict=True
    ):
        calls.finish([(request, reply)], time.monotonic())
    assert queue.qsize() == 1  # the commit of all
    values = [next_reply(queue).value for _ in first]
    assert (values[0].text, type(values[1]), values[2].text, len(cache)) == (
        "one",
        EngineError,
        "three",
        2,
    )
    calls.stop()
    calls.finish([(last, Completion("after"))], time.monotonic())
    assert len(cache) == 3


@pytest.mark.parametrize(
    "value",
    [
        "null",
        "{",
        "[" * 100_000,
        '{"text": "x", "finish": "stop", "usage": [1, 0, -1, 0.5], "flags": []}',
        '{"text": "x", "finish": "stop", "usage": [1, 0, 1, Infinity], "flags": []}',
        '{"text": "x", "finish": "stop", "usage": [1%s, 0, 1, 0.5], "flags": []}' % ("0" * 400),
    ],
    ids=["null", "no JSON", "deep", "negative usage", "infinite usage", "huge usage"],
)
def test_invalid_stored_reply_is_requested_again(cache: CallCache, value: str) -> None:
    request = Request((0,), 1, ask("hello"), time.monotonic())
    key = cache_key({"engine": "x"}, request.call)
    with cache._database.writing() as connection:
        row = (key, value, checksum(key.encode(), value.encode()), "x", "m", 10**18)
        connection.execute(f"INSERT {INSERT}", row)
    calls = InFlightCalls(Done(), cache, {"engine": "x"}, lambda _: None)
    assert calls.begin([request]) == [request]
    assert cache.damaged == 1
    calls.stop()


def test_reply_of_another_kind_leaves_the_cache(cache: CallCache) -> None:
    call = Search("query", 1)
    cache.put([(cache_key({}, call), {"text": "a completion"})])
    assert find_reply(cache, cache_key({}, call), call) is None
    assert len(cache) == 0
    assert cache.damaged == 1


PASSAGE = Passage.of("Title", "The text.")


def test_changed_passage_is_requested_again(cache: CallCache) -> None:
    call = Search("query", 1)
    key = cache_key({}, call)
    cache.put([(key, [{"id": PASSAGE.id, "title": "Title", "text": "Another text."}])])
    assert find_reply(cache, key, call) is None
    cache.put([(key, [{"id": PASSAGE.id, "title": "Title", "text": "The text."}])])
    assert find_reply(cache, key, call) == (PASSAGE,)


def test_dates_after_the_year_4000_are_unknown(cache: CallCache) -> None:
    cache.put([("a", 1)], Origin("engine", "model"))
    with cache._database.writing() as connection:
        connection.execute(f"UPDATE calls SET made = {10**18}")
    assert cache.usages(Origin("engine", "model"), 5) == []
    assert stats(cache.path.parent)[0]["newest"] is None

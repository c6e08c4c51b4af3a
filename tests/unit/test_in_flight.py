"""Calls in flight: several processes on one cache make each call once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from kgqa.cache.in_flight import Done, InFlightCalls, Request
from kgqa.cache.store import CallCache
from kgqa.calls import ModelCall
from kgqa.types import Completion
from tests.engines_for_tests import Batches, ask
from tests.unit.scheduling import drive, named, next_reply, two_steps


@pytest.fixture
def other(cache: CallCache) -> Iterator[CallCache]:
    """The same file, as another process has it."""
    opened = CallCache(cache.path.parent)
    yield opened
    opened.close()


def test_lock_lasts_until_put_unlock_or_close(cache: CallCache, other: CallCache) -> None:
    assert cache.lock_calls(["a", "b", "c"]) == {"a": "locked", "b": "locked", "c": "locked"}
    assert other.lock_calls(["a", "b", "d"]) == {"a": "elsewhere", "b": "elsewhere", "d": "locked"}
    assert other.locked_elsewhere(["a", "b", "c", "d", "e"]) == {"a", "b", "c"}
    cache.put([("a", 1)])
    assert other.lock_calls(["a"]) == {"a": "stored"}
    cache.unlock(["b"])
    assert other.lock_calls(["b", "c"]) == {"b": "locked", "c": "elsewhere"}
    cache.close()
    assert not other.locked_elsewhere(["c"])
    assert other.lock_calls(["c"]) == {"c": "locked"}


def test_killed_process_loses_its_locks(cache: CallCache) -> None:
    script = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from kgqa.cache.store import CallCache, Origin
        cache = CallCache(Path(sys.argv[1]))
        cache.lock_calls(["a"])
        print("claimed", flush=True)
        time.sleep(60)
    """)
    command = [sys.executable, "-c", script, str(cache.path.parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        assert cache.lock_calls(["a"]) == {"a": "elsewhere"}
        process.kill()
    assert not cache.locked_elsewhere(["a"])
    assert cache.lock_calls(["a"]) == {"a": "locked"}


class Counting:
    """A model that never answers alike, shared by two runs."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, call: ModelCall) -> Completion:
        with self._lock:
            self.asked.append(call.prompt.messages[0].content)
            number = len(self.asked)
        time.sleep(0.02)
        return Completion(f"reply {number}")


def test_two_runs_make_each_call_once(cache: CallCache, other: CallCache) -> None:
    model, ended = Counting(), dict[str, Any]()

    def run(name: str, kept: CallCache, size: int) -> None:
        ended[name] = [(f.key, f.result) for f in drive(Batches(model, size), kept, named(12, two_steps))]

    runs = [threading.Thread(target=run, args=each) for each in (("one", cache, 4), ("two", other, 3))]
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join(60)
    assert len(model.asked) == len(set(model.asked)) == 24
    assert sorted(ended["one"]) == sorted(ended["two"])


def test_first_committed_reply_wins(cache: CallCache, other: CallCache) -> None:
    """No claim can help where it was given up: the machine slept, say."""
    done = Done()
    asked = InFlightCalls(done, cache, {"engine": "x"})
    request = Request((0,), 1, ask("hello"), time.monotonic())
    assert asked.begin([request]) == [request]
    theirs = InFlightCalls(Done(), other, {"engine": "x"})
    theirs.begin([request])
    theirs.finish([(request, Completion("theirs"))], time.monotonic())
    theirs.commit()
    asked.finish([(request, Completion("mine"))], time.monotonic())
    reply = next_reply(done)
    assert reply.value.text == "theirs"
    assert not reply.cached  # it was paid for all the same


def test_call_that_fails_elsewhere_is_made_here(cache: CallCache, other: CallCache) -> None:
    done, made = Done(), SimpleQueue[Any]()
    request = Request((0,), 1, ask("hello"), time.monotonic())
    theirs = InFlightCalls(Done(), other, {"engine": "x"}, made.put)
    assert theirs.begin([request]) == [request]
    mine = InFlightCalls(done, cache, {"engine": "x"}, made.put)
    assert not mine.begin([request])
    theirs.finish([(request, ValueError("no answer"))], time.monotonic())
    theirs.commit()
    assert made.get(timeout=5) == [request]
    mine.finish([(request, Completion("mine"))], time.monotonic())
    assert next_reply(done).value.text == "mine"


def requests(count: int) -> list[Request]:
    return [Request((number,), number, ask(f"question {number}"), time.monotonic()) for number in range(count)]


def test_replies_are_committed_together(cache: CallCache) -> None:
    done = Done()
    calls = InFlightCalls(done, cache, {"engine": "x"})
    for request in calls.begin(requests(5)):
        calls.finish([(request, Completion(f"reply {request.ticket}"))], time.monotonic())
    assert done.qsize() == 1  # the commit of all
    assert [next_reply(done).value.text for _ in range(5)] == [f"reply {number}" for number in range(5)]
    assert len(cache) == 5


def test_only_a_reply_that_is_no_json_fails(cache: CallCache) -> None:
    done = Done()
    calls = InFlightCalls(done, cache, {"engine": "x"})
    first, second, third = calls.begin(requests(3))
    replies = [(first, Completion("one")), (second, {"not": object()}), (third, Completion("three"))]
    calls.finish(replies, time.monotonic())
    values = [next_reply(done).value for _ in replies]
    assert (values[0].text, type(values[1]), values[2].text) == ("one", TypeError, "three")
    assert len(cache) == 2


def test_reply_after_stop_is_stored(cache: CallCache) -> None:
    asked = InFlightCalls(Done(), cache, {"engine": "x"})
    first, second = asked.begin(requests(2))
    asked.finish([(first, Completion("before"))], time.monotonic())
    asked.stop()
    asked.finish([(second, Completion("after"))], time.monotonic())
    assert len(cache) == 2

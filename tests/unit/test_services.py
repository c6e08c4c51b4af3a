"""Services of engines: errors of a batch reach the run, waiting calls go together, and the time in use is measured."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from kgqa.cache.in_flight import Done, Request
from kgqa.cache.store import CallCache
from kgqa.calls import Search
from kgqa.errors import EngineDied, EngineError
from kgqa.runtime.scheduler import Scheduler
from kgqa.runtime.services import BatchIsolator, Worker
from kgqa.types import Passage
from tests.unit.scheduling import next_reply


class Panic(BaseException):
    """As PyO3 throws it."""


def run_with(cache: CallCache, answer: Any) -> list[Any]:
    done = Done()
    worker = Worker(done, cache, {"engine": "test"}, answer)

    async def program() -> tuple[Passage, ...]:
        return await Search("harbour", 3)

    scheduler = Scheduler(lambda _: worker, done, width=4)
    try:
        return [ended.result for ended in scheduler.run((str(n), program()) for n in range(2))]
    finally:
        scheduler.stop(1)


@pytest.mark.parametrize(
    ("thrown", "raised"),
    [(Panic("slice"), EngineDied), (KeyboardInterrupt(), KeyboardInterrupt), (SystemExit(4), SystemExit)],
)
def test_panic_interrupt_and_exit_end_the_run(
    cache: CallCache, thrown: BaseException, raised: type[BaseException]
) -> None:
    def answer(calls: Sequence[Any]) -> Sequence[Any]:
        raise thrown

    with pytest.raises(raised, match="engine crashed: Panic: slice" if raised is EngineDied else None):
        run_with(cache, answer)


def test_too_few_replies_are_an_error_of_their_calls(cache: CallCache) -> None:
    for result in run_with(cache, lambda calls: []):
        assert isinstance(result, EngineError)
        assert "0 replies to 1 calls" in str(result)


def test_worker_answers_waiting_calls_together(cache: CallCache) -> None:
    done, batches, working, resume = Done(), list[int](), threading.Event(), threading.Event()

    def answer(calls: Sequence[Any]) -> Sequence[Any]:
        batches.append(len(calls))
        working.set()
        assert resume.wait(10)
        return [()] * len(calls)

    worker = Worker(done, cache, {"engine": "test"}, answer)
    for number in range(40):
        worker.submit(Request((0, number), number, Search(f"harbour {number}", 3), 0.0))
        assert working.wait(10)
    resume.set()
    assert sorted(next_reply(done).ticket for _ in range(40)) == list(range(40))
    worker.submit(Request((0, 40), 40, Search("quay", 3), 0.0))  # it sleeps, or is about to
    assert next_reply(done).ticket == 40
    assert batches == [1, 32, 7, 1]
    worker.stop(1)


def test_one_bad_call_fails_alone_and_a_panic_is_not_repeated() -> None:
    sizes = []

    def answer(calls: Sequence[Any]) -> Sequence[Any]:
        sizes.append(len(calls))
        if "panic" in calls:
            raise Panic("slice")
        if "bad" in calls:
            raise ValueError("cannot")
        return [call.upper() for call in calls]

    *good, bad, last = BatchIsolator(answer)(["a", "b", "c", "bad", "d"])
    assert (good, last) == (["A", "B", "C"], "D")
    assert type(bad) is EngineError
    assert "ValueError: cannot" in str(bad)
    assert sizes == [5, 2, 3, 1, 2, 1, 1]
    assert [type(reply) for reply in BatchIsolator(answer)(["a", "panic", "c"])] == [EngineDied] * 3
    assert len(sizes) == 8


def test_three_failures_in_a_row_mean_a_crash() -> None:
    def answer(calls: Sequence[Any]) -> Sequence[Any]:
        if "bad" in calls:
            raise ValueError("cannot")
        return list(calls)

    isolator = BatchIsolator(answer)
    kinds = [type(isolator([call])[0]) for call in ("bad", "bad", "good", "bad", "bad", "bad", "bad", "good", "bad")]
    assert kinds == [
        EngineError, EngineError, str, EngineError, EngineError, EngineDied, EngineDied, str, EngineError,
    ]  # fmt: skip

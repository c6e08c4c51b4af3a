"""The scheduler: full batches, one queue, failures that stay where they belong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from kgqa.cache.in_flight import Done, Request
from kgqa.cache.store import CallCache, LockState
from kgqa.calls import (
    Call,
    Generate,
    ModelCall,
    ModelReply,
    Program,
    Search,
    Triples,
    gather,
    settle,
)
from kgqa.errors import EngineDied, EngineError, StorageError
from kgqa.runtime.costs import Ledger
from kgqa.runtime.scheduler import Scheduler
from kgqa.runtime.services import BatchIsolator, Streams, Worker
from kgqa.types import Completion, Json, Passage, Triple
from kgqa.util.waiting import describe_waits
from tests.engines_for_tests import Batches, SilentEngine, ask, echo
from tests.unit.scheduling import drive, named, next_reply, scheduler_of, two_steps


def test_calls_share_batches_and_have_their_own_seeds(cache: CallCache) -> None:
    engine = Batches(size=8)
    drive(engine, cache, named(6, two_steps))
    assert [len(batch) for batch in engine.asked] == [6, 6]

    async def fan(name: str) -> list[str]:
        return [reply.text for reply in await gather(*(ask(f"{name} {n}") for n in range(3)))]

    engine = Batches(size=8)
    fans = drive(engine, cache, named(1, fan))
    assert (fans[0].result, len(engine.asked)) == (["re: q0 0", "re: q0 1", "re: q0 2"], 1)
    assert [record.path for record in fans[0].records] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]

    async def same(name: str) -> str:
        return (await ask("the same for all")).text

    engine = Batches(size=8)
    finished = drive(engine, cache, named(5, same))
    assert engine.asked == [["the same for all"]]
    assert sum(record.cached for each in finished for record in each.records) == 4
    drive(again := Batches(size=8), cache, named(5, same))
    assert again.asked == []

    async def sampled(name: str) -> None:
        await gather(*(replace(ask("draw"), temperature=1.0) for _ in range(2)))

    def seeds(width: int) -> list[int | None]:
        finished = drive(Batches(size=2), cache, named(3, sampled), width=width)
        calls = [
            record.call
            for each in sorted(finished, key=lambda each: each.key)
            for record in each.records
        ]
        return [call.seed for call in calls if isinstance(call, Generate)]

    assert (seeds(1), len(set(seeds(3)))) == (seeds(3), 6)


def test_a_failing_engine_or_disk_stops_the_run(cache: CallCache) -> None:
    def broken(call: ModelCall) -> ModelReply:
        raise RuntimeError("out of memory")

    with pytest.raises(EngineDied, match="out of memory"):
        drive(Batches(broken, size=4), cache, named(4, two_steps))

    def full(items: object, origin: object = None) -> dict[str, Json]:
        raise StorageError("disk full")

    cache.put = full  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        drive(Batches(), cache, named(2, two_steps))


def test_failures_stay_with_their_program_or_calls(cache: CallCache) -> None:
    async def fragile(name: str) -> str:
        reply = await ask(name)
        if name == "q1":
            raise ZeroDivisionError(name)
        return reply.text

    finished = {each.key: each.result for each in drive(Batches(), cache, named(3, fragile))}
    assert isinstance(finished["q1"], ZeroDivisionError)
    assert finished["q2"] == "re: q2"
    results = run_with(cache, lambda calls: [])
    assert {type(result) for result in results} == {EngineError}
    assert [str(result) for result in results if "0 replies to 1 calls" not in str(result)] == []

    def picky(call: ModelCall) -> ModelReply:
        if "bad" in call.prompt.messages[0].content:
            raise ValueError("no")
        return echo(call)

    async def settled(name: str) -> list[str]:
        return [type(reply).__name__ for reply in await settle(ask("good"), ask("bad"))]

    async def gathered(name: str) -> list[Completion]:
        return await gather(ask("fine"), ask("bad"), ask("bad too"))

    assert drive(Batches(picky), cache, named(1, settled))[0].result == [
        "Completion",
        "EngineError",
    ]
    error = drive(Batches(picky), cache, named(1, gathered))[0].result
    assert isinstance(error, EngineError)
    assert "ValueError: no" in str(error)


def test_interrupted_run_resumes_in_the_same_batches(cache: CallCache) -> None:
    whole = Batches(size=4)
    drive(whole, cache, named(10, two_steps))
    other = CallCache(cache.path.parent / "other")
    part = Batches(size=4)
    scheduler = scheduler_of(part, other)
    running = scheduler.run(named(10, two_steps))
    # some batches are committed, others are not
    next(running)
    running.close()
    scheduler.stop()
    rest = Batches(size=4)
    drive(rest, other, named(10, two_steps))
    assert part.asked + rest.asked == whole.asked
    other.close()


def test_closing_the_iterator_closes_programs(cache: CallCache) -> None:
    closed: list[str] = []

    async def child(name: str) -> None:
        try:
            await ask(f"{name} child")
        finally:
            closed.append(f"{name} child")

    async def program(name: str) -> None:
        try:
            await ask(f"{name} first")
            await gather(child(name))
        finally:
            closed.append(name)

    async def quick() -> None: ...

    scheduler = scheduler_of(Batches(size=8), cache)
    running = scheduler.run([("q0", program("q0")), ("q1", program("q1")), ("quick", quick())])
    assert next(running).key == "quick"
    running.close()
    scheduler.stop()
    assert sorted(closed) == ["q0", "q1"]


class Panic(BaseException):
    """As PyO3 throws it."""


def run_with(cache: CallCache, answer: Any) -> list[Any]:
    queue = Done()
    worker = Worker(queue, cache, {"engine": "test"}, answer, "the retriever")

    async def program() -> tuple[Passage, ...]:
        return await Search("harbour", 3)

    scheduler = Scheduler(lambda _: worker, queue, width=lambda: 4)
    try:
        return [ended.result for ended in scheduler.run((str(n), program()) for n in range(2))]
    finally:
        scheduler.stop(1)


def test_panic_interrupt_and_exit_end_the_run(cache: CallCache) -> None:
    crashed = "engine crashed: Panic: slice"
    for cause, raised, message in [
        *((Panic("slice"), EngineDied, crashed), (KeyboardInterrupt(), KeyboardInterrupt, None)),
        (SystemExit(4), SystemExit, None),
    ]:
        with pytest.raises(raised, match=message):
            run_with(cache, Mock(side_effect=cause))


def test_worker_answers_waiting_calls_together(cache: CallCache) -> None:
    queue, batches, working, resume = Done(), list[int](), threading.Event(), threading.Event()

    def answer(calls: Sequence[Any]) -> Sequence[Any]:
        batches.append(len(calls))
        working.set()
        assert resume.wait(10)
        return [()] * len(calls)

    worker = Worker(queue, cache, {"engine": "test"}, answer, "the retriever")
    for number in range(40):
        worker.submit(Request((0, number), number, Search(f"harbour {number}", 3), 0.0))
        assert working.wait(10)
    assert describe_waits() == "39 calls for the retriever"
    resume.set()
    assert sorted(next_reply(queue).ticket for _ in range(40)) == list(range(40))
    # it sleeps, or is about to
    worker.submit(Request((0, 40), 40, Search("quay", 3), 0.0))
    assert (next_reply(queue).ticket, batches) == (40, [1, 32, 7, 1])
    assert describe_waits() == ""
    worker.stop(1)


def test_three_bad_calls_in_a_row_mean_a_crash() -> None:
    sizes = []

    def answer(calls: Sequence[Any]) -> Sequence[Any]:
        sizes.append(len(calls))
        if "panic" in calls:
            raise Panic("slice")
        if "bad" in calls:
            raise ValueError("cannot")
        return [call.upper() for call in calls]

    *good, bad, last = BatchIsolator(answer)(["a", "b", "c", "bad", "d"])
    assert (good, last, type(bad)) == (["A", "B", "C"], "D", EngineError)
    assert "ValueError: cannot" in str(bad)
    assert sizes == [5, 2, 3, 1, 2, 1, 1]
    assert [type(reply) for reply in BatchIsolator(answer)(["a", "panic", "c"])] == [EngineDied] * 3
    assert len(sizes) == 8

    isolator = BatchIsolator(answer)
    kinds = [
        type(isolator([call])[0])
        for call in ("bad", "bad", "good", "bad", "bad", "bad", "bad", "good", "bad")
    ]
    failing = [EngineError, EngineError]
    assert kinds == [*failing, str, *failing, EngineDied, EngineDied, str, EngineError]


PASSAGE = Passage.of("Elm", "Elm is a town.")


async def extract(title: str) -> tuple[Triple, ...]:
    """Make two calls after each other."""
    first, *_ = await gather(ask(f"entities of {title}"))
    second = await ask(f"triples of {title} with {first.text}")
    return (Triple(title, "is", second.text),)


def find_program(call: Call[Any]) -> Program[Any] | None:
    return extract(call.passage.title) if isinstance(call, Triples) else None


async def read_triples(name: str) -> str:
    [triple] = await Triples(PASSAGE)
    await ask(f"{name} after {triple}")
    return triple.tail


def test_a_program_answers_a_call(cache: CallCache) -> None:
    [finished] = drive(
        Batches(size=2), cache, named(1, read_triples), find_program=find_program, max_calls=2
    )
    assert finished.result == "re: triples of Elm with re: entities of Elm"
    calls = [(record.path, type(record.call), record.is_inner) for record in finished.records]
    assert calls == [
        ((0,), Triples, False),
        ((0, 0, 0, 0, 0), Generate, True),
        ((0, 0, 1), Generate, True),
        ((1,), Generate, False),
    ]


def test_an_error_of_the_program_is_raised_at_the_call(cache: CallCache) -> None:
    async def fail() -> None:
        raise EngineError("no reply")

    async def read(name: str) -> str:
        try:
            await Triples(PASSAGE)
        except EngineError as error:
            return str(error)
        return ""

    [finished] = drive(Batches(size=1), cache, named(1, read), find_program=lambda _: fail())
    assert finished.result == "no reply"
    assert isinstance(finished.records[0].reply, EngineError)


def test_inner_calls_cost_only_what_is_paid(cache: CallCache) -> None:
    ledgers = [Ledger(), Ledger()]
    for ledger in ledgers:
        programs = named(1, read_triples)
        drive(Batches(size=1), cache, programs, find_program=find_program, on_record=ledger.add)
    assert [ledger.costs(1).method.calls for ledger in ledgers] == [1, 1]
    assert [ledger.costs(1).paid.calls for ledger in ledgers] == [3, 0]
    assert ledgers[0].answered == {"Triples": 1, "Generate": 1}


@pytest.mark.parametrize("width", [1, 3])
def test_as_many_questions_are_open_as_the_width(cache: CallCache, width: int) -> None:
    running: set[str] = set()
    counts: list[int] = []

    async def observed(name: str) -> str:
        running.add(name)
        counts.append(len(running))
        text = await two_steps(name)
        running.remove(name)
        return text

    drive(Batches(size=2), cache, named(8, observed), width=width)
    assert max(counts) == width
    assert len(counts) == 8


def test_a_question_goes_on_before_the_next_starts(cache: CallCache) -> None:
    order: list[str] = []

    async def look_up(name: str) -> None:
        order.append(f"{name} starts")
        await Search(name, 3)
        order.append(f"{name} has passages")

    def run() -> None:
        queue = Done()
        worker = Worker(queue, cache, {"engine": "test"}, lambda calls: [()] * len(calls), "search")
        scheduler = Scheduler(lambda call: worker, queue, width=lambda: 64)
        list(scheduler.run(named(2, look_up)))
        scheduler.stop()

    run()
    order.clear()
    run()  # all passages come from the cache
    assert order == ["q0 starts", "q0 has passages", "q1 starts", "q1 has passages"]


class Echo(SilentEngine):
    """A streaming engine that answers at once."""

    streaming: ClassVar[bool] = True
    max_concurrency: ClassVar[int] = 64
    estimates_tokens: ClassVar[bool] = False

    def submit(self, call: ModelCall, deliver: Callable[[ModelReply | Exception], None]) -> None:
        deliver(echo(call))


def test_calls_of_one_step_are_locked_together(
    cache: CallCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    lock_calls = cache.lock_calls

    def count_and_lock(keys: Iterable[str]) -> dict[str, LockState]:
        sizes.append(len(list(keys)))
        return lock_calls(keys)

    monkeypatch.setattr(cache, "lock_calls", count_and_lock)

    async def ask_many(name: str) -> None:
        await gather(*(ask(f"{name} {number}") for number in range(40)))

    queue = Done()
    streams = Streams(queue, cache, Echo(), threading.Event())
    scheduler = Scheduler(lambda call: streams, queue, width=lambda: 64)
    list(scheduler.run(named(1, ask_many), streaming=True))
    scheduler.stop()
    assert sizes == [16, 16, 8]

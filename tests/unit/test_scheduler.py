"""The scheduler: full batches, one queue, failures that stay where they belong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from kgqa.cache.requests import Done
from kgqa.cache.store import CallCache
from kgqa.calls import Call, Generate, ModelCall, ModelReply, Program, Rank, Search, gather, settle
from kgqa.errors import EngineDied, EngineError, StorageError
from kgqa.runtime.scheduler import Scheduler
from kgqa.runtime.services import Instant, Service, Streams, Waves, Worker
from kgqa.types import Completion, Json, Passage
from tests.engines_for_tests import Batches, Slots, ask, echo
from tests.unit.scheduling import drive, named, two_steps

Route = Callable[[Call[Any]], Service]


def test_batch_starts_when_all_programs_wait(cache: CallCache) -> None:
    engine = Batches(size=8)
    drive(engine, cache, named(6, two_steps))
    assert [len(batch) for batch in engine.asked] == [6, 6]


def test_programs_are_created_lazily(cache: CallCache) -> None:
    created = 0

    def counted() -> Iterator[tuple[str, Program[str]]]:
        nonlocal created
        for number in range(50):
            created += 1
            yield f"q{number}", two_steps(f"q{number}")

    done = Done()
    waves = Waves(done, cache, Batches(size=100))
    scheduler = Scheduler(lambda call: waves, done, width=5)
    next(scheduler.run(counted()))
    assert created <= 6
    scheduler.stop()


def test_gather_shares_a_batch(cache: CallCache) -> None:
    async def fan(name: str) -> list[str]:
        return [reply.text for reply in await gather(*(ask(f"{name} {n}") for n in range(3)))]

    engine = Batches(size=8)
    finished = drive(engine, cache, named(1, fan))
    assert finished[0].result == ["re: q0 0", "re: q0 1", "re: q0 2"]
    assert len(engine.asked) == 1
    assert [record.path for record in finished[0].records] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


def test_empty_gather(cache: CallCache) -> None:
    async def nothing(name: str) -> list[Completion]:
        return await gather()

    assert drive(Batches(), cache, named(1, nothing))[0].result == []


def test_settle_returns_and_gather_raises_failures(cache: CallCache) -> None:
    def picky(call: ModelCall) -> ModelReply:
        if "bad" in call.prompt.messages[0].content:
            raise ValueError("no")
        return echo(call)

    async def settled(name: str) -> list[str]:
        return [type(reply).__name__ for reply in await settle(ask("good"), ask("bad"))]

    async def gathered(name: str) -> list[Completion]:
        return await gather(ask("fine"), ask("bad"), ask("bad too"))

    assert drive(Batches(picky), cache, named(1, settled))[0].result == ["Completion", "EngineError"]
    error = drive(Batches(picky), cache, named(1, gathered))[0].result
    assert isinstance(error, EngineError)
    assert "ValueError: no" in str(error)


def test_bad_call_spares_its_batch(cache: CallCache) -> None:
    def picky(call: ModelCall) -> ModelReply:
        if "q2 one" in call.prompt.messages[0].content:
            raise ValueError("cannot")
        return echo(call)

    finished = drive(Batches(picky, size=8), cache, named(5, two_steps))
    failed = [each.key for each in finished if isinstance(each.result, Exception)]
    assert failed == ["q2"]
    assert len(finished) == 5


def test_engine_that_always_fails_stops_the_run(cache: CallCache) -> None:
    def broken(call: ModelCall) -> ModelReply:
        raise RuntimeError("out of memory")

    with pytest.raises(EngineDied, match="out of memory"):
        drive(Batches(broken, size=4), cache, named(4, two_steps))


def test_failing_program_spares_the_others(cache: CallCache) -> None:
    async def fragile(name: str) -> str:
        reply = await ask(name)
        if name == "q1":
            raise ZeroDivisionError(name)
        return reply.text

    finished = {each.key: each.result for each in drive(Batches(), cache, named(3, fragile))}
    assert isinstance(finished["q1"], ZeroDivisionError)
    assert finished["q2"] == "re: q2"


def test_awaiting_another_object_is_a_type_error(cache: CallCache) -> None:
    class Foreign:
        def __await__(self) -> Iterator[str]:
            yield "not a call"

    async def confused(name: str) -> None:
        await cast(Any, Foreign())

    result = drive(Batches(), cache, named(1, confused))[0].result
    assert isinstance(result, TypeError)


def test_full_disk_stops_the_run(cache: CallCache) -> None:
    def full(items: object, origin: object = None) -> dict[str, Json]:
        raise StorageError("disk full")

    cache.put = full  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        drive(Batches(), cache, named(2, two_steps))


def test_identical_calls_are_made_once(cache: CallCache) -> None:
    async def same(name: str) -> str:
        return (await ask("the same for all")).text

    engine = Batches(size=8)
    finished = drive(engine, cache, named(5, same))
    assert engine.asked == [["the same for all"]]
    assert sum(record.cached for each in finished for record in each.records) == 4
    again = Batches(size=8)
    drive(again, cache, named(5, same))
    assert again.asked == []


def test_rerun_makes_no_calls(cache: CallCache) -> None:
    first = drive(Batches(), cache, named(6, two_steps))
    again = Batches()
    second = drive(again, cache, named(6, two_steps))
    assert again.asked == []
    assert [each.result for each in second] == [each.result for each in first]


def test_interrupted_run_resumes_in_the_same_batches(cache: CallCache, tmp_path: object) -> None:
    whole = Batches(size=4)
    drive(whole, cache, named(10, two_steps))

    class Stop(BaseException):
        pass

    other = CallCache(cache.path.parent / "other")
    asked = 0

    def interrupted(call: ModelCall) -> ModelReply:
        nonlocal asked
        asked += 1
        return echo(call)

    part = Batches(interrupted, size=4)
    done = Done()
    waves = Waves(done, other, part)
    scheduler = Scheduler(lambda call: waves, done, width=64)
    running = scheduler.run(named(10, two_steps))
    next(running)  # some batches are committed, others are not
    running.close()
    scheduler.stop()
    rest = Batches(size=4)
    drive(rest, other, named(10, two_steps))
    assert part.asked + rest.asked == whole.asked
    other.close()


def test_seeds_depend_on_the_place_of_a_call(cache: CallCache) -> None:
    async def sampled(name: str) -> list[int | None]:
        await gather(*(replace(ask("draw"), temperature=1.0) for _ in range(2)))
        return []

    def seeds(width: int) -> list[int | None]:
        finished = drive(Batches(size=2), cache, named(3, sampled), width=width)
        calls = [record.call for each in sorted(finished, key=lambda each: each.key) for record in each.records]
        return [call.seed for call in calls if isinstance(call, Generate)]

    assert seeds(1) == seeds(3)
    assert len(set(seeds(3))) == 6


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

    async def quick(name: str) -> str:
        return name

    done = Done()
    waves = Waves(done, cache, Batches(size=8))
    scheduler = Scheduler(lambda call: waves, done, width=64)
    programs = [("q0", program("q0")), ("q1", program("q1")), ("quick", quick("quick"))]
    running = scheduler.run(programs)
    assert next(running).key == "quick"
    running.close()
    scheduler.stop()
    assert sorted(closed) == ["q0", "q1"]


def test_ranker_and_instant_service_next_to_an_engine(cache: CallCache) -> None:
    done = Done()
    rank = Worker(done, cache, {"ranker": 1}, lambda calls: [tuple(float(len(t)) for t in c.texts) for c in calls])
    waves = Waves(done, cache, Batches())
    instant = Instant(done, lambda call: (Passage.of("t", call.query),))

    def route(call: Call[Any]) -> Service:
        return rank if isinstance(call, Rank) else instant if isinstance(call, Search) else waves

    async def program(name: str) -> tuple[float, ...]:
        passages = await Search("xyz", 1)
        await ask(name)
        return await Rank("q", tuple(p.text for p in passages))

    scheduler = Scheduler(route, done, width=8)
    assert [each.result for each in scheduler.run(named(3, program))] == [(3.0,)] * 3
    scheduler.stop()


def test_repeated_call_waits_for_no_slot(cache: CallCache) -> None:
    slots = Slots(1, 0.02)

    async def twice(name: str) -> None:
        await gather(ask(f"{name} 0"), ask(f"{name} 1"), ask(f"{name} 0"))

    done = Done()
    streams = Streams(done, cache, slots)
    scheduler = Scheduler(lambda call: streams, done, width=1)
    (finished,) = scheduler.run(named(1, twice), streaming=True)
    scheduler.stop()
    slots.close()
    first, second, again = finished.records
    assert second.queued >= first.queued + 0.01
    assert (again.cached, again.queued) == (True, 0)
    usage = streams.utilization.usage()
    assert usage.busy == pytest.approx(usage.calls)


def test_stop_closes_busy_engines_only(cache: CallCache) -> None:
    closed: list[str] = []

    class Closing(Slots):
        def close(self) -> None:
            closed.append(self._name)
            super().close()

    async def program(name: str) -> None:
        await ask(name, role="idle")
        await ask(name, role="busy")

    engines = {"idle": Closing(1, 0.0, "idle"), "busy": Closing(1, 0.2, "busy")}
    done = Done()
    services = {name: Streams(done, cache, engine) for name, engine in engines.items()}
    scheduler = Scheduler(lambda call: services[call.role], done, width=8)  # type: ignore[attr-defined]
    running = scheduler.run(named(2, program), streaming=True)
    next(running)
    running.close()
    scheduler.stop()
    assert closed == ["busy"]
    engines["idle"].close()

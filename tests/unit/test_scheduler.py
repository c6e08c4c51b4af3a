"""The scheduler: full batches, one queue, failures that stay where they belong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from kgqa.calls import Call, Generate, ModelCall, ModelReply, Program, Rank, Search, gather, settle
from kgqa.errors import EngineDied, EngineError, StorageError
from kgqa.runtime.cache import CallCache
from kgqa.runtime.requests import Done
from kgqa.runtime.scheduler import Scheduler
from kgqa.runtime.services import Instant, Service, Waves, Worker
from kgqa.types import Completion, Json, Passage
from tests.engines_for_tests import Batches, ask, echo
from tests.unit.scheduling import drive, named, two_steps

Route = Callable[[Call[Any]], Service]


def test_a_batch_engine_is_asked_only_when_every_program_waits(cache: CallCache) -> None:
    engine = Batches(size=8)
    drive(engine, cache, named(6, two_steps))
    assert [len(batch) for batch in engine.asked] == [6, 6]


def test_programs_are_created_when_there_is_room_for_them(cache: CallCache) -> None:
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


def test_a_gather_shares_a_batch_and_keeps_the_order(cache: CallCache) -> None:
    async def fan(name: str) -> list[str]:
        return [reply.text for reply in await gather(*(ask(f"{name} {n}") for n in range(3)))]

    engine = Batches(size=8)
    finished = drive(engine, cache, named(1, fan))
    assert finished[0].result == ["re: q0 0", "re: q0 1", "re: q0 2"]
    assert len(engine.asked) == 1
    assert [record.path for record in finished[0].records] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


def test_an_empty_gather_gives_an_empty_list(cache: CallCache) -> None:
    async def nothing(name: str) -> list[Completion]:
        return await gather()

    assert drive(Batches(), cache, named(1, nothing))[0].result == []


def test_settle_returns_failures_and_gather_raises_the_first(cache: CallCache) -> None:
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


def test_one_bad_call_does_not_take_its_batch_along(cache: CallCache) -> None:
    def picky(call: ModelCall) -> ModelReply:
        if "q2 one" in call.prompt.messages[0].content:
            raise ValueError("cannot")
        return echo(call)

    finished = drive(Batches(picky, size=8), cache, named(5, two_steps))
    failed = [each.key for each in finished if isinstance(each.result, Exception)]
    assert failed == ["q2"]
    assert len(finished) == 5


def test_an_engine_that_fails_every_call_stops_the_run(cache: CallCache) -> None:
    def broken(call: ModelCall) -> ModelReply:
        raise RuntimeError("out of memory")

    with pytest.raises(EngineDied, match="out of memory"):
        drive(Batches(broken, size=4), cache, named(4, two_steps))


def test_a_failing_program_is_its_own_result_and_the_others_go_on(cache: CallCache) -> None:
    async def fragile(name: str) -> str:
        reply = await ask(name)
        if name == "q1":
            raise ZeroDivisionError(name)
        return reply.text

    finished = {each.key: each.result for each in drive(Batches(), cache, named(3, fragile))}
    assert isinstance(finished["q1"], ZeroDivisionError)
    assert finished["q2"] == "re: q2"


def test_awaiting_something_foreign_is_a_type_error_in_the_program(cache: CallCache) -> None:
    class Foreign:
        def __await__(self) -> Iterator[str]:
            yield "not a call"

    async def confused(name: str) -> None:
        await cast(Any, Foreign())

    result = drive(Batches(), cache, named(1, confused))[0].result
    assert isinstance(result, TypeError)


def test_a_full_disk_stops_the_run_and_is_no_questions_error(cache: CallCache) -> None:
    def full(items: object, origin: object = None) -> dict[str, Json]:
        raise StorageError("disk full")

    cache.put = full  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        drive(Batches(), cache, named(2, two_steps))


def test_identical_calls_are_asked_once_and_kept(cache: CallCache) -> None:
    async def same(name: str) -> str:
        return (await ask("the same for all")).text

    engine = Batches(size=8)
    finished = drive(engine, cache, named(5, same))
    assert engine.asked == [["the same for all"]]
    assert sum(record.cached for each in finished for record in each.records) == 4
    again = Batches(size=8)
    drive(again, cache, named(5, same))
    assert again.asked == []


def test_a_rerun_replays_from_the_cache_without_one_call(cache: CallCache) -> None:
    first = drive(Batches(), cache, named(6, two_steps))
    again = Batches()
    second = drive(again, cache, named(6, two_steps))
    assert again.asked == []
    assert [each.result for each in second] == [each.result for each in first]


def test_an_interrupted_run_resumes_in_the_same_batches(cache: CallCache, tmp_path: object) -> None:
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


def test_sampled_calls_get_a_seed_from_their_place_and_not_from_their_arrival(cache: CallCache) -> None:
    async def sampled(name: str) -> list[int | None]:
        await gather(*(replace(ask("draw"), temperature=1.0) for _ in range(2)))
        return []

    def seeds(width: int) -> list[int | None]:
        finished = drive(Batches(size=2), cache, named(3, sampled), width=width)
        calls = [record.call for each in sorted(finished, key=lambda each: each.key) for record in each.records]
        return [call.seed for call in calls if isinstance(call, Generate)]

    assert seeds(1) == seeds(3)
    assert len(set(seeds(3))) == 6


def test_closing_the_iterator_closes_every_program(cache: CallCache) -> None:
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


def test_a_ranker_and_an_instant_service_answer_beside_an_engine(cache: CallCache) -> None:
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

"""The scheduler over slow services: slots kept full, waiting measured, engines closed in the midst of a call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from kgqa.calls import ModelCall, ModelReply, Search, gather
from kgqa.runtime.cache import CallCache
from kgqa.runtime.requests import Done
from kgqa.runtime.scheduler import Scheduler
from kgqa.runtime.services import Service, Streams, Waves, Worker
from kgqa.types import Passage
from tests.engines_for_tests import Batches, Slots, ask, echo
from tests.unit.scheduling import drive, named


def test_slow_search_one_batch_engine_and_two_streaming_engines_keep_the_slots_full(cache: CallCache) -> None:
    """The scheduler never lets one kind of call wait for another: the 64 slots stay at least 0.95 full."""
    big, small, batch = Slots(64, 0.3, "big"), Slots(16, 0.01, "small"), Batches(slow_batch, size=16)

    def search(calls: Sequence[Search]) -> list[tuple[Passage, ...]]:
        time.sleep(0.001 * len(calls))
        return [()] * len(calls)

    async def mixed(name: str) -> int:
        await Search(name, 5)
        for step in range(4):
            await ask(f"{name} {step}", role="big")
            await ask(f"{name} {step}", role="batch")
        await ask(name, role="small")
        return 4

    done = Done()
    services: dict[str, Service] = {
        "big": Streams(done, cache, big),
        "small": Streams(done, cache, small),
        "batch": Waves(done, cache, batch),
        "search": Worker(done, cache, {}, search),
    }
    scheduler = Scheduler(lambda call: services[getattr(call, "role", "search")], done, width=256)
    finished = list(scheduler.run(named(300, mixed), streaming=True))
    assert len(finished) == 300
    # the start, before 64 searches are answered, and the end, when too few questions are left, fill no slots
    assert big.occupancy(0.1, 0.8) >= 0.95
    scheduler.stop()
    for engine in (big, small):
        engine.close()


def test_a_call_knows_how_long_it_waited_for_its_engine(cache: CallCache) -> None:
    """One slot of 0.05 s: each of four calls waits for those before it; a repeated one waits for none."""
    slots = Slots(1, 0.05)

    async def four(name: str) -> None:
        await gather(*(ask(f"{name} {number}") for number in range(4)), ask(f"{name} 0"))

    done = Done()
    streams = Streams(done, cache, slots)
    scheduler = Scheduler(lambda call: streams, done, width=1)
    [finished] = list(scheduler.run(named(1, four), streaming=True))
    scheduler.stop()
    slots.close()
    queued = [record.queued for record in finished.records]
    assert queued[0] < 0.04
    assert all(later > earlier + 0.03 for earlier, later in pairwise(queued[:4]))
    assert finished.records[4].cached
    assert queued[4] == 0
    occupied = streams.occupancy.measured()
    assert occupied.busy == pytest.approx(occupied.calls)
    assert occupied.busy >= 4 * 0.05


def test_the_calls_of_a_later_batch_wait_for_the_earlier_one(cache: CallCache) -> None:
    def slow(call: ModelCall) -> ModelReply:
        time.sleep(0.02)
        return echo(call)

    async def one(name: str) -> None:
        await ask(name)

    finished = drive(Batches(slow, size=2), cache, named(4, one))
    first, second = ([each.records[0].queued for each in finished[start : start + 2]] for start in (0, 2))
    assert min(second) > max(first) + 0.03


def test_stopping_closes_an_engine_in_the_midst_of_a_call_and_spares_an_idle_one(cache: CallCache) -> None:
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


def slow_batch(call: ModelCall) -> ModelReply:
    time.sleep(0.001)
    return echo(call)

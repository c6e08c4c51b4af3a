"""Programs of two steps, driven through a batch engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kgqa.cache.in_flight import Done, ServiceReply
from kgqa.cache.store import CallCache
from kgqa.calls import Program
from kgqa.runtime.scheduler import Finished, Scheduler
from kgqa.runtime.services import Waves
from tests.engines_for_tests import Batches, ask


async def two_steps(name: str) -> str:
    first = await ask(f"{name} one")
    second = await ask(f"{name} two after {first.text}")
    return second.text


def named(count: int, program: Callable[[str], Program[Any]]) -> Iterator[tuple[str, Program[Any]]]:
    return ((f"q{number}", program(f"q{number}")) for number in range(count))


def scheduler_of(engine: Batches, cache: CallCache, width: int = 64, **options: Any) -> Scheduler:
    queue = Done()
    waves = Waves(queue, cache, engine)
    return Scheduler(lambda call: waves, queue, width=lambda: width, **options)


def drive(
    engine: Batches,
    cache: CallCache,
    programs: Iterator[tuple[str, Program[Any]]],
    *,
    width: int = 64,
    **options: Any,
) -> list[Finished[Any]]:
    scheduler = scheduler_of(engine, cache, width, **options)
    try:
        return list(scheduler.run(programs))
    finally:
        scheduler.stop()


def next_reply(queue: Done) -> ServiceReply:
    """Wait for the next reply and do the work that is queued before it."""
    while not isinstance(item := queue.get(), ServiceReply):
        item()
    return item

"""Programs that a service brings while another program waits for it."""

from __future__ import annotations

import threading
from typing import Any

from kgqa.cache.in_flight import Done, Request, ServiceReply
from kgqa.cache.store import CallCache
from kgqa.calls import Call, RunAgent
from kgqa.runtime.scheduler import Finished, Scheduler
from kgqa.runtime.services import Service, Waves
from kgqa.types import AgentReply, Question
from tests.engines_for_tests import Batches, ask

AGENT = RunAgent(None, Question("q", "", ()), "agent")


class Visitor(Service):
    """Makes calls from a thread of its own, some at once, and then ends."""

    listens = True

    def __init__(self, queue: Done, calls: int, *, on_its_own: bool = False) -> None:
        self.done, self.calls, self.on_its_own = queue, calls, on_its_own
        self.scheduler: Scheduler | None = None
        self.replies: list[str] = []

    def submit(self, request: Request) -> None:
        threading.Thread(target=self.work, args=(request.ticket,)).start()

    def work(self, ticket: int) -> None:
        left = threading.Semaphore(0)

        async def call(name: str) -> None:
            self.replies.append((await ask(name)).text)
            left.release()

        for number in range(self.calls):
            self.adopt(call(f"call {number}"), None if self.on_its_own else ticket)
        for _ in range(self.calls):
            left.acquire()
        self.done.put(ServiceReply(ticket, AgentReply("done"), cached=False))

    def adopt(self, program: Any, ticket: int | None) -> None:
        scheduler = self.scheduler
        assert scheduler is not None
        self.done.put(lambda: scheduler.adopt(program, ticket))


def run(
    cache: CallCache, calls: int, *, on_its_own: bool = False
) -> tuple[Visitor, list[Finished[Any]]]:
    queue = Done()
    visitor = Visitor(queue, calls, on_its_own=on_its_own)
    waves = Waves(queue, cache, Batches())

    def route(call: Call[Any]) -> Service:
        return visitor if isinstance(call, RunAgent) else waves

    async def wait() -> str:
        return (await AGENT).output

    visitor.scheduler = scheduler = Scheduler(route, queue, width=lambda: 8)
    try:
        return visitor, list(scheduler.run([("q", wait())]))
    finally:
        scheduler.stop()


def test_adopted_calls_count_for_the_waiting_program(cache: CallCache) -> None:
    visitor, [finished] = run(cache, 3)
    assert (finished.key, finished.result, len(visitor.replies)) == ("q", "done", 3)
    assert [record.path for record in finished.records] == [(0,), (0, 0, 0), (0, 1, 0), (0, 2, 0)]


def test_adopted_program_can_stand_alone(cache: CallCache) -> None:
    visitor, finished = run(cache, 3, on_its_own=True)
    assert len(visitor.replies) == 3
    assert [len(each.records) for each in finished] == [1, 1, 1, 1]


def test_batch_engine_does_not_wait_for_a_listener(cache: CallCache) -> None:
    visitor, _ = run(cache, 1)
    assert len(visitor.replies) == 1


def test_program_of_an_ended_call_is_closed() -> None:
    scheduler = Scheduler(lambda _: Service(), Done(), width=lambda: 8)  # type: ignore[abstract]
    assert not scheduler.adopt(ask_once(), 7)


async def ask_once() -> None:
    await ask("never sent")

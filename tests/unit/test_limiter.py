"""The maximum number of parallel calls, at a server that is simulated call by call.

Its time is counted and not waited for: what is measured is the same everywhere. The scheduler waits for replies at a
queue; where that is empty, the next event of the server happens. So all runs in one thread, always in the same order.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import ClassVar
from zlib import crc32

import pytest

from kgqa.cache.in_flight import Done, ServiceReply
from kgqa.cache.store import CallCache
from kgqa.calls import Generate, ModelCall, ModelReply
from kgqa.engines.openai.limits import (
    INITIAL_LIMIT,
    LEAST,
    MAX_LIMIT,
    QUEUING_LIMIT,
    SAMPLES,
    AdaptiveLimiter,
)
from kgqa.experiment.session import QUESTIONS_A_PLACE
from kgqa.runtime.scheduler import WIDTH, Scheduler
from kgqa.runtime.services import Streams
from kgqa.types import Completion, Usage
from tests.engines_for_tests import SilentEngine, ask


def finish(limiter: AdaptiveLimiter, calls: int, seconds: float, tokens: int = 0) -> int:
    """Finish calls of a full server, and return the limit."""
    for _ in range(limiter.limit - limiter._running):
        limiter.acquire()
    for _ in range(calls):
        limiter.release(limiter.limit, seconds, tokens)
        limiter.acquire()
    return limiter.limit


def test_limit_doubles_while_more_calls_do_more_work() -> None:
    limiter = AdaptiveLimiter.of(None)
    # no other limit to compare with
    assert finish(limiter, LEAST, 1.0) == 64
    # a call takes 1.5 times as long, so twice the calls do a third more
    assert finish(limiter, LEAST, 1.5) == 128
    # the server does not work on more calls than before
    assert finish(limiter, SAMPLES * LEAST, 3.0) == 128
    # it was measured often enough
    assert finish(limiter, SAMPLES * LEAST, 1.0) == 128


def test_longer_replies_are_more_work() -> None:
    limiter = AdaptiveLimiter.of(None)
    finish(limiter, LEAST, 1.0)
    # a prompt is the work of eight tokens
    assert finish(limiter, LEAST, 4.0, tokens=24) == 128


def test_calls_that_wait_for_each_other_raise_nothing() -> None:
    limiter = AdaptiveLimiter.of(None)
    finish(limiter, 1, 1.0)
    assert finish(limiter, SAMPLES * LEAST, 10.0) == INITIAL_LIMIT


def test_calls_of_a_server_that_is_not_full_raise_nothing() -> None:
    limiter = AdaptiveLimiter.of(None)
    for _ in range(200):
        limiter.acquire()
        limiter.release(INITIAL_LIMIT, 1.0)
    assert limiter.limit == INITIAL_LIMIT


def test_limit_rises_up_to_its_maximum() -> None:
    limiter = AdaptiveLimiter(MAX_LIMIT - 1, adapts=True)
    assert finish(limiter, MAX_LIMIT, 1.0) == MAX_LIMIT


def test_only_reports_and_rate_limits_change_limit() -> None:
    limiter = AdaptiveLimiter.of(7)
    limiter.set_slots(4)
    limiter.on_rate_limited()
    assert limiter.limit == 7
    limiter = AdaptiveLimiter.of(None)
    limiter.set_slots("many")
    assert limiter.adapts
    limiter.set_slots(4)
    limiter.on_rate_limited()
    assert (limiter.limit, limiter.adapts) == (4, False)
    limiter = AdaptiveLimiter.of(None)
    for _ in range(50):
        limiter.on_rate_limited()
    assert (limiter.limit, limiter.adapts) == (22, False)
    limiter = AdaptiveLimiter.of(None)
    for _ in range(200):
        limiter.acquire()
    for _ in range(200):
        limiter.release(INITIAL_LIMIT, None)
    assert (limiter.limit, limiter.adapts) == (INITIAL_LIMIT, True)


Deliver = Callable[[ModelReply | Exception], None]


@dataclass
class VirtualServer(SilentEngine):
    """First in, first out. A call takes 20 ms, and for each token 8 ms, 0.4 % longer for every other call under way.

    A reply has as many tokens as its call may have. `limiter` adapts as that of engine=openai does.
    """

    slots: int
    limiter: AdaptiveLimiter
    now: float = 0.0
    # seconds that all calls would take in a full batch
    full: float = 0.0
    # calls that the program had under way at once
    most: int = 0
    _busy: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _waiting: deque[Callable[[], None]] = field(default_factory=deque)
    _numbers: Iterator[int] = field(default_factory=count)
    _asked: int = 0

    streaming: ClassVar[bool] = True
    estimates_tokens: ClassVar[bool] = True

    @property
    def max_concurrency(self) -> int:
        return self.limiter.limit

    @property
    def efficiency(self) -> float:
        return self.full / self.slots / self.now

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        assert isinstance(call, Generate)
        limit, since = self.limiter.acquire(), self.now
        self._asked += 1
        self.most = max(self.most, self._asked)

        def begin() -> None:
            self._busy += 1
            self.full += self._seconds(call.max_tokens, self.slots)
            self._after(
                self._seconds(call.max_tokens, self._busy),
                lambda: self._end(call, limit, since, deliver),
            )

        if self._busy < self.slots:
            begin()
        else:
            self._waiting.append(begin)

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), what))

    def pass_on(self) -> None:
        """To the next event."""
        self.now, _, happens = heapq.heappop(self._events)
        happens()

    def _end(self, call: Generate, limit: int, since: float, deliver: Deliver) -> None:
        self._busy -= 1
        if self._waiting:
            self._waiting.popleft()()
        self.limiter.release(limit, self.now - since, call.max_tokens)
        self._asked -= 1
        deliver(
            Completion(
                self.render(call), usage=Usage(prompt_tokens=1, output_tokens=call.max_tokens)
            )
        )

    @staticmethod
    def _seconds(tokens: int, busy: int) -> float:
        return 0.02 + 0.008 * tokens * (1 + 0.004 * (busy - 1))


class VirtualQueue(Done):
    """Of replies; time passes where there are none."""

    server: VirtualServer

    def get(
        self, block: bool = True, timeout: float | None = None
    ) -> ServiceReply | Callable[[], object]:
        while self.empty():
            self.server.pass_on()
        return super().get(block, timeout)


async def chain(name: str, tokens: Iterable[int]) -> int:
    """One call after the other, each with a reply of so many tokens."""
    number = -1
    for number, most in enumerate(tokens):
        await Generate(ask(f"{name} {number}").prompt, max_tokens=most)
    return number + 1


def thoughts(name: str) -> list[int]:
    """Tokens of two to four replies, the last one short: those of IRCoT at the race's endpoint."""
    count = 2 + crc32(name.encode()) % 3
    return [*(10 + crc32(f"{name} {step}".encode()) % 36 for step in range(count - 1)), 8]


def served(
    slots: int,
    questions: int,
    cache: CallCache,
    *,
    arranged: bool = True,
    concurrency: int | None = None,
    initial: int = INITIAL_LIMIT,
) -> VirtualServer:
    """Return a server after a run with kgqa's defaults. arranged: the end, too: `Streams`."""
    server = VirtualServer(slots, AdaptiveLimiter.of(concurrency, initial))
    names = [str(number) for number in range(questions)]
    queue, ending = VirtualQueue(), threading.Event()
    queue.server = server
    streams = Streams(queue, cache, server, ending)
    width = lambda: max(WIDTH, QUESTIONS_A_PLACE * server.max_concurrency)  # noqa: E731 - asked with every reply
    on_last_start = ending.set if arranged else lambda: None
    scheduler = Scheduler(lambda call: streams, queue, width=width, on_last_start=on_last_start)
    ended = list(
        scheduler.run([(name, chain(name, thoughts(name))) for name in names], streaming=True)
    )
    assert {each.key: each.result for each in ended} == {
        name: len(thoughts(name)) for name in names
    }
    return server


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slots", "questions", "efficiency"),
    [(8, 100, 0.97), (32, 200, 0.95), (256, 400, 0.61), (1024, 1600, 0.73)],
)
def test_unknown_server_gets_all_calls(
    slots: int, questions: int, efficiency: float, cache: CallCache
) -> None:
    server = served(slots, questions, cache)
    assert server.efficiency >= efficiency
    assert server.limiter.limit <= max(2 * INITIAL_LIMIT, 8 * slots)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slots", "questions", "share"), [(256, 400, 0.96), (1024, 1600, 0.92)], ids=["256", "1,024"]
)
def test_server_that_queues_calls_is_soon_full(
    slots: int, questions: int, share: float, cache: CallCache, tmp_path: Path
) -> None:
    server = served(slots, questions, cache, initial=QUEUING_LIMIT)
    other = CallCache(tmp_path / "other")
    # its end is as empty: calls of a question follow one another
    best = served(slots, questions, other, concurrency=slots)
    other.close()
    assert server.efficiency >= share * best.efficiency


@pytest.mark.slow
def test_least_advanced_question_goes_first_at_the_end(cache: CallCache, tmp_path: Path) -> None:
    server = served(32, 200, cache, concurrency=64)
    other = CallCache(tmp_path / "other")
    by_place = served(32, 200, other, arranged=False, concurrency=64)
    other.close()
    assert server.full == pytest.approx(by_place.full)
    assert server.now < 0.98 * by_place.now


def test_server_with_one_slot_gets_few_calls(cache: CallCache) -> None:
    server = served(1, 100, cache)
    assert server.most <= 2 * INITIAL_LIMIT
    assert server.efficiency > 0.99

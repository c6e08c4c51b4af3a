"""A server with so many slots in time that is counted and not waited for: what is measured is the same everywhere.

The scheduler waits for replies at a queue; where that is empty, the next event of the server happens. So all runs in
one thread, in an order that is the same in every run.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

from kgqa.cache.in_flight import Done, ServiceReply
from kgqa.cache.store import CallCache
from kgqa.calls import Generate, ModelCall, ModelReply, Program
from kgqa.engines.openai.concurrency import AdaptiveLimiter
from kgqa.runtime.scheduler import Finished, Scheduler
from kgqa.runtime.services import Streams
from kgqa.types import Completion, Json, Usage
from tests.engines_for_tests import ask

Deliver = Callable[[ModelReply | Exception], None]


@dataclass
class VirtualServer:
    """First in, first out. A call takes 20 ms, and for each token 8 ms, 0.4 % longer for every other call under way.

    A reply has as many tokens as its call may have. `limiter` adapts as that of engine=openai does.
    """

    slots: int
    limiter: AdaptiveLimiter
    now: float = 0.0
    full: float = 0.0  # seconds that all calls would take in a full batch
    most: int = 0  # calls that the program had under way at once
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

    def identity(self) -> Mapping[str, Json]:
        return {"engine": "virtual"}

    def render(self, call: ModelCall) -> str:
        return call.prompt.messages[0].content

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        assert isinstance(call, Generate)
        limit, since = self.limiter.acquire(), self.now
        self._asked += 1
        self.most = max(self.most, self._asked)

        def begin() -> None:
            self._busy += 1
            self.full += self._seconds(call.max_tokens, self.slots)
            self._after(self._seconds(call.max_tokens, self._busy), lambda: self._end(call, limit, since, deliver))

        if self._busy < self.slots:
            begin()
        else:
            self._waiting.append(begin)

    def close(self) -> None:
        """Nothing to free."""

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
        deliver(Completion(self.render(call), usage=Usage(prompt_tokens=1, output_tokens=call.max_tokens)))

    @staticmethod
    def _seconds(tokens: int, busy: int) -> float:
        return 0.02 + 0.008 * tokens * (1 + 0.004 * (busy - 1))


class VirtualQueue(Done):
    """Of replies; time passes where there are none."""

    server: VirtualServer

    def get(self, block: bool = True, timeout: float | None = None) -> ServiceReply | Callable[[], None]:
        while self.empty():
            self.server.pass_on()
        return super().get(block, timeout)


async def chain(name: str, tokens: Iterable[int]) -> int:
    """One call after the other, each with a reply of so many tokens."""
    number = -1
    for number, most in enumerate(tokens):
        await Generate(ask(f"{name} {number}").prompt, max_tokens=most)
    return number + 1


def driven(
    server: VirtualServer,
    cache: CallCache,
    programs: Iterable[tuple[str, Program[Any]]],
    width: Callable[[], int],
    *,
    arranged: bool = True,
) -> list[Finished[Any]]:
    """All programs' ends; `width` is asked with every reply, as a run does. arranged: the end, too, see `Streams`."""
    done = VirtualQueue()
    done.server = server
    queue: Done = done
    ending = threading.Event()
    streams = Streams(queue, cache, server, ending)
    scheduler = Scheduler(lambda call: streams, queue, width=width())

    def follow(record: object) -> None:
        scheduler.width = width()

    scheduler.on_record = follow
    scheduler.on_last_start = ending.set if arranged else None
    return list(scheduler.run(programs, streaming=True))

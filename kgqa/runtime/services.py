"""Services answer one kind of call for one engine, from the call cache first.

A streaming service takes every call at once and hands back replies as they come (servers, search, ranking). A wave
service keeps its calls until the scheduler flushes it, and looks them up in the cache only then: so a wave holds the
same calls whether or not a part of them is cached, and an interrupted run resumes in the same batches.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from kgqa.calls import Generate, ModelCall
from kgqa.errors import KgqaError
from kgqa.protocols import BatchEngine, StreamingEngine
from kgqa.runtime.asked import Asked
from kgqa.runtime.bisecting import Bisecting
from kgqa.runtime.cache import CallCache
from kgqa.runtime.occupancy import Occupancy
from kgqa.runtime.requests import Done, Request, ServiceReply
from kgqa.types import Json


class Service(Protocol):
    """What the scheduler sees."""

    held: int  # calls waiting for `flush`; always 0 for a service that needs none
    busy: int  # calls being answered

    def submit(self, request: Request) -> None: ...

    def flush(self) -> None: ...

    def stop(self, timeout: float) -> None:
        """Take no more, drop what waits, let what runs end within `timeout` seconds."""
        ...


class Instant:
    """Answers inside `submit`; for look-ups that cost nothing, so they are not cached."""

    held = busy = 0

    def __init__(self, done: Done, answer: Callable[[Any], Any]) -> None:
        self._done, self._answer = done, answer

    def submit(self, request: Request) -> None:
        started = time.monotonic()
        try:
            value = self._answer(request.call)
        except KgqaError as error:
            value = error
        self._done.put(ServiceReply(request.ticket, value, cached=False, seconds=time.monotonic() - started))

    def flush(self) -> None:
        """Nothing is ever held."""

    def stop(self, timeout: float) -> None:
        """Nothing ever runs."""


class Waves:
    """A batch engine: calls are held, then answered batch after batch in one worker thread."""

    def __init__(self, done: Done, cache: CallCache, engine: BatchEngine) -> None:
        self.held = self.busy = 0
        self.occupancy = Occupancy()
        self._engine = engine
        self._asked = Asked(done, cache, engine.identity(), self._make)
        self._lock = threading.Lock()
        self._wave: list[Request] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kgqa-waves")
        self._answer = Bisecting(engine.answer)
        self._stopped = False

    def submit(self, request: Request) -> None:
        self._wave.append(request)
        self.held += 1

    def flush(self) -> None:
        wave, self._wave, self.held = self._wave, [], 0
        self._make(self._asked.begin(sorted(wave)))

    def _make(self, requests: Sequence[Request]) -> None:
        for batch in batches(requests, self._engine.batch_size):
            with self._lock:
                self.busy += len(batch)
            if not self._stopped:
                self._worker.submit(self._work, batch)

    def stop(self, timeout: float) -> None:
        self._stopped = True
        self._worker.shutdown(wait=False, cancel_futures=True)
        for thread in tuple(self._worker._threads):
            thread.join(timeout)
        self._asked.stop()

    def _work(self, batch: Sequence[Request]) -> None:
        if not self._stopped:
            started = time.monotonic()
            self.occupancy.change(len(batch), self._engine.batch_size)
            replies = self._answer([request.call for request in batch])
            self.occupancy.change(-len(batch), self._engine.batch_size)
            with self._lock:
                self.busy -= len(batch)
            self._asked.finish(list(zip(batch, replies, strict=True)), started)


def batches(requests: Sequence[Request], size: int) -> list[Sequence[Request]]:
    """Cut a wave into batches: generations by length, so that a batch pads little; choices as they stand,
    so that the chains of one question share their prefix."""
    writing = [request for request in requests if isinstance(request.call, Generate)]
    writing.sort(key=lambda request: (request.call.max_tokens, _length(request.call), request.order))
    choosing = [request for request in requests if not isinstance(request.call, Generate)]
    return [kind[start : start + size] for kind in (choosing, writing) for start in range(0, len(kind), max(1, size))]


def _length(call: ModelCall) -> int:
    return sum(len(message.content) for message in call.prompt.messages) + len(call.prompt.prefill)


class Streams:
    """A streaming engine: up to `places` calls at once, earlier questions first, so that a question's calls
    stay near each other and find its prefix in the engine's cache. At the end those that have come least far go
    first: else the last ones are left with one step after the other to go and nothing beside them."""

    held = 0

    def __init__(self, done: Done, cache: CallCache, engine: StreamingEngine) -> None:
        self.busy = 0
        self.occupancy = Occupancy()
        self._engine = engine
        self._asked = Asked(done, cache, engine.identity(), self._make)
        self._lock = threading.Lock()
        self._waiting: list[tuple[tuple[object, ...], Request]] = []  # a heap
        self._rank = _earliest
        self._stopped = False

    def submit(self, request: Request) -> None:
        self._make(self._asked.begin([request]))

    def arrange(self, *, ending: bool) -> None:
        """ending: no further question will begin."""
        with self._lock:
            self._rank = _least_advanced if ending else _earliest
            self._waiting = [(self._rank(request), request) for _, request in self._waiting]
            heapq.heapify(self._waiting)

    def _make(self, requests: Sequence[Request]) -> None:
        with self._lock:
            for request in requests:
                heapq.heappush(self._waiting, (self._rank(request), request))
        if requests:
            self._start()

    def flush(self) -> None:
        """Nothing is ever held."""

    def stop(self, timeout: float) -> None:  # noqa: ARG002 - cancelling a stream takes no time
        with self._lock:
            self._stopped = True
            self._waiting.clear()
        self._asked.stop()
        if self.busy:  # an engine drops calls only by being closed; an idle one may be used again
            self._engine.close()

    def _start(self) -> None:
        while True:
            with self._lock:
                if self._stopped or not self._waiting or self.busy >= self._engine.places:
                    return
                _, request = heapq.heappop(self._waiting)
                self.busy += 1
            self.occupancy.change(1, self._engine.places)
            self._engine.submit(request.call, partial(self._delivered, request, time.monotonic()))

    def _delivered(self, request: Request, started: float, reply: Any) -> None:
        with self._lock:
            self.busy -= 1
        self.occupancy.change(-1, self._engine.places)
        self._start()
        self._asked.finish([(request, reply)], started)


def _earliest(request: Request) -> tuple[object, ...]:
    return request.order, request.ticket


def _least_advanced(request: Request) -> tuple[object, ...]:
    question, awaited, *inside = request.order
    return awaited, question, inside, request.ticket


class Worker:
    """CPU-bound work (ranking, search) in one thread: what waits when it is free is answered together, up to a limit
    that lets the first replies go on while the rest is worked on."""

    held = 0
    _together = 32

    def __init__(
        self,
        done: Done,
        cache: CallCache,
        identity: Mapping[str, Json],
        answer: Callable[[Sequence[Any]], Sequence[Any]],
    ) -> None:
        self.busy = 0
        self._answer = Bisecting(answer)
        self._asked = Asked(done, cache, identity)
        self._lock = threading.Lock()
        self._waiting: list[Request] = []
        self._awake = False  # the thread will look at what waits before it rests
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kgqa-worker")

    def submit(self, request: Request) -> None:
        if self._asked.begin([request]):
            with self._lock:
                self._waiting.append(request)
                awake, self._awake = self._awake, True
            if not awake:  # waking it costs as much as a search
                self._worker.submit(self._work)

    def flush(self) -> None:
        """Nothing is ever held."""

    def stop(self, timeout: float) -> None:
        with self._lock:
            self._waiting = []
        self._worker.shutdown(wait=False, cancel_futures=True)
        for thread in tuple(self._worker._threads):
            thread.join(timeout)
        self._asked.stop()

    def _work(self) -> None:
        while taken := self._taken():
            self.busy, started = len(taken), time.monotonic()
            replies = self._answer([request.call for request in taken])
            self.busy, seconds = 0, (time.monotonic() - started) / len(taken)
            self._asked.finish(list(zip(taken, replies, strict=True)), started, seconds)

    def _taken(self) -> list[Request]:
        with self._lock:
            taken, self._waiting = self._waiting[: self._together], self._waiting[self._together :]
            self._awake = bool(taken)
        return taken

"""Services: each answers one kind of call for one engine, from the call cache if possible.

A streaming service starts every call at once and returns replies as they arrive (servers, search, ranking). A batch
service holds its calls until the scheduler flushes it. Only then it looks them up in the cache, so that an interrupted
run resumes with the same batches.
"""

from __future__ import annotations

import heapq
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from kgqa.cache.in_flight import Done, InFlightCalls, MakeCalls, Request, ServiceReply
from kgqa.cache.store import CallCache
from kgqa.calls import Generate
from kgqa.errors import EngineDied, EngineError, KgqaError
from kgqa.identity.component import identity_of
from kgqa.protocols import BatchEngine, StreamingEngine
from kgqa.types import Json
from kgqa.util.redaction import describe_error
from kgqa.util.text import pluralize
from kgqa.util.waiting import add_wait, remove_wait

# calls in a row that fail alone, after which the engine counts as crashed
MAX_FAILURES = 3
# calls of a streaming engine: enough for cheap locks, so few that the engine does not wait while prompts are rendered
_SENT_TOGETHER = 16


class Service(ABC):
    """The base of all services. held: calls that wait for `flush`. busy: calls in progress.

    listens: whether it adopts programs at any time, so that batches cannot wait for all of them.
    """

    held: int = 0
    busy: int = 0
    listens: bool = False

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Accept a call. Its reply is put into the scheduler's queue."""

    def send(self) -> None:  # noqa: B027 - most services start a call when it is submitted
        """Start the submitted calls. The scheduler calls this when no program can continue."""

    def flush(self) -> None:  # noqa: B027 - most services hold no calls
        """Start the held calls."""

    def stop(self, timeout: float) -> None:  # noqa: B027 - most services have nothing to stop
        """Drop waiting calls, and wait up to `timeout` seconds for running ones."""


class Instant(Service):
    """Answers in `submit`, for fast look-ups that are not cached."""

    def __init__(self, done: Done, answer: Callable[[Any], Any]) -> None:
        self._done, self._answer = done, answer

    def submit(self, request: Request) -> None:
        started = time.monotonic()
        try:
            value = self._answer(request.call)
        except KgqaError as error:
            value = error
        self._done.put(
            ServiceReply(request.ticket, value, cached=False, seconds=time.monotonic() - started)
        )


class Batches(Service):
    """The base of services that answer batches of calls in one worker thread."""

    def __init__(
        self,
        done: Done,
        cache: CallCache,
        identity: Mapping[str, Json],
        answer: Callable[[Sequence[Any]], Sequence[Any]],
        make: MakeCalls | None = None,
    ) -> None:
        self._in_flight = InFlightCalls(done, cache, identity, make)
        self._answer = BatchIsolator(answer)
        self._lock = threading.Lock()
        self._waiting: list[Request] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kgqa-batches")
        self._stopped = False

    def stop(self, timeout: float) -> None:
        self._stopped = True
        self._worker.shutdown(wait=False, cancel_futures=True)
        for thread in tuple(self._worker._threads):
            thread.join(timeout)
        self._in_flight.stop()


class Waves(Batches):
    """A batch engine. Held calls are answered batch after batch."""

    def __init__(self, done: Done, cache: CallCache, engine: BatchEngine) -> None:
        super().__init__(done, cache, identity_of(engine), engine.answer, self._make)
        self._engine = engine

    def submit(self, request: Request) -> None:
        self._waiting.append(request)
        self.held += 1

    def flush(self) -> None:
        wave, self._waiting, self.held = self._waiting, [], 0
        self._make(self._in_flight.lock_calls(self._in_flight.begin(sorted(wave))))

    def _make(self, requests: Sequence[Request]) -> None:
        for batch in split_batches(requests, self._engine.batch_size):
            with self._lock:
                self.busy += len(batch)
            if not self._stopped:
                self._worker.submit(self._work, batch)

    def _work(self, batch: Sequence[Request]) -> None:
        if self._stopped:
            return
        started = time.monotonic()
        replies = self._answer([request.call for request in batch])
        with self._lock:
            self.busy -= len(batch)
        self._in_flight.finish(list(zip(batch, replies, strict=True)), started)


class Worker(Batches):
    """CPU-bound work (ranking, search). It answers up to `_together` waiting calls at once.

    work: in a few words, for the line that shows that calls wait for it.
    """

    _together = 32

    def __init__(
        self,
        done: Done,
        cache: CallCache,
        identity: Mapping[str, Json],
        answer: Callable[[Sequence[Any]], Sequence[Any]],
        work: str,
    ) -> None:
        super().__init__(done, cache, identity, answer)
        self._work_name = work
        add_wait(self._describe_wait)

    def stop(self, timeout: float) -> None:
        remove_wait(self._describe_wait)
        super().stop(timeout)

    def _describe_wait(self) -> str:
        count = len(self._waiting)
        return f"{pluralize(count, 'call')} for {self._work_name}" if count else ""

    def submit(self, request: Request) -> None:
        if self._in_flight.begin([request]):
            with self._lock:
                self._waiting.append(request)
            self._worker.submit(self._work)

    def _work(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting[: self._together], self._waiting[self._together :]
        # otherwise an earlier call of this function has answered all
        if batch and not self._stopped:
            started = time.monotonic()
            replies = self._answer([request.call for request in batch])
            seconds = (time.monotonic() - started) / len(batch)
            self._in_flight.finish(list(zip(batch, replies, strict=True)), started, seconds)


def split_batches(requests: Sequence[Request], size: int) -> list[Sequence[Request]]:
    """Return batches. Generations are sorted by length to pad little. Choices stay in order to share prefixes."""
    generations = [request for request in requests if isinstance(request.call, Generate)]
    generations.sort(
        key=lambda request: (request.call.max_tokens, request.call.prompt.characters, request.order)
    )
    choices = [request for request in requests if not isinstance(request.call, Generate)]
    step = max(1, size)
    return [
        kind[start : start + size]
        for kind in (choices, generations)
        for start in range(0, len(kind), step)
    ]


class Streams(Service):
    """A streaming engine with a limit of parallel calls.

    Earlier questions go first, so that the calls of a question find its prefix in the engine's cache. If all questions
    have started (`ending`), the least advanced go first. Otherwise the last ones would make their calls one after the
    other on an idle engine.
    """

    def __init__(
        self, done: Done, cache: CallCache, engine: StreamingEngine, ending: threading.Event
    ) -> None:
        self._engine, self._ending = engine, ending
        self._in_flight = InFlightCalls(done, cache, identity_of(engine), self._make)
        self._lock = threading.Lock()
        self._heap: list[tuple[tuple[object, ...], Request]] = []
        # neither locked nor in the heap
        self._unsent: list[Request] = []
        self._stopped = False

    def submit(self, request: Request) -> None:
        self._unsent += self._in_flight.begin([request])
        if len(self._unsent) >= _SENT_TOGETHER:
            self.send()

    def send(self) -> None:
        requests, self._unsent = self._unsent, []
        if requests:
            self._make(self._in_flight.lock_calls(requests))

    def _rank(self, request: Request) -> tuple[object, ...]:
        if not self._ending.is_set():
            return False, request.order, request.ticket
        question, awaits, *inside = request.order
        return True, awaits, question, inside, request.ticket

    def _make(self, requests: Sequence[Request]) -> None:
        with self._lock:
            for request in requests:
                heapq.heappush(self._heap, (self._rank(request), request))
        if requests:
            self._start()

    def stop(self, timeout: float) -> None:  # noqa: ARG002 - canceling a stream takes no time
        with self._lock:
            self._stopped = True
            self._heap.clear()
        self._in_flight.stop()
        # an engine drops calls only when it is closed; an idle one stays usable
        if self.busy:
            self._engine.close()

    def _start(self) -> None:
        while True:
            with self._lock:
                if self._stopped or not self._heap or self.busy >= self._engine.max_concurrency:
                    return
                _, request = heapq.heappop(self._heap)
                self.busy += 1
            self._engine.submit(request.call, partial(self._finish, request, time.monotonic()))

    def _finish(self, request: Request, started: float, reply: Any) -> None:
        with self._lock:
            self.busy -= 1
        self._start()
        self._in_flight.finish([(request, reply)], started)


class BatchIsolator:
    """Answers batches with `answer`, and returns what it raises as errors of single calls.

    A `BaseException` (a panic of a library in Rust) means that the engine crashed. Interrupts and exits are passed on
    unchanged.
    """

    def __init__(self, answer: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._answer = answer
        self._failures = 0  # in a row

    def __call__(self, calls: Sequence[Any]) -> list[Any]:
        try:
            replies = list(self._answer(calls))
            if len(replies) != len(calls):
                raise ValueError(f"{len(replies)} replies to {len(calls)} calls")  # noqa: TRY301 - as if it raised it
        except KgqaError as error:
            return [error] * len(calls)
        except Exception as error:  # noqa: BLE001 - whatever third-party code raises
            if len(calls) > 1:
                middle = len(calls) // 2
                return [*self(calls[:middle]), *self(calls[middle:])]
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                return [EngineDied(f"the engine crashed: {describe_error(error)}")]
            return [EngineError(describe_error(error))]
        except (KeyboardInterrupt, SystemExit) as stop:
            return [stop] * len(calls)
        except BaseException as error:  # noqa: BLE001 - a panic: the engine's state is unknown
            return [EngineDied(f"the engine crashed: {describe_error(error)}")] * len(calls)
        self._failures = 0
        return replies

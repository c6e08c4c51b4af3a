"""The scheduler: it drives many programs in parallel, and passes their calls to services in batches or as a stream.

Programs wait in one table by ticket. All services put their replies into one queue. A batch engine is flushed when no
program can continue. If all engines work in batches, it also waits for all other calls. Then its batches depend only on
the replies, and an interrupted run resumes to the same bytes. Next to a streaming engine, a batch engine is flushed as
soon as it is free, so that neither waits for the other.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NoReturn, TypeVar

from kgqa.cache.in_flight import Done, Request, ServiceReply
from kgqa.calls import Call, Gather, Generate, Program, Search
from kgqa.errors import ConfigError, EngineDied, UsageError
from kgqa.protocols import SearchProgram
from kgqa.runtime.services import Service
from kgqa.util.redaction import awaiting_line

T = TypeVar("T")
WIDTH = 64  # programs at once by default
MAX_CALLS = 1_000  # of one program by default


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One answered call.

    path: the n-th await of the program, then (in a gather) the slot and the n-th await there. The calls that answer
    another call have its path, then 0 and the n-th await there.
    """

    path: tuple[int, ...]
    call: Call[Any]
    reply: Any
    cached: bool
    # seconds it waited for its engine
    queued: float = 0.0
    # of work without a model, see `ServiceReply`
    seconds: float = 0.0
    # a program made it to answer another call
    is_inner: bool = False


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """A finished program: its result or the exception that ended it, and its calls by path."""

    key: str
    result: T | Exception
    records: tuple[CallRecord, ...]


@dataclass(slots=True, eq=False)
class _Root:
    key: str
    # among all programs of the run
    number: int
    calls: int = 0  # so far
    records: list[CallRecord] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Task:
    program: Program[Any]
    root: _Root
    path: tuple[int, ...] = ()
    parent: _Task | None = None
    # which of its parent's results this task computes
    slot: int = 0
    # the call of its parent that it answers
    answers: Call[Any] | None = None
    # below a task that answers a call
    is_inner: bool = False
    awaits: int = 0  # so far
    results: list[Any] = field(default_factory=list)
    missing: int = 0  # children still running
    # programs that run as parts of it while it waits, so far
    adopted: int = 0
    is_adopted: bool = False


class Scheduler:
    """Runs programs over services.

    route: returns the service that answers a call. find_program: returns the program that answers a call with other
    calls, None: a service answers it. width: returns the maximum number of open programs, which can change
    during a run. max_calls: of one program, which fails at the next one. seed: for sampled calls, together with the
    program's key and the path of the call. on_last_start: called once per `run`, when no further program waits.
    """

    def __init__(
        self,
        route: Callable[[Call[Any]], Service],
        done: Done,
        *,
        find_program: Callable[[Call[Any]], Program[Any] | None] = lambda _: None,
        width: Callable[[], int],
        max_calls: float = MAX_CALLS,
        seed: str = "0",
        on_record: Callable[[CallRecord], None] = lambda _: None,
        on_last_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._route, self._done, self._width, self._seed = route, done, width, seed
        self._find_program, self._max_calls = find_program, max_calls
        self._on_record, self._on_last_start = on_record, on_last_start
        # in the order of their first calls
        self._services: list[Service] = []
        self._ready: deque[tuple[_Task, Any]] = deque()
        self._waiting: dict[int, tuple[_Task, tuple[int, ...], Call[Any]]] = {}
        self._live: set[_Task] = set()
        self._tickets = self._started = self._open = 0
        self._is_last_started = False

    def run(
        self, programs: Iterable[tuple[str, Program[T]]], *, streaming: bool = False
    ) -> Generator[Finished[T], None, None]:
        """Run programs and yield each as it finishes. An exception, or closing the iterator, closes all open programs.

        Args:
            programs: the next one starts when fewer than `width` are open.
            streaming: whether some engine streams.

        Raises:
            EngineDied: an engine crashed.
            UsageError: the disk or a file of a service fails, which is not an error of one question.
        """
        todo, self._is_last_started = iter(programs), False
        try:
            while True:
                while self._ready:
                    finished = self._advance(*self._ready.popleft())
                    if finished is not None:
                        yield finished
                for service in self._services:
                    service.send()
                self._receive_all()
                if self._ready or self._admit(todo):
                    continue
                if not self._waiting:
                    return
                self._flush(streaming)
                self._wait()
        finally:
            for task in self._live:
                task.program.close()
            self._live.clear()

    def stop(self, timeout: float = 10) -> None:
        """Stop all services. Running batches can finish within `timeout` seconds. All other calls are dropped."""
        for service in self._services:
            service.stop(timeout)

    def adopt(self, program: Program[Any], ticket: int | None = None) -> bool:
        """Run a program as a part of the one that waits for a ticket, or on its own. Its result is dropped.

        Call this in the scheduler's thread, through the queue. Return False if no program waits for the ticket.
        """
        if ticket is None:
            self._open += 1
            self._start(_Task(program, _Root("", self._started)))
            self._started += 1
            return True
        if ticket not in self._waiting:
            program.close()
            return False
        task, path, _ = self._waiting[ticket]
        self._start(_Task(program, task.root, (*path, task.adopted), is_adopted=True))
        task.adopted += 1
        return True

    def _admit(self, todo: Iterator[tuple[str, Program[Any]]]) -> bool:
        """Start the next program if fewer than `width` are open. Return whether there was one.

        Only one: its stored replies come at once, so its first new call is made before the next program starts.
        """
        if self._is_last_started or self._open >= self._width():
            return False
        item = next(todo, None)
        if item is None:
            self._is_last_started = True
            self._on_last_start()
            return False
        key, program = item
        self._open += 1
        self._start(_Task(program, _Root(key, self._started)))
        self._started += 1
        return True

    def _start(self, task: _Task) -> None:
        self._live.add(task)
        self._ready.append((task, None))

    def _advance(self, task: _Task, reply: Any) -> Finished[Any] | None:
        """Resume a program with a reply, up to its next call or its end."""
        try:
            resume = task.program.throw if isinstance(reply, Exception) else task.program.send
            call = resume(reply)
            while not isinstance(call, Call):
                call = task.program.throw(
                    TypeError(f"a method may await kgqa calls only, not {call!r}")
                )
            task.root.calls += not task.is_inner
            if task.root.calls > self._max_calls:
                remedy = "End the loop, or increase max_calls"
                raise_in(
                    task.program,
                    RuntimeError(f"more than max_calls={self._max_calls:,} calls. {remedy}"),
                )
        except StopIteration as stop:
            return self._end(task, stop.value)
        except Exception as error:  # noqa: BLE001 - a program's failure is its result; the others continue
            return self._end(task, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an exit in a user's method, which is no end of the run
            failure = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(
                error.__traceback__
            )
            return self._end(task, failure)
        path = (*task.path, task.awaits)
        task.awaits += 1
        if isinstance(call, Gather):
            self._spawn(task, path, call)
        elif program := self._find_program(call):
            self._start(_Task(program, task.root, (*path, 0), task, answers=call, is_inner=True))
        else:
            self._submit(task, path, call)
        return None

    def _submit(self, task: _Task, path: tuple[int, ...], call: Call[Any]) -> None:
        if isinstance(call, Generate) and call.temperature > 0 and call.seed is None:
            source = f"{self._seed}/{task.root.key}/{path}"
            call = replace(
                call, seed=int.from_bytes(hashlib.sha256(source.encode()).digest()[:4], "big") >> 1
            )
        try:
            service = self._route(call)
        except ConfigError as error:
            if type(error) is ConfigError and (line := awaiting_line(task.program)):
                raise ConfigError(f"{line}: {error}") from error
            raise
        if service not in self._services:
            self._services.append(service)
        self._tickets += 1
        self._waiting[self._tickets] = (task, path, call)
        try:
            service.submit(
                Request((task.root.number, *path), self._tickets, call, time.monotonic())
            )
        except (AttributeError, TypeError, ValueError) as error:
            # a user's call has no key for the cache
            del self._waiting[self._tickets]
            self._ready.append(
                (task, TypeError(f"{type(call).__name__} has a wrong argument: {error}"))
            )

    def _spawn(self, task: _Task, path: tuple[int, ...], call: Gather) -> None:
        task.results, task.missing = [None] * len(call.programs), len(call.programs)
        for slot, program in enumerate(call.programs):
            self._start(
                _Task(program, task.root, (*path, slot), task, slot, is_inner=task.is_inner)
            )
        if not call.programs:
            self._ready.append((task, []))

    def _end(self, task: _Task, outcome: Any) -> Finished[Any] | None:
        self._live.discard(task)
        if task.is_adopted:
            return None
        parent = task.parent
        if parent is None:
            self._open -= 1
            records = sorted(task.root.records, key=lambda record: record.path)
            return Finished(task.root.key, outcome, tuple(records))
        if task.answers:
            path = task.path[:-1]
            self._record(
                task,
                CallRecord(path, task.answers, outcome, cached=False, is_inner=parent.is_inner),
            )
            self._ready.append((parent, outcome))
            return None
        parent.results[task.slot] = outcome
        parent.missing -= 1
        if not parent.missing:
            self._ready.append((parent, parent.results))
        return None

    def _flush(self, streaming: bool) -> None:
        """Start batch engines in the order of their first calls, see the module's docstring."""
        held = sum(service.held for service in self._services)
        if streaming or any(service.listens for service in self._services):
            for service in self._services:
                if service.held and not service.busy:
                    service.flush()
        elif held == len(self._waiting):
            next(service for service in self._services if service.held).flush()

    def _wait(self) -> None:
        """Wait until a program can continue."""
        while not self._ready:
            self._handle(self._done.get())
            self._receive_all()

    def _receive_all(self) -> None:
        """Receive all replies that have arrived. Do the work before them."""
        while not self._done.empty():
            self._handle(self._done.get())

    def _handle(self, item: ServiceReply | Callable[[], object]) -> None:
        if isinstance(item, ServiceReply):
            self._receive(item)
        else:
            item()

    def _receive(self, reply: ServiceReply) -> None:
        task, path, call = self._waiting.pop(reply.ticket)
        if isinstance(reply.value, (EngineDied, UsageError, KeyboardInterrupt, SystemExit)):
            raise reply.value
        self._record(
            task,
            CallRecord(
                path, call, reply.value, reply.cached, reply.queued, reply.seconds, task.is_inner
            ),
        )
        self._ready.append((task, reply.value))

    def _record(self, task: _Task, record: CallRecord) -> None:
        task.root.records.append(record)
        self._on_record(record)


def raise_in(program: Program[Any], error: Exception) -> NoReturn:
    """Raise an error where a program waits, so that its traceback names the line. Close a program that catches it."""
    _ = program.throw(error)
    program.close()
    raise error


def with_search_program(
    programs: Iterable[tuple[str, Program[T]]], searches: SearchProgram | None
) -> Iterable[tuple[str, Program[T]]]:
    """Return programs with searches that `searches` answers, in their trace and cost. None: return them unchanged."""
    if searches is None:
        return programs
    return ((key, _run_with_searches(program, searches)) for key, program in programs)


async def _run_with_searches(program: Program[T], searches: SearchProgram) -> T:
    """Run a program and pass its calls on, except searches."""
    reply: Any = None
    try:
        while True:
            try:
                call = program.throw(reply) if isinstance(reply, Exception) else program.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await _answer(call, searches)
    finally:
        program.close()


async def _answer(call: Call[Any], searches: SearchProgram) -> Any:
    """Return the reply to a call, or the exception to raise in the program."""
    try:
        match call:
            case Search(keywords=None, positions=None):
                return await searches.search(call)
            case Gather():
                return await Gather(
                    *(_run_with_searches(program, searches) for program in call.programs)
                )
        return await call
    except Exception as error:  # noqa: BLE001 - as the scheduler raises a failed call in its program
        return error

"""The calls of one agent for one question. They become calls of the question, with its cache, budget and costs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from kgqa.artifacts.call_schema import call_json
from kgqa.calls import Call, Generate, Program, Search
from kgqa.errors import EngineError, KgqaError, PromptTooLong
from kgqa.types import Completion, Passage

T = TypeVar("T")
MOST_OF_PAGE = 50  # passages
MOST_PASSAGES = 10_000  # that an endless session remembers
CLOSED = "this question has ended"
# runs a program in the scheduler, from any thread
Start = Callable[[Program[Any]], None]


class SessionClosed(KgqaError):
    """The session has ended, or one of its limits is reached."""


class NotSupported(KgqaError):
    """A request needs what this run or its engine does not have."""


@dataclass(frozen=True)
class AgentAbilities:
    """Describe what the calls of a run can reach."""

    # the name of the reader; "" without a model
    model: str = ""
    roles: frozenset[str] = frozenset()  # with their own model
    # whether the reader's engine accepts tools
    functions: bool = False
    # whether it can list log-probabilities
    logprobs: bool = False
    # whether it can continue the start of a reply, or the model sees it as a message
    prefill: bool = True
    search: bool = False
    # the name of what is searched, by its content
    index: str = ""


@dataclass(frozen=True)
class Limits:
    """Limits of one question, and what requests leave out. None: no limit."""

    calls: int | None = None
    tokens: int | None = None  # of all prompts and replies
    temperature: float = 1.0  # the protocol's default
    max_tokens: int = 1024
    passages: int = 5


@dataclass
class AgentSession:
    """The open session of a question. Its token is the only way to it.

    pool: what is searched; None: the corpus. key: the question's id and the run's seed, for seeds of sampled calls.
    is_endless: it belongs to no question, so searches are not remembered.
    """

    start: Start
    abilities: AgentAbilities
    limits: Limits = Limits()
    pool: tuple[Passage, ...] | None = None
    key: str = ""
    is_endless: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self) -> None:
        # the reason; the agent is ended then
        self.stopped: Future[str] = Future()
        self.passages: dict[str, Passage] = {}  # that searches found, by id
        self._searches: dict[int, tuple[str, tuple[Passage, ...]]] = {}  # by number of the call
        self._pending: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._calls = self._tokens = 0
        self._occurrences: Counter[str] = Counter()

    @property
    def searches(self) -> tuple[tuple[str, tuple[Passage, ...]], ...]:
        """Return the queries with their passages, in the order in which they arrived."""
        return tuple(search for _, search in sorted(self._searches.items()))

    def submit(self, call: Call[T]) -> Future[T]:
        """Start a call from any thread.

        Raises:
            SessionClosed: the question has ended, or has reached a limit.
        """
        with self._lock:
            self._check_limits()
            self._calls += 1
            number, call = self._calls, self._set_seed(call)
            future: Future[T] = Future()
            # a client that hangs up does not cancel a call that may be paid
            future.set_running_or_notify_cancel()
            self._pending.add(future)
        self.start(self._answer(call, number, future))
        return future

    async def call(self, call: Call[T]) -> T:
        """Make a call from an event loop."""
        return await asyncio.wrap_future(self.submit(call))

    def submit_search(self, query: str, k: int | None = None) -> Future[tuple[Passage, ...]]:
        """Start a search from any thread, see `submit`."""
        if not self.abilities.search:
            raise NotSupported("there is no retriever here. Set retriever=NAME and dataset=NAME")
        return self.submit(Search(query, k or self.limits.passages, pool=self.pool))

    async def search(self, query: str, k: int | None = None) -> tuple[Passage, ...]:
        """Search from an event loop."""
        return await asyncio.wrap_future(self.submit_search(query, k))

    async def read(self, title: str) -> tuple[Passage, ...]:
        """Return the passages of a page, from an event loop."""
        if self.pool is None and self.abilities.search:
            return await self.call(Search(title, MOST_OF_PAGE, titles=(title,)))
        passages = tuple(passage for passage in self.pool or () if passage.title == title)
        self.passages |= {passage.id: passage for passage in passages}
        return passages

    def stop(self, reason: str = "") -> None:
        """Reject all further calls, and end the wait for those in progress. Their replies are still stored."""
        with self._lock:
            if not self.stopped.done():
                self.stopped.set_result(reason)
            for future in self._pending:
                future.set_exception(SessionClosed(CLOSED))
            self._pending.clear()

    def _check_limits(self) -> None:
        reason = ""
        if self.limits.calls is not None and self._calls >= self.limits.calls:
            reason = f"more than max_calls={self.limits.calls:,} calls"
        elif self.limits.tokens is not None and self._tokens >= self.limits.tokens:
            reason = f"more than method.max_question_tokens={self.limits.tokens:,} tokens"
        if reason and not self.stopped.done():
            self.stopped.set_result(reason)
        if self.stopped.done():
            raise SessionClosed(self.stopped.result() or CLOSED)

    def _set_seed(self, call: Call[T]) -> Call[T]:
        """Give a sampled call its seed. It depends on the call and its repetitions, not on the order of others."""
        if not isinstance(call, Generate) or call.temperature == 0 or call.seed is not None:
            return call
        content = json.dumps([self.key, call_json(call)], sort_keys=True)
        name = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        digest = hashlib.sha256(f"{name}{self._occurrences[name]}".encode()).digest()
        self._occurrences[name] += 1
        return cast(Call[T], replace(call, seed=int.from_bytes(digest[:4], "big") >> 1))

    async def _answer(self, call: Call[T], number: int, future: Future[T]) -> None:
        """Await a call in the scheduler, and hand its reply to the agent."""
        try:
            reply = await call
        except Exception as error:  # noqa: BLE001 - the agent gets every error of its call
            self._settle(future, error)
            return
        if isinstance(reply, Completion):
            self._tokens += reply.usage.tokens
        if isinstance(call, Search):
            self._remember(number, call.query, cast(tuple[Passage, ...], reply))
        self._settle(future, reply)

    def _remember(self, number: int, query: str, passages: tuple[Passage, ...]) -> None:
        if not self.is_endless:
            self._searches[number] = (query, passages)
        self.passages |= {passage.id: passage for passage in passages}
        while self.is_endless and len(self.passages) > MOST_PASSAGES:
            self.passages.pop(next(iter(self.passages)))

    def _settle(self, future: Future[Any], reply: object) -> None:
        with self._lock:
            if future not in self._pending:
                return
            self._pending.remove(future)
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)


class Sessions:
    """The open sessions by token."""

    def __init__(self) -> None:
        self._open: dict[str, AgentSession] = {}

    def add(self, session: AgentSession) -> None:
        self._open[session.token] = session

    def remove(self, session: AgentSession) -> None:
        """Forget a session. Its token is worthless from now on."""
        session.stop()
        self._open.pop(session.token, None)

    def find(self, token: str) -> AgentSession | None:
        return self._open.get(token)


def error_status(error: Exception) -> int:
    """Return the HTTP status of an error. Clients do not repeat requests with these: kgqa has already retried."""
    if isinstance(error, SessionClosed):
        return 403
    return 424 if isinstance(error, EngineError) and not isinstance(error, PromptTooLong) else 400

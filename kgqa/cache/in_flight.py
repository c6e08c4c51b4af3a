"""Calls in flight: one of several identical calls is made, by this process or by another one with the same cache."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

from kgqa.artifacts.call_schema import reply_from_json, reply_json
from kgqa.cache.key import cache_key
from kgqa.cache.store import CallCache, Origin
from kgqa.calls import Call
from kgqa.errors import EngineError, KgqaError
from kgqa.types import Json
from kgqa.util.settings import name_of
from kgqa.util.waiting import add_wait, remove_wait

# seconds between two looks at the calls of other processes
_POLL = 0.2
_LOG = logging.getLogger("kgqa.cache")


class Request(NamedTuple):
    """A submitted call. order: the number of its question, then its path in the program."""

    order: tuple[int, ...]
    ticket: int
    # a Call; each service knows its type
    call: Any
    since: float  # `time.monotonic()` when it was submitted


class ServiceReply(NamedTuple):
    """A reply for the scheduler."""

    ticket: int
    # an exception is raised in the program
    value: Any
    # from the cache, or from an identical call in flight
    cached: bool
    # seconds between submitting and the start of the work; 0 for a cached reply
    queued: float = 0.0
    # of work without a model; calls of a batch share it equally
    seconds: float = 0.0


# replies, and work to do before them, such as a commit
Done = SimpleQueue[ServiceReply | Callable[[], object]]
MakeCalls = Callable[[Sequence[Request]], None]


def find_reply(cache: CallCache, key: str, call: Call[Any]) -> Any | None:
    """Return the stored reply to a call, or None. Drop a stored value that is not a reply to this call."""
    value = cache.get(key)
    reply = None if value is None else _decode(call, value)
    if value is not None and reply is None:
        cache.drop(key)
    return reply


def _decode(call: Call[Any], value: Json) -> Any | None:
    try:
        return reply_from_json(call, value)
    except ValueError:
        return None


def _encode(call: Call[Any], reply: Any) -> Json:
    """Return a reply as JSON. Raise an error if it cannot be read again."""
    value = reply_json(reply)
    reply_from_json(call, value)
    return value


class InFlightCalls:
    """Cache look-ups and the calls in flight of one service. Replies can be finished in any thread.

    make: called in a thread of this class, makes calls that another process had locked but did not answer. None: calls
    cost nothing, so two processes can make the same one.
    """

    def __init__(
        self,
        done: Done,
        cache: CallCache,
        identity: Mapping[str, Json],
        make: MakeCalls | None = None,
    ) -> None:
        self._done, self._cache, self._make = done, cache, make
        self._identity = identity
        self._origin = Origin.of(identity)
        self._lock = threading.Lock()
        self._finished: list[
            tuple[Request, Any, float, float]
        ] = []  # neither committed nor delivered
        # by key; the first request makes the call
        self._waiting: dict[str, list[Request]] = {}
        self._keys: dict[int, str] = {}  # by ticket
        self._elsewhere: list[Request] = []  # made by another process
        self._poller: threading.Thread | None = None
        self._stopped = threading.Event()

    def begin(self, requests: Sequence[Request]) -> list[Request]:
        """Answer requests from the cache or join them to an identical call. Return the others, see `lock_calls`."""
        missing = []
        for request in requests:
            key = cache_key(self._identity, request.call)
            with self._lock:
                if key in self._waiting:
                    self._waiting[key].append(request)
                    continue
                try:
                    reply = find_reply(self._cache, key, request.call)
                except EngineError as error:  # a replay finds no reply
                    reply = error
                if reply is None:
                    self._waiting[key], self._keys[request.ticket] = [request], key
                    missing.append(request)
                    continue
            self._done.put(ServiceReply(request.ticket, reply, cached=True))
        return missing

    def lock_calls(self, requests: Sequence[Request]) -> list[Request]:
        """Lock and return requests that no other process makes. Answer the others from the cache, now or later.

        Lock many at once: each time costs a transaction.
        """
        own, unlocked = [], {self._keys[request.ticket]: request for request in requests}
        while unlocked:
            again = {}
            for key, state in self._cache.lock_calls(unlocked).items():
                request = unlocked[key]
                if state == "locked":
                    own.append(request)
                elif state == "elsewhere":
                    self._wait_for(request)
                elif (reply := find_reply(self._cache, key, request.call)) is not None:
                    self._deliver(request, reply, cached=True)
                else:
                    again[key] = request
            unlocked = again
        return own

    def finish(
        self, answered: Sequence[tuple[Request, Any]], started: float, seconds: float = 0.0
    ) -> None:
        """Queue replies, which the scheduler's thread commits and then delivers. Errors are not stored.

        It commits all replies that arrived meanwhile at once. So an engine's thread never waits for the disk.

        Args:
            started: start of the work, as `time.monotonic()`.
            seconds: see `ServiceReply`.
        """
        with self._lock:
            first = not self._finished
            self._finished += ((request, reply, started, seconds) for request, reply in answered)
        # no thread waits any more, but replies must be stored
        if self._stopped.is_set():
            self.commit()
        elif first:
            self._done.put(self.commit)

    def commit(self) -> None:
        """Store finished replies and deliver them."""
        with self._lock:
            finished, self._finished = self._finished, []
        keys = {request.ticket: self._keys[request.ticket] for request, *_ in finished}
        good = {
            keys[r.ticket]: (r.call, reply)
            for r, reply, *_ in finished
            if not isinstance(reply, BaseException)
        }
        changed = self._store(good)
        with suppress(KgqaError):
            self._cache.unlock(set(keys.values()) - good.keys())
        for request, reply, started, seconds in finished:
            value = changed.get(keys[request.ticket], reply)
            self._deliver(
                request, value, cached=False, queued=started - request.since, seconds=seconds
            )

    def _store(self, replies: Mapping[str, tuple[Call[Any], Any]]) -> dict[str, Any]:
        """Store replies. Return what replaces them: an earlier reply of another process, or the error of the disk."""
        try:
            values = [(key, _encode(call, reply)) for key, (call, reply) in replies.items()]
            earlier = self._cache.put(values, self._origin) if values else {}
        except KgqaError as error:
            return dict.fromkeys(replies, error)
        except (TypeError, ValueError, AttributeError) as error:
            # a user's component returned something else: only this call fails
            if len(replies) == 1:
                name = name_of(self._identity)
                return dict.fromkeys(
                    replies, EngineError(f"{name} returned a value that is no reply: {error}")
                )
            return {
                key: value
                for each in replies.items()
                for key, value in self._store(dict([each])).items()
            }
        decoded = {key: _decode(replies[key][0], value) for key, value in earlier.items()}
        return {key: reply for key, reply in decoded.items() if reply is not None}

    def _deliver(
        self, request: Request, reply: Any, *, cached: bool, queued: float = 0, seconds: float = 0
    ) -> None:
        """Send a reply to all requests that wait for it. Only the first one has paid for it."""
        with self._lock:
            waiting = self._waiting.pop(self._keys.pop(request.ticket))
        self._done.put(ServiceReply(request.ticket, reply, cached, queued, seconds))
        for other in waiting[1:]:
            self._done.put(ServiceReply(other.ticket, reply, cached=True))

    def stop(self) -> None:
        """Stop waiting for other processes, and unlock the calls that are not answered."""
        self._stopped.set()
        remove_wait(self._describe_wait)
        self.commit()
        with self._lock:
            keys = list(self._waiting)
        with suppress(KgqaError):
            self._cache.unlock(keys)

    def _wait_for(self, request: Request) -> None:
        with self._lock:
            self._elsewhere.append(request)
            if self._poller is None:
                _LOG.info("waiting for calls of another kgqa process")
                self._poller = threading.Thread(
                    target=self._poll, name="kgqa-call-locks", daemon=True
                )
                self._poller.start()
                add_wait(self._describe_wait)

    def _describe_wait(self) -> str:
        count = len(self._elsewhere)
        return f"another kgqa process is making {count:,} of the calls" if count else ""

    def _poll(self) -> None:
        """Deliver replies of other processes, and make calls that they did not answer, until the service stops."""
        while not self._stopped.wait(_POLL):
            with self._lock:
                requests = [each for each in self._elsewhere if each.ticket in self._keys]
                self._elsewhere = []
            try:
                own = self.lock_calls(requests) if requests else []
            except KgqaError as error:
                for request in requests:
                    if request.ticket in self._keys:
                        self._deliver(request, error, cached=False)
                continue
            if own and self._make is not None and not self._stopped.is_set():
                self._make(own)

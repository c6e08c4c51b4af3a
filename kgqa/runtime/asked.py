"""What is asked for at this moment: of identical calls one is made, by this process or by another on the same cache."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from kgqa.calls import Call
from kgqa.errors import KgqaError
from kgqa.runtime.cache import CallCache, Origin
from kgqa.runtime.codec import canonical, key_of, reply_from_json, reply_json
from kgqa.runtime.requests import Done, Request, ServiceReply
from kgqa.types import Json

_FIRST_LOOK, _LAST_LOOK = 0.05, 1.0  # seconds between two looks at what other processes are asking for
_TOLD_AFTER = 10.0  # seconds of waiting for them before a line says so
_LOG = logging.getLogger("kgqa.cache")
Make = Callable[[Sequence[Request]], None]


def kept_reply(cache: CallCache, key: str, call: Call[Any]) -> Any | None:
    """The reply to a call in the cache, None where there is none; what is no reply to it counts as damaged."""
    value = cache.get(key)
    if value is None:
        return None
    reply = _reply_or_none(call, value)
    if reply is None:
        cache.reject(key)
    return reply


def _reply_or_none(call: Call[Any], value: Json) -> Any | None:
    try:
        return reply_from_json(call, value)
    except ValueError:
        return None


class Asked:
    """Cache look-ups, and the calls in flight of one service. Replies may be finished in any thread.

    make: is given what has to be made after all, from a thread of its own, since the process that asked for it before
    ended or failed. None: calls that cost nothing; two processes may both make them.
    """

    def __init__(self, done: Done, cache: CallCache, identity: Mapping[str, Json], make: Make | None = None) -> None:
        self._done, self._cache, self._make = done, cache, make
        self._identity = canonical(identity)
        self._origin = Origin.of(identity)
        self._lock = threading.Lock()
        self._finished: list[tuple[Request, Any, float, float]] = []  # and neither committed nor handed on
        self._flight: dict[str, list[Request]] = {}
        self._keys: dict[int, str] = {}
        self._elsewhere: dict[str, Request] = {}  # being asked by another process
        self._watcher: threading.Thread | None = None
        self._stopped = threading.Event()

    def begin(self, requests: Sequence[Request]) -> list[Request]:
        """Answer from the cache or join an identical call; gives those that have to be made."""
        missing = []
        for request in requests:
            key = key_of(self._identity, request.call)
            with self._lock:
                if key in self._flight:
                    self._flight[key].append(request)
                    continue
                reply = kept_reply(self._cache, key, request.call)
                if reply is None:
                    self._flight[key], self._keys[request.ticket] = [request], key
                    missing.append(request)
                    continue
            self._done.put(ServiceReply(request.ticket, reply, cached=True))
        return missing if self._make is None else self._claimed(missing)

    def _claimed(self, requests: Sequence[Request]) -> list[Request]:
        """Those that nobody else is asking; the others are answered from the cache, now or later."""
        mine, open_ = [], {self._keys[request.ticket]: request for request in requests}
        while open_:
            again = {}
            for key, claimed in self._cache.claim(open_).items():
                request = open_[key]
                if claimed == "mine":
                    mine.append(request)
                elif claimed == "theirs":
                    self._await(key, request)
                elif not self._answered(key, request):
                    again[key] = request
            open_ = again
        return mine

    def _answered(self, key: str, request: Request) -> bool:
        reply = kept_reply(self._cache, key, request.call)
        if reply is not None:
            self._hand_on(request, reply, cached=True)
        return reply is not None

    def _hand_on(self, request: Request, reply: Any, *, cached: bool, queued: float = 0, seconds: float = 0) -> None:
        """To all who asked; only the first one's was paid."""
        with self._lock:
            waiting = self._flight.pop(self._keys.pop(request.ticket))
        self._done.put(ServiceReply(request.ticket, reply, cached, queued, seconds))
        for asker in waiting[1:]:
            self._done.put(ServiceReply(asker.ticket, reply, cached=True))

    def finish(self, answered: Sequence[tuple[Request, Any]], started: float, seconds: float = 0.0) -> None:
        """Have replies committed, then handed on: where another process was faster, its reply. Errors are not kept.

        Whoever waits for replies commits them, all that came meanwhile at once: a commit of one costs what one of ten
        does, and an engine's thread never waits for the disk.

        started: when work on them began. seconds: see `ServiceReply`.
        """
        with self._lock:
            first = not self._finished
            self._finished += ((request, reply, started, seconds) for request, reply in answered)
        if self._stopped.is_set():  # nobody waits any more, and what was paid for is kept all the same
            self.settle()
        elif first:
            self._done.put(self.settle)

    def settle(self) -> None:
        """Commit and hand on what is finished."""
        with self._lock:
            finished, self._finished = self._finished, []
        good = {self._keys[r.ticket]: (r.call, reply) for r, reply, *_ in finished if not _failed(reply)}
        standing = self._kept(good)
        with suppress(KgqaError):
            self._cache.give_back([self._keys[request.ticket] for request, reply, *_ in finished if _failed(reply)])
        for request, reply, started, seconds in finished:
            counts = standing.get(self._keys[request.ticket], reply)
            self._hand_on(request, counts, cached=False, queued=started - request.since, seconds=seconds)

    def _kept(self, good: Mapping[str, tuple[Call[Any], Any]]) -> dict[str, Any]:
        """What stands in place of our replies; errors, where they cannot be kept: a reply must not vanish."""
        try:
            return self._keep(good) if good else {}
        except KgqaError as error:
            return dict.fromkeys(good, error)
        except (TypeError, ValueError) as error:
            if len(good) == 1:
                return dict.fromkeys(good, error)
            singly: dict[str, Any] = {}
            for key in good:
                singly |= self._kept({key: good[key]})
            return singly

    def _keep(self, good: Mapping[str, tuple[Call[Any], Any]]) -> dict[str, Any]:
        """The replies that stand in place of ours."""
        texts = {key: reply_json(reply) for key, (_, reply) in good.items()}
        earlier = self._cache.put(texts.items(), self._origin)
        standing = {key: _reply_or_none(good[key][0], value) for key, value in earlier.items()}
        if nonsense := {key: texts[key] for key, reply in standing.items() if reply is None}:
            for key in nonsense:
                self._cache.reject(key)
            self._cache.put(nonsense.items(), self._origin)
        return {key: reply for key, reply in standing.items() if reply is not None}

    def stop(self) -> None:
        """Wait for no other process any more, and leave to others what is not answered yet."""
        self._stopped.set()
        self.settle()
        with self._lock:
            keys = list(self._flight)
        with suppress(KgqaError):
            self._cache.give_back(keys)

    def _await(self, key: str, request: Request) -> None:
        with self._lock:
            self._elsewhere[key] = request
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="kgqa-claims", daemon=True)
                self._watcher.start()

    def _watch(self) -> None:
        """Until nothing is asked elsewhere: take what is answered there, ask what is not."""
        pause, since, told = _FIRST_LOOK, time.monotonic(), False
        while not self._stopped.wait(pause):
            with self._lock:
                elsewhere = dict(self._elsewhere)
                if not elsewhere:
                    self._watcher = None
                    return
            ended: Set[str] = set()
            try:
                ended = elsewhere.keys() - self._cache.claimed_elsewhere(elsewhere)
                self._take_over([elsewhere[key] for key in elsewhere if key in ended])
            except KgqaError as error:
                self._fail(error)
            pause = _FIRST_LOOK if ended else min(1.5 * pause, _LAST_LOOK)
            if time.monotonic() - since > _TOLD_AFTER and not told and len(elsewhere) > len(ended):
                told = True
                wait = {"event": "wait", "cause": "replies that another kgqa process is asking for", "seconds": 30.0}
                _LOG.info(
                    "waiting for %d replies that another kgqa process is asking for",
                    len(elsewhere),
                    extra={"told": wait},
                )

    def _take_over(self, requests: Sequence[Request]) -> None:
        with self._lock:
            for request in requests:
                del self._elsewhere[self._keys[request.ticket]]
        mine = self._claimed(requests)
        if mine and self._make is not None and not self._stopped.is_set():
            self._make(mine)

    def _fail(self, error: KgqaError) -> None:
        with self._lock:
            requests, self._elsewhere = list(self._elsewhere.values()), {}
        for request in requests:
            self._hand_on(request, error, cached=False)


def _failed(reply: object) -> bool:
    return isinstance(reply, BaseException)

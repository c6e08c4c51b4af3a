"""An event loop in a thread of its own, to which other threads hand what is to be done there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from kgqa.errors import EngineDied

T = TypeVar("T")
Work = tuple[Coroutine[Any, Any, None], Callable[[BaseException], None]]


class Loop:
    """All calls share it, so a thousand waiting ones cost nothing. It begins with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._handed: list[Work] = []  # and not yet begun: waking the loop costs more than what it is woken for
        self._under_way: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, None], failed: Callable[[BaseException], None]) -> None:
        """Do the work in its turn. `failed` is told, in the loop's thread, how it ended if not well, until `close`.

        Raises:
            EngineDied: it is closed.
        """
        with self._lock:
            loop = self._open(work)
            self._handed.append((work, failed))
            if len(self._handed) == 1:
                loop.call_soon_threadsafe(self._take)

    def result(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work and wait for what comes of it. Raises EngineDied as `begin`, and what the work raises."""
        with self._lock:
            loop = self._open(work)
            done = asyncio.run_coroutine_threadsafe(self._track(work), loop)
        return done.result()

    def close(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Drop all work, then do `end`, if there ever was any."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            handed, self._handed = self._handed, []
        for work, _ in handed:
            work.close()
        if loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._hang_up(end), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def _open(self, work: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        if self._closed:
            work.close()
            raise EngineDied("the engine is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="openai", daemon=True)
            self._thread.start()
        return self._loop

    def _take(self) -> None:
        with self._lock:
            handed, self._handed = self._handed, []
        for work, failed in handed:
            task = asyncio.ensure_future(work)
            self._under_way.add(task)
            task.add_done_callback(partial(self._end, failed))

    def _end(self, failed: Callable[[BaseException], None], task: asyncio.Task[None]) -> None:
        """Whatever went wrong is told, so that nobody waits for ever."""
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._closed:
            failed(error)

    async def _track(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            return await work
        finally:
            self._under_way.discard(task)

    async def _hang_up(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        calls = tuple(self._under_way)  # not all tasks: those of the libraries end with ours, in their own order
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await end()

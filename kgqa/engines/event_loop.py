"""Run coroutines in an event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from kgqa.errors import EngineDied

T = TypeVar("T")


class EventLoopThread:
    """An event loop for all calls of an engine. Its thread starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine from any thread. Raise EngineDied after `close`."""
        with self._lock:
            if self._closed:
                work.close()
                raise EngineDied("the engine has been closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(self._track(work), self._loop)

    def close(
        self,
        cleanup: Callable[[], Coroutine[Any, Any, None]] = lambda: asyncio.sleep(0),
        timeout: float = 60.0,
    ) -> None:
        """Cancel all coroutines, run `cleanup`, and end the thread. Wait for it up to `timeout` seconds."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._stop(self._loop, cleanup), self._loop)
        self._thread.join(timeout)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    async def _track(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    async def _stop(
        self, loop: asyncio.AbstractEventLoop, cleanup: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        tasks = tuple(self._tasks)  # libraries end their own tasks
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            await cleanup()
        finally:
            loop.stop()


def run_in_thread(name: str, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own: the caller can be inside another one, as in a notebook."""
    loop = EventLoopThread(name)
    try:
        return loop.submit(work).result()
    finally:
        loop.close()

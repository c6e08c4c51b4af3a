"""Small engines whose replies and timing a test decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from queue import SimpleQueue
from typing import ClassVar

from kgqa.calls import Generate, ModelCall, ModelReply
from kgqa.types import Completion, Json, Message, Prompt, Usage

Deliver = Callable[[ModelReply | Exception], None]


def prompt(text: str) -> Prompt:
    return Prompt("test/prompt", (Message("user", text),))


def ask(text: str, role: str = "reader") -> Generate:
    return Generate(prompt(text), max_tokens=5, role=role)


def echo(call: ModelCall) -> Completion:
    return Completion(f"re: {call.prompt.messages[0].content}", usage=Usage(prompt_tokens=1, output_tokens=1))


class Batches:
    """A batch engine that remembers what it was asked, batch by batch."""

    streaming: ClassVar[bool] = False
    counts_freely: ClassVar[bool] = False

    def __init__(self, answer: Callable[[ModelCall], ModelReply] = echo, size: int = 4, name: str = "batches") -> None:
        self.batch_size = size
        self.asked: list[list[str]] = []
        self._answer, self._name = answer, name

    def identity(self) -> Mapping[str, Json]:
        return {"engine": self._name}

    def render(self, call: ModelCall) -> str:
        return call.prompt.messages[0].content

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        self.asked.append([self.render(call) for call in calls])
        return [self._answer(call) for call in calls]

    def close(self) -> None:
        """Nothing to free."""


class Slots:
    """A simulated server with so many slots, each call taking `seconds`; measures how full it was."""

    streaming: ClassVar[bool] = True
    counts_freely: ClassVar[bool] = False

    def __init__(self, slots: int, seconds: float, name: str = "slots") -> None:
        self.concurrency = slots
        self._seconds, self._name = seconds, name
        self._levels: list[tuple[float, int]] = []  # (time, calls running from then on)
        self._running: SimpleQueue[tuple[float, ModelCall, Deliver] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def identity(self) -> Mapping[str, Json]:
        return {"engine": self._name}

    def render(self, call: ModelCall) -> str:
        return call.prompt.messages[0].content

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        self._change(1)
        self._running.put((time.monotonic() + self._seconds, call, deliver))

    def occupancy(self, start: float, end: float) -> float:
        """Mean share of the slots in use between two shares of the whole time, e.g. 0.1 and 0.8."""
        first, last = self._levels[0][0], self._levels[-1][0]
        low, high = first + start * (last - first), first + end * (last - first)
        area = 0.0
        for (since, running), (until, _) in pairwise(self._levels):
            area += running * max(0.0, min(until, high) - max(since, low))
        return area / (self.concurrency * (high - low))

    def close(self) -> None:
        self._running.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._running.get()) is not None:  # equal service times: first in, first out
            due, call, deliver = item
            time.sleep(max(0.0, due - time.monotonic()))
            self._change(-1)
            deliver(echo(call))

    def _change(self, by: int) -> None:
        with self._lock:
            running = self._levels[-1][1] if self._levels else 0
            self._levels.append((time.monotonic(), running + by))

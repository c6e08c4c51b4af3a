"""Small engines whose replies and timing a test decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
    """A batch engine that records its calls, batch by batch."""

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
    """A simulated server with `slots`. Each call takes `seconds`."""

    streaming: ClassVar[bool] = True
    counts_freely: ClassVar[bool] = False

    def __init__(self, slots: int, seconds: float, name: str = "slots") -> None:
        self.max_concurrency = slots
        self._seconds, self._name = seconds, name
        self._running: SimpleQueue[tuple[float, ModelCall, Deliver] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def identity(self) -> Mapping[str, Json]:
        return {"engine": self._name}

    def render(self, call: ModelCall) -> str:
        return call.prompt.messages[0].content

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        self._running.put((time.monotonic() + self._seconds, call, deliver))

    def close(self) -> None:
        self._running.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._running.get()) is not None:  # equal service times: first in, first out
            due, call, deliver = item
            time.sleep(max(0.0, due - time.monotonic()))
            deliver(echo(call))

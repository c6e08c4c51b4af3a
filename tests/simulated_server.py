"""A server with continuous batching, simulated step by step in real time: as busy as a GPU, without one."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from queue import SimpleQueue
from typing import ClassVar

from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.types import Choice, Completion, Json, Usage

CHARACTERS = 4  # in a token
BLOCK = 64 * CHARACTERS  # in a block of the prefix cache
Deliver = Callable[[ModelReply | Exception], None]


@dataclass(frozen=True)
class Rates:
    """How long a step takes. The defaults: some times faster than an 8B model on one H100, hard on the runner."""

    step: float = 0.006  # seconds, whatever is in it: the weights are read once
    row: float = 0.00003  # more for each running call
    token: float = 0.00001  # more for each prompt token: 100,000 a second
    budget: int = 4096  # prompt tokens in one step at most


@dataclass(slots=True)
class _Running:
    call: ModelCall
    deliver: Deliver
    prompt: int  # tokens
    known: int  # of them
    missing: int  # prompt tokens still to be computed
    length: int  # of the reply, in tokens
    left: int  # of those, still to be written
    started: float = field(default_factory=time.monotonic)


def thoughts(call: ModelCall, length: int) -> str:
    """A reply of so many tokens."""
    return "thought " * length


class SimulatedServer:
    """Takes any number of calls, works on `slots` of them; a reply's length is a hash of its prompt.

    `write` gives the words of a reply; how long the reply takes depends on its length alone.

    As with a real server, steps go on while replies are on their way: a slot whose next call is not there yet when a
    step begins stays empty for that step.
    """

    streaming: ClassVar[bool] = True
    counts_freely: ClassVar[bool] = False

    def __init__(self, slots: int, rates: Rates, write: Callable[[ModelCall, int], str] = thoughts) -> None:
        self._write = write
        self.concurrency = 2 * slots  # as engine=vllm: some wait in the server
        self._slots, self._rates = slots, rates
        self._arrived: deque[tuple[ModelCall, Deliver]] = deque()
        self._wake = threading.Event()
        self._closed = False
        self._known: set[bytes] = set()
        self._finished: SimpleQueue[tuple[_Running, float] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._serve, self._hand_over)]
        for thread in self._threads:
            thread.start()

    def identity(self) -> Mapping[str, Json]:
        return {"engine": "simulated"}

    def render(self, call: ModelCall) -> str:
        return call.prompt.messages[0].content

    def count_tokens(self, text: str) -> int:
        return len(text) // CHARACTERS

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        self._arrived.append((call, deliver))
        self._wake.set()

    def forget(self) -> None:
        """Empty the prefix cache."""
        self._known.clear()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        running: list[_Running] = []
        clock = time.monotonic()
        while not self._closed:
            while self._arrived and len(running) < self._slots:
                running.append(self._begin(*self._arrived.popleft()))
            if not running:
                self._wake.wait()
                self._wake.clear()
                clock = time.monotonic()
                continue
            computed = 0
            for each in running:
                share = min(each.missing, self._rates.budget - computed)
                each.missing -= share
                computed += share
            # the clock, not the sleep, adds up: what a busy machine delays does not slow the server down
            clock += self._rates.step + self._rates.row * len(running) + self._rates.token * computed
            time.sleep(max(0.0, clock - time.monotonic()))
            for each in running:
                each.left -= not each.missing
                if each.left == 0:
                    self._finished.put((each, clock))
            running = [each for each in running if each.left]
        self._finished.put(None)

    def _begin(self, call: ModelCall, deliver: Deliver) -> _Running:
        text = self.render(call)
        digest, known = b"", 0
        for end in range(BLOCK, len(text) + 1, BLOCK):
            digest = blake2b(text[end - BLOCK : end].encode(), key=digest, digest_size=16).digest()
            if known == end - BLOCK and digest in self._known:
                known = end
            self._known.add(digest)
        prompt = self.count_tokens(text)
        known = min(known // CHARACTERS, prompt - 1)
        tail = blake2b(text[-200:].encode(), digest_size=1).digest()[0]
        length = 1 + tail * (call.max_tokens - 1) // 255 if isinstance(call, Generate) else 1
        return _Running(call, deliver, prompt, known, prompt - known, length, length)

    def _hand_over(self) -> None:
        while (item := self._finished.get()) is not None:
            each, end = item
            usage = Usage(each.prompt, each.known, each.length, max(0.0, end - each.started))
            if isinstance(each.call, Choose):
                count = len(each.call.options)
                each.deliver(Choice((-math.log(count),) * count, None, usage))
            else:
                each.deliver(Completion(self._write(each.call, each.length), usage=usage))

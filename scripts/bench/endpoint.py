"""Simulate an OpenAI-compatible server, to measure its clients: `python -m scripts.bench.endpoint`.

`slots` calls are answered in parallel, further ones wait, first in, first out. A call takes `prefill` seconds and
`step` for each token of its reply, each `grow` longer for every other parallel call, and `choice` more where
probabilities are requested. All are 0 by default, so that only the client is measured. `/reset?slots=32&step=0.008`
changes them and clears the statistics. `/stats` returns the statistics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from scripts.bench.replies import choice, reply

MODEL = "simulated"
END_OF_HEAD = b"\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Service:
    """Times in seconds."""

    slots: int = 32
    prefill: float = 0.0
    step: float = 0.0
    grow: float = 0.0
    choice: float = 0.0

    def seconds(self, asked: Asked, busy: int) -> float:
        """Of a call begun as one of so many."""
        writing = self.step * asked.tokens * (1 + self.grow * (busy - 1))
        return self.prefill + writing + (self.choice if asked.chooses else 0.0)

    def changed(self, given: Mapping[str, str]) -> Service:
        kinds = {name: type(value) for name, value in asdict(self).items()}
        return Service(**{**asdict(self), **{name: kinds[name](value) for name, value in given.items()}})


class Asked(NamedTuple):
    """A call as the service knows it. `tokens`: of its reply."""

    tokens: int
    chooses: bool


@dataclass
class Slots:
    """Who is being answered, who waits, and what was measured since the last reset."""

    service: Service
    busy: int = 0
    waiting: deque[tuple[asyncio.Transport, bytes, Asked]] = field(default_factory=deque)
    answered: int = 0
    peak: int = 0  # calls answered at once
    full: float = 0.0  # seconds that all calls would take in a full batch
    occupied: float = 0.0  # seconds of all slots together
    first: float | None = None  # when the first call came
    last: float = 0.0  # when the last reply left

    def take(self, transport: asyncio.Transport, body: bytes, asked: Asked) -> None:
        if self.first is None:
            self.first = time.monotonic()
        if self.busy < self.service.slots:
            self._begin(transport, body, asked)
        else:
            self.waiting.append((transport, body, asked))

    def stats(self) -> dict[str, float]:
        """`efficiency`: the seconds that the calls would take in full batches, to those from the first to the last."""
        span = max(0.0, self.last - (self.first or 0.0))
        told = {"answered": self.answered, "span": span, "peak": self.peak, "slots": self.service.slots}
        whole = self.service.slots * span
        return {**told, "efficiency": self.full / whole, "occupied": self.occupied / whole} if whole else told

    def _begin(self, transport: asyncio.Transport, body: bytes, asked: Asked) -> None:
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        seconds = self.service.seconds(asked, self.busy)
        self.full += self.service.seconds(asked, self.service.slots)
        self.occupied += seconds
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._end, transport, body)
        else:
            self._end(transport, body)

    def _end(self, transport: asyncio.Transport, body: bytes) -> None:
        self.busy -= 1
        self.answered += 1
        self.last = time.monotonic()
        if not transport.is_closing():
            transport.write(body)
        while self.waiting and self.busy < self.service.slots:
            self._begin(*self.waiting.popleft())


class Conversation(asyncio.Protocol):
    """One connection, requests one after another."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._came = desk, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (end := self._came.find(END_OF_HEAD)) >= 0:
            head = bytes(self._came[:end])
            told = LENGTH.search(head)
            whole = end + len(END_OF_HEAD) + (int(told[1]) if told else 0)
            if len(self._came) < whole:
                return
            body = bytes(self._came[end + len(END_OF_HEAD) : whole])
            del self._came[:whole]
            self._desk.answer(self._transport, head.split(b" ", 2)[1].decode(), body)


class Desk:
    """What is asked of which path."""

    def __init__(self, service: Service) -> None:
        self.slots = Slots(service)

    def answer(self, transport: asyncio.Transport, target: str, body: bytes) -> None:
        path, query = urlsplit(target).path, dict(parse_qsl(urlsplit(target).query))
        if path.endswith("/completions"):
            answer, asked = completion(json.loads(body), chat="/chat/" in path)
            self.slots.take(transport, response(answer), asked)
        elif path.endswith("/models"):
            listed = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "race"}]}
            transport.write(response(listed))
        elif path.endswith("/stats"):
            transport.write(response(self.slots.stats()))
        elif path.endswith("/reset"):
            self.slots = Slots(self.slots.service.changed(query))
            transport.write(response(asdict(self.slots.service)))
        else:
            transport.write(response({"error": {"message": "no such path"}}, "404 Not Found"))


def completion(request: Mapping[str, Any], *, chat: bool) -> tuple[dict[str, Any], Asked]:
    """The answer to a request, and what it takes."""
    text = "\n".join(turn["content"] for turn in request["messages"]) if chat else request["prompt"]
    listed = choice(text) if request.get("logprobs") else None
    words = next(iter(listed), "") if listed else reply(text, request.get("max_tokens") or 100)
    stops = request.get("stop") or ()
    for stop in (stops,) if isinstance(stops, str) else stops:
        words = words.partition(stop)[0]
    tokens = 1 if listed else len(words) // 4 + 1
    said = {"message": {"role": "assistant", "content": words}} if chat else {"text": words}
    used = {"prompt_tokens": len(text) // 4, "completion_tokens": tokens, "total_tokens": len(text) // 4 + tokens}
    told = {"index": 0, "finish_reason": "stop", "logprobs": _list(listed, chat=chat) if listed else None, **said}
    answer = {"id": "1", "object": "completion", "created": 0, "model": MODEL, "choices": [told], "usage": used}
    return answer, Asked(tokens, listed is not None)


def _list(listed: Mapping[str, float], *, chat: bool) -> dict[str, Any]:
    """Of the first token, as OpenAI writes it in chats and in completions."""
    likeliest, logprob = next(iter(listed.items()))
    if not chat:
        return {"tokens": [likeliest], "token_logprobs": [logprob], "top_logprobs": [listed], "text_offset": [0]}
    entries = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in listed.items()]
    return {"content": [{"token": likeliest, "logprob": logprob, "bytes": None, "top_logprobs": entries}]}


def response(answer: Mapping[str, Any], status: str = "200 OK") -> bytes:
    body = json.dumps(answer).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def serve(port: int, service: Service) -> None:
    """For ever. A line with the port says that it listens."""
    desk = Desk(service)
    server = await asyncio.get_running_loop().create_server(lambda: Conversation(desk), "127.0.0.1", port, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0: a free one, which the first line of output tells")
    for name, value in asdict(Service()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = vars(parser.parse_args())
    asyncio.run(serve(given.pop("port"), Service(**given)))


if __name__ == "__main__":
    main()

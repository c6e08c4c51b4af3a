"""An OpenAI-compatible endpoint that costs little: replies are hashes of the question, and come after a simulated time.

    python -m scripts.race.endpoint --port 8124 --slots 32 --step 0.008

First in, first out: of the calls that came, `slots` are being answered. One takes `prefill` seconds and `step` for each
token of the reply; both are 0 where nothing is given, so that what is measured is the client. The n-th thought about a
question is the same words in every run, and after two to four thoughts comes an answer: all runners of IRCoT make the
same calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

MODEL = "simulated"
END_OF_HEAD = b"\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
QUESTION = "\nQ: "


@dataclass
class Slots:
    """Who is being answered and who waits. `answered`: replies so far."""

    slots: int
    prefill: float
    step: float
    busy: int = 0
    answered: int = 0
    waiting: deque[tuple[asyncio.Transport, bytes, float]] = field(default_factory=deque)

    def take(self, transport: asyncio.Transport, reply: bytes, tokens: int) -> None:
        seconds = self.prefill + self.step * tokens
        if not seconds:
            self._send(transport, reply)
        elif self.busy < self.slots:
            self._begin(transport, reply, seconds)
        else:
            self.waiting.append((transport, reply, seconds))

    def _begin(self, transport: asyncio.Transport, reply: bytes, seconds: float) -> None:
        self.busy += 1
        asyncio.get_running_loop().call_later(seconds, self._end, transport, reply)

    def _end(self, transport: asyncio.Transport, reply: bytes) -> None:
        self.busy -= 1
        self._send(transport, reply)
        while self.waiting and self.busy < self.slots:
            self._begin(*self.waiting.popleft())

    def _send(self, transport: asyncio.Transport, reply: bytes) -> None:
        self.answered += 1
        if not transport.is_closing():
            transport.write(reply)


class Conversation(asyncio.Protocol):
    """One connection, requests one after another."""

    def __init__(self, slots: Slots) -> None:
        self._slots, self._came = slots, bytearray()

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
            self._answer(head.split(b" ", 2)[1].decode(), body)

    def _answer(self, path: str, body: bytes) -> None:
        if path.endswith("/models"):
            listed = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "race"}]}
            self._transport.write(response(listed))
        elif path.endswith("/answered"):
            self._transport.write(response({"answered": self._slots.answered}))
        elif path.endswith("/completions"):
            answer, tokens = completion(json.loads(body), chat="/chat/" in path)
            self._slots.take(self._transport, response(answer), tokens)
        else:
            self._transport.write(response({"error": {"message": "no such path"}}, "404 Not Found"))


def completion(asked: dict[str, Any], *, chat: bool) -> tuple[dict[str, Any], int]:
    """The answer to a request, and the tokens of its reply."""
    text = "\n".join(turn["content"] for turn in asked["messages"]) if chat else asked["prompt"]
    words = reply(text)
    for stop in asked.get("stop") or ():
        words = words.partition(stop)[0]
    tokens = len(words) // 4 + 1
    said = {"message": {"role": "assistant", "content": words}} if chat else {"text": words}
    used = {"prompt_tokens": len(text) // 4, "completion_tokens": tokens, "total_tokens": len(text) // 4 + tokens}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, **said}
    return {"id": "1", "object": "completion", "created": 0, "model": MODEL, "choices": [choice], "usage": used}, tokens


def reply(prompt: str) -> str:
    """The next thought about the prompt's last question, or the answer where thoughts are enough."""
    _, _, asked = prompt.rpartition(QUESTION)
    question, _, begun = asked.partition("\n")
    words: list[str] = re.findall(r"\w{3,}", question) or ["nothing"]
    thought, thoughts = begun.count("Thought"), 1 + _hash(question) % 3
    if thought > thoughts:
        return words[_hash(question, -1) % len(words)]
    if thought == thoughts:
        return f"So the answer is: {words[_hash(question, thought) % len(words)]}."
    said = " ".join(words[_hash(question, thought, place) % len(words)] for place in range(8))
    return f"Thought{thought} about {said}."


def _hash(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


def response(answer: dict[str, Any], status: str = "200 OK") -> bytes:
    body = json.dumps(answer).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def serve(port: int, slots: Slots) -> None:
    """For ever. A line with the port says that it listens."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Conversation(slots), "127.0.0.1", port, backlog=2048
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0: a free one, which the first line of output tells")
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--prefill", type=float, default=0.0, help="seconds")
    parser.add_argument("--step", type=float, default=0.0, help="seconds for each token")
    given = parser.parse_args()
    asyncio.run(serve(given.port, Slots(given.slots, given.prefill, given.step)))


if __name__ == "__main__":
    main()

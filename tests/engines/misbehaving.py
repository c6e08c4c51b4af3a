"""A real HTTP server on a loopback port that speaks OpenAI's protocol and misbehaves when it is told to."""

from __future__ import annotations

import json
import math
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
# log-probabilities of one token, at most
LISTED = 20
# what must never be seen again
SECRET = "sk-Tr0ub4dor-and-three"


class Conversation(BaseHTTPRequestHandler):
    """One connection. `server.boss` is the Misbehaving behind it."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        boss = self.server.boss
        boss.listed += 1
        self.answer(boss.models_status, {"object": "list", "data": boss.models})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.boss.serve(self, body)

    def answer(self, status: int, value: Any, **headers: str) -> None:
        self.write(status, json.dumps(value).encode(), None, **headers)

    def write(
        self, status: int, content: bytes, promised: int | None = None, **headers: str
    ) -> None:
        """`promised`: the length announced, where it is not the true one."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if promised is None else promised))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """The terminal belongs to the tests."""


Fault = Callable[[Conversation, Body], None]


class Misbehaving:
    """Answers every prompt with "re: " and its last words, after the faults that are in the queue.

    `answered` counts the replies by prompt, `asked` holds every request with the time it came.
    """

    def __init__(self, *faults: Fault, always: Fault | None = None) -> None:
        self.faults, self.always = deque(faults), always
        self.models: list[Body] = [
            {"id": name, "owned_by": "tests"} for name in ("gpt-4o-mini-2024-07-18", "other")
        ]
        self.models_status, self.listed = 200, 0
        self.asked: list[tuple[float, Body]] = []
        self.answered: Counter[str] = Counter()
        self.keys: set[str | None] = set()
        self.port = 0
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """On the port it had before, if it had one."""
        ThreadingHTTPServer.allow_reuse_address = True
        server: Any = ThreadingHTTPServer(("127.0.0.1", self.port), Conversation)
        # clients that hang up are expected
        server.handle_error = lambda *_: None
        server.daemon_threads = True
        server.boss = self
        self._server, self.port = server, server.server_address[1]
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def stop(self) -> None:
        """Closes the port; connections that are open are answered no more."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def serve(self, conversation: Conversation, body: Body) -> None:
        with self._lock:
            self.asked.append((time.monotonic(), body))
            self.keys.add(conversation.headers.get("Authorization"))
            is_closed = self._server is None
            fault = self.faults.popleft() if self.faults and not is_closed else self.always
        if is_closed:
            reset(conversation, body)
        elif fault is not None:
            fault(conversation, body)
        else:
            self.reply(conversation, body)

    def reply(self, conversation: Conversation, body: Body) -> None:
        with self._lock:
            self.answered[prompt(body)] += 1
        conversation.answer(200, reply(body))


Serving = Callable[..., Misbehaving]


def prompt(body: Body) -> str:
    return str(body["messages"][-1]["content"] if "messages" in body else body["prompt"])


def reply(body: Body, text: str | None = None) -> Body:
    """A good answer. With log-probabilities: A to T are likely in this order, U and later are not listed."""
    words = prompt(body).split()
    content = text or f"re: {' '.join(words[-4:])}"
    choice: Body = {"index": 0, "finish_reason": "stop", "text": content}
    if "messages" in body:
        choice["message"] = {"role": "assistant", "content": choice.pop("text")}
    if body.get("top_logprobs"):
        count = min(body["top_logprobs"], LISTED)
        listed = [
            {"token": chr(ord("A") + place), "logprob": math.log(0.5) * (place + 1)}
            for place in range(count)
        ]
        choice["logprobs"] = {
            "content": [{"token": "A", "logprob": math.log(0.5), "top_logprobs": listed}]
        }
    usage = {
        "prompt_tokens": len(words),
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    return {"model": body["model"], "choices": [choice], "usage": usage}


def refuse(status: int, message: str = "no", retry_after: str | None = None, **error: Any) -> Fault:
    headers = {} if retry_after is None else {"Retry_After": retry_after}
    value = {"error": {"message": message, **error}}
    return lambda conversation, body: conversation.answer(status, value, **headers)


def answer(message: Body, finish: str = "stop", **usage: Any) -> Fault:
    """A chat reply as it stands, and what the server says of tokens beside those of the prompt."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    counts = {"prompt_tokens": 10, "completion_tokens": 25, **usage}
    return lambda conversation, body: conversation.answer(
        200, {"choices": [choice], "usage": counts}
    )


def say(text: str) -> Fault:
    return lambda conversation, body: conversation.answer(200, reply(body, text))


def raw(content: bytes, promised: int | None = None, status: int = 200) -> Fault:
    """Bytes that need not be JSON; fewer than promised end the stream half-way."""

    def fault(conversation: Conversation, body: Body) -> None:
        conversation.write(status, content, promised)
        conversation.close_connection = True

    return fault


def slow(seconds: float) -> Fault:
    def fault(conversation: Conversation, body: Body) -> None:
        time.sleep(seconds)
        conversation.close_connection = True

    return fault


def late(seconds: float) -> Fault:
    """A good answer, in its own time."""

    def fault(conversation: Conversation, body: Body) -> None:
        time.sleep(seconds)
        conversation.server.boss.reply(conversation, body)

    return fault


def reset(conversation: Conversation, body: Body) -> None:
    """The connection breaks instead of being closed."""
    conversation.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conversation.connection.shutdown(socket.SHUT_RDWR)
    conversation.close_connection = True


def without_logprobs(conversation: Conversation, body: Body) -> None:
    conversation.answer(200, reply({**body, "top_logprobs": 0}, "I take C."))


def capped(conversation: Conversation, body: Body) -> None:
    """Refuses a list longer than it gives, as OpenAI does."""
    if body.get("top_logprobs", 0) > LISTED:
        message = f"Invalid value for 'top_logprobs': must be less than or equal to {LISTED}."
        refuse(400, message, param="top_logprobs")(conversation, body)
    else:
        conversation.answer(200, reply(body))


def without(key: str, message: str | None = None) -> Fault:
    """Refuses requests that have this key."""

    def fault(conversation: Conversation, body: Body) -> None:
        if key in body:
            refuse(400, message or f"Unsupported parameter: '{key}'.", param=key)(
                conversation, body
            )
        else:
            conversation.answer(200, reply(body))

    return fault

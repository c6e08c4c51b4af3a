"""A server that speaks OpenAI's protocol and misbehaves as it is told: `FAULTS` is the table of what it can do.

    with FaultyServer("truncated", "first") as server:
        kgqa run engine=openai engine.base_url={server.url} engine.served_model=faulty …

The good reply to a prompt is a function of the prompt alone, so that what a client reads after a fault can be compared
with what it would have read without. `when`: never, always, first (the first time that a request comes), every:N (each
N-th request) or after:N (all but the first N).
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from tests.fault_behaviours import Exchange
from tests.faults import FAULTS, Fault

Body = dict[str, Any]
MODEL = "faulty"
LETTERS = "ABCDEFGHIJKLMNOPQRST"  # the options that its lists of log-probabilities hold


class FaultyServer:
    """On a free loopback port, in threads of this process. Counters are read while it runs.

    `asked`: requests by their bytes; `answered`: the good ones among the answers; `faulted`: the others; `keys`: every
    Authorization header that came. `fault` and `when` may be changed at any time.
    """

    def __init__(self, fault: str = "500", when: str = "never", port: int = 0) -> None:
        self.fault, self.when = fault, when
        self.asked: Counter[bytes] = Counter()
        self.answered: Counter[bytes] = Counter()
        self.faulted = 0
        self.keys: set[str] = set()
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._server = _Listening(("127.0.0.1", port), _Conversation)
        self._server.faulty = self
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> FaultyServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def due(self, request: bytes) -> Fault | None:
        """The fault that this request gets, None for a good answer; counted either way."""
        with self._lock:
            self.asked[request] += 1
            kind, _, number = self.when.partition(":")
            place = self.asked.total()
            is_due = {
                "never": False,
                "always": True,
                "first": self.asked[request] == 1,
                "every": place % int(number or 1) == 0,
                "after": place > int(number or 0),
            }[kind]
            self.faulted += is_due
            self.answered[request] += not is_due
        return FAULTS[self.fault] if is_due else None


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    faulty: FaultyServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up in the middle of a fault are expected."""


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listening

    def do_GET(self) -> None:
        content = json.dumps({"object": "list", "data": [{"id": MODEL, "owned_by": "attack"}]}).encode()
        self._exchange({}, {}).send(200, content)

    def do_POST(self) -> None:
        request = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = json.loads(request)
        if asked.get("echo"):
            error = {"message": "echo is not supported", "param": "echo"}
            self._exchange(asked, {}).send(400, json.dumps({"error": error}).encode())
            return
        self.server.faulty.keys.add(self.headers.get("Authorization", ""))
        exchange = self._exchange(asked, reply(asked, chat=self.path.endswith("/chat/completions")))
        fault = self.server.faulty.due(request)
        if fault is None:
            exchange.send(200, json.dumps(exchange.good).encode())
        else:
            fault.behave(exchange)

    def _exchange(self, asked: Body, good: Body) -> Exchange:
        key = self.headers.get("Authorization", "").rpartition(" ")[2]
        return Exchange(self, asked, good, key, self.server.faulty.closing)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """The terminal belongs to the attack."""


def reply(asked: Body, *, chat: bool) -> Body:
    """The good answer: some words of the prompt's end, and the letters by a hash of the prompt."""
    prompt = "\n".join(str(message["content"]) for message in asked["messages"]) if chat else str(asked["prompt"])
    drawn = sha256(prompt.encode("utf-8", "surrogatepass")).digest()
    words = [word for word in prompt.split() if word.isalpha()][-60:] or ["nothing"]
    text = " ".join(words[draw % len(words)] for draw in drawn[:3])
    choice: Body = {"index": 0, "finish_reason": "stop"}
    choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    if asked.get("logprobs"):
        choice["logprobs"] = _lists(drawn, chat=chat)
    counts = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(text.split())}
    usage = {**counts, "total_tokens": sum(counts.values())}
    return {"id": "faulty", "object": "reply", "model": asked.get("model"), "choices": [choice], "usage": usage}


def _lists(drawn: Iterable[int], *, chat: bool) -> Body:
    weights = {letter: 1 + weight for letter, weight in zip(LETTERS, drawn, strict=False)}
    logprobs = {letter: math.log(weight / sum(weights.values())) for letter, weight in weights.items()}
    if not chat:
        return {"tokens": ["A"], "token_logprobs": [logprobs["A"]], "top_logprobs": [logprobs]}
    listed = [{"token": letter, "logprob": logprob} for letter, logprob in logprobs.items()]
    return {"content": [{**listed[0], "top_logprobs": listed}]}

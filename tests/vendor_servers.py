"""Simulated servers of Anthropic and Google, in the form that their clients document."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from kgqa.types import Json
from tests.http_server import serve

# a status, and a JSON value or text
Answer = tuple[int, Any]


class ClaudeServer:
    """is_open: whether batches end. requests: the bodies of messages. paid: how often each request was in a batch."""

    def __init__(self) -> None:
        self.is_open, self.submitted = threading.Event(), threading.Event()
        self.requests: list[Json] = []
        self.paid: Counter[str] = Counter()
        self.batches: dict[str, Json] = {}
        self.errors: list[Answer] = []
        self.content: list[Json] = []

    def answer(self, method: str, path: str, body: Json) -> Answer:
        match path.strip("/").split("/")[1:], method:
            case ["messages"], "POST":
                self.requests.append(body)
                return self.errors.pop() if self.errors else (200, self.message(body))
            case ["messages", "batches"], "POST":
                name = f"msgbatch_{len(self.batches)}"
                self.batches[name] = body["requests"]
                self.paid.update(each["custom_id"] for each in body["requests"])
                self.submitted.set()
                return 200, self.describe(name)
            case ["messages", "batches"], _:
                listed = [self.describe(name) for name in reversed(self.batches)]
                return 200, {"data": listed, "has_more": False, "first_id": None, "last_id": None}
            case ["messages", "batches", name, "results"], _:
                replies = [
                    (each["custom_id"], self.message(each["params"]))
                    for each in reversed(self.batches[name])
                ]
                results = [
                    {"custom_id": each, "result": {"type": "succeeded", "message": reply}}
                    for each, reply in replies
                ]
                return 200, "\n".join(map(json.dumps, results))
            case ["messages", "batches", name], _:
                return 200, self.describe(name)
        return 404, {"type": "error", "error": {"type": "not_found_error", "message": path}}

    def message(self, body: Json) -> Json:
        text = f"re: {body['messages'][-1]['content']}"
        usage = {"input_tokens": 900, "cache_read_input_tokens": 100, "output_tokens": 500}
        return {
            "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "end_turn",
            "content": self.content or [{"type": "text", "text": text}], "stop_sequence": None, "usage": usage,
        }  # fmt: skip

    def describe(self, name: str) -> Json:
        status = "ended" if self.is_open.is_set() else "in_progress"
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        times = {"created_at": "2100-01-01T00:00:00Z", "expires_at": "2100-01-02T00:00:00Z"}
        results = f"{self.address}/v1/messages/batches/{name}/results"
        return {
            "id": name, "type": "message_batch", "processing_status": status, "request_counts": counts, **times,
            "results_url": results if self.is_open.is_set() else None,
        }  # fmt: skip

    address = ""


class GeminiServer:
    """requests: paths and bodies."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Json]] = []
        self.errors: list[Answer] = []
        self.candidate: Json = {"content": {"parts": [{"text": "Ann"}]}, "finishReason": "STOP"}

    def answer(self, method: str, path: str, body: Json) -> Answer:
        self.requests.append((path, body))
        if self.errors:
            return self.errors.pop()
        usage = {
            "promptTokenCount": 9,
            "candidatesTokenCount": 2,
            "thoughtsTokenCount": 3,
            "totalTokenCount": 14,
        }
        return 200, {
            "candidates": [self.candidate],
            "usageMetadata": usage,
            "modelVersion": "gemini",
        }

    address = ""


@contextmanager
def serve_vendor(server: ClaudeServer | GeminiServer) -> Iterator[str]:
    """Yield the address of a vendor."""
    respond: Callable[[str, str, Json], Answer] = server.answer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, value = respond(
                self.command, self.path.partition("?")[0], json.loads(content or b"null")
            )
            text = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815 - a name of the standard library

    with serve(Handler) as address:
        server.address = address
        yield address

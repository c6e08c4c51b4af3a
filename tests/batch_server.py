"""A simulated Batch API in the form that OpenAI documents: files, batches, and results that are not in order."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from kgqa.types import Json
from tests.http_server import serve

USAGE = {"prompt_tokens": 1000, "completion_tokens": 500}


class BatchServer:
    """is_open: whether batches end. paid: how often each request was in a batch. faults: statuses of requests.

    failures: messages of the next batches, which the server does not start. rejected: the key that faults name.
    unreadable: the number of next replies without content.
    """

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.submitted = threading.Event()
        self.paid: Counter[str] = Counter()
        self.files: dict[str, str] = {}
        self.batches: dict[str, dict[str, Json]] = {}
        self.faults: list[int] = []
        self.failures: list[str] = []
        self.rejected = "response_format"
        self.unreadable = 0
        self.direct = 0

    def submit(self, body: dict[str, Json]) -> dict[str, Json]:
        name = f"batch_{len(self.batches)}"
        requests = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        self.paid.update(each["custom_id"] for each in requests)
        rejection = {"message": f"{self.rejected} is not supported", "param": self.rejected}
        rows, errors = list[str](), list[str]()
        for each in reversed(requests):
            status = self.faults.pop() if self.faults else 200
            is_chat = "messages" in each["body"]
            text: str | None = (
                "re: "
                + (each["body"]["messages"][-1]["content"] if is_chat else each["body"]["prompt"])[
                    -20:
                ]
            )
            if self.unreadable:
                text, self.unreadable = None, self.unreadable - 1
            choice = {
                **({"message": {"content": text}} if is_chat else {"text": text}),
                "finish_reason": "stop",
            }
            reply = {"model": each["body"]["model"], "choices": [choice], "usage": USAGE}
            content = reply if status == 200 else {"error": rejection}
            row = {
                "custom_id": each["custom_id"],
                "response": {"status_code": status, "body": content},
                "error": None,
            }
            (rows if status == 200 else errors).append(json.dumps(row))
        self.files |= {f"{name}_out": "\n".join(rows), f"{name}_err": "\n".join(errors)}
        self.batches[name] = {"id": name, "metadata": body.get("metadata"), "status": "in_progress"}
        if self.failures:
            errors_of_batch = {"data": [{"message": self.failures.pop()}]}
            self.batches[name] |= {"status": "failed", "errors": errors_of_batch}
        self.submitted.set()
        return self.batches[name]

    def show_page(self, after: str) -> dict[str, Json]:
        """Return the next 100 batches, the newest first. after: the last of those before."""
        newest = [*reversed(self.batches)]
        start = newest.index(after) + 1 if after else 0
        page = newest[start : start + 100]
        has_more = start + 100 < len(newest)
        return {"data": [self.batches[name] for name in page], "has_more": has_more}

    def describe(self, name: str) -> dict[str, Json]:
        is_failed = self.batches[name]["status"] == "failed"
        if is_failed or not self.is_open.is_set():
            return self.batches[name]
        files = {
            "output_file_id": f"{name}_out",
            "error_file_id": f"{name}_err" if self.files[f"{name}_err"] else None,
        }
        return {**self.batches[name], "status": "completed", **files}

    def upload(self, form: bytes) -> dict[str, Json]:
        name = f"file_{len(self.files)}"
        parts = form.split(b"\r\n\r\n")
        self.files[name] = parts[-1].rpartition(b"\r\n--")[0].decode()
        return {"id": name}


@contextmanager
def serve_batches() -> Iterator[tuple[str, BatchServer]]:
    """Yield the address of a server with its state."""
    server = BatchServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].removeprefix("/v1")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content: Any
            match path.strip("/").split("/"), self.command:
                case ["models"], _:
                    content = {"data": [{"id": "gpt-4o-mini-2024-07-18"}]}
                case ["files"], _:
                    content = server.upload(body)
                case ["files", name, "content"], _:
                    content = server.files[name]
                case ["batches"], "POST":
                    content = server.submit(json.loads(body))
                case ["batches"], _:
                    content = server.show_page(self.path.partition("&after=")[2])
                case ["batches", name], _:
                    content = server.describe(name)
                case _:
                    server.direct += 1
                    content = {"error": {"message": "this server has batches only"}}
            text = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815 - a name of the standard library

    with serve(Handler) as address:
        yield f"{address}/v1", server

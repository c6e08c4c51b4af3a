"""What an answer can be made of: `Exchange` and the ways to answer it that are not right."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

Body = dict[str, Any]


class Exchange(NamedTuple):
    """One request and how to answer it. `good`: the right answer; `key`: what the client sent; `over`: stop waiting."""

    at: BaseHTTPRequestHandler
    asked: Body
    good: Body
    key: str
    over: threading.Event

    def send(self, status: int, content: bytes, excess: int = 0, **headers: str) -> None:
        """`excess`: by how much the announced length differs from the true one."""
        length = len(content) + excess
        self.begin(status, Content_Length=str(length), **headers)
        self.at.wfile.write(content)
        if length != len(content):
            self.at.close_connection = True

    def begin(self, status: int, **headers: str) -> None:
        self.at.send_response_only(status)
        headers = {"Date": self.at.date_time_string()} | headers
        for name, value in ({"Content_Type": "application/json"} | headers).items():
            self.at.send_header(name.replace("_", "-"), value)
        self.at.end_headers()

    def raw(self, content: bytes) -> None:
        """No HTTP at all, or the rest of it; the connection ends with it."""
        self.at.wfile.write(content)
        self.at.close_connection = True

    def reset(self) -> None:
        self.at.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.at.connection.shutdown(socket.SHUT_RDWR)
        self.at.close_connection = True

    @property
    def chat(self) -> bool:
        return "messages" in self.asked


Behave = Callable[[Exchange], None]


def status(code: int, message: str = "no", **headers: str) -> Behave:
    content = json.dumps({"error": {"message": message}}).encode()
    return lambda exchange: exchange.send(code, content, 0, **headers)


def page(code: int, content: bytes, kind: str = "text/html") -> Behave:
    return lambda exchange: exchange.send(code, content, Content_Type=kind)


def whole(change: Callable[[Body], Any]) -> Behave:
    """The good answer with a change; what `change` returns is sent, the answer itself where that is None."""

    def behave(exchange: Exchange) -> None:
        changed = change(exchange.good)
        exchange.send(200, json.dumps(exchange.good if changed is None else changed).encode())

    return behave


def choice(**fields: Any) -> Behave:
    return whole(lambda good: good["choices"][0].update(fields))


def says(content: Any, **fields: Any) -> Behave:
    """Instead of the text."""

    def change(good: Body) -> None:
        first = good["choices"][0]
        if "message" in first:
            first["message"]["content"] = content
        else:
            first["text"] = content
        first.update(fields)

    return whole(change)


def parts(good: Body) -> None:
    """The text as a list of parts, as the protocol has it; plain replies have no such form and stay."""
    message = good["choices"][0].get("message")
    if message is not None:
        text = message["content"]
        message["content"] = [{"type": "text", "text": text[:2]}, {"type": "text", "text": text[2:]}]


def logprob(value: Any) -> Behave:
    """Instead of each log-probability, where the request asked for some."""

    def change(good: Body) -> None:
        told = good["choices"][0].get("logprobs") or {}
        for entry in told.get("content", ()):
            for listed in (entry, *entry["top_logprobs"]):
                listed["logprob"] = value
        if "top_logprobs" in told:
            told["top_logprobs"] = [dict.fromkeys(told["top_logprobs"][0], value)]

    return whole(change)


def usage(**counts: Any) -> Behave:
    return whole(lambda good: good["usage"].update(counts))


def altered(change: Callable[[bytes], bytes], code: int = 200, excess: int = 0, **headers: str) -> Behave:
    """The good answer's bytes changed."""

    def behave(exchange: Exchange) -> None:
        exchange.send(code, change(json.dumps(exchange.good).encode()), excess, **headers)

    return behave


def with_key(spelling: Callable[[str], str], code: int = 403) -> Behave:
    """The client's key, spelled as raw JSON, in an error or, with code 200, in place of the text."""

    def behave(exchange: Exchange) -> None:
        if code != 200:
            exchange.send(code, f'{{"error": {{"message": "you sent {spelling(exchange.key)}"}}}}'.encode())
            return
        first = exchange.good["choices"][0]
        first.get("message", first).update({"content": "KEY", "text": "KEY"})
        exchange.send(200, json.dumps(exchange.good).replace("KEY", spelling(exchange.key)).encode())

    return behave

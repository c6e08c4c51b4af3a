"""What a server can do wrong, and what a client has to make of it.

Outcomes of one such answer: HELD: the server's fault, all calls wait until one succeeds; UNREADABLE: a reply that was
charged and is requested once more; TAKEN: a good answer; FAILED: that call has its error at once; STOPPED: the command
ends. None is a score.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from tests.engines.misbehaving import Body, Conversation, Fault, raw, refuse, reply, reset, slow

Change = Callable[[Any], Any]
DEEP = 200_000  # brackets


def altered(
    change: Callable[[bytes], bytes], status: int = 200, excess: int = 0, **headers: str
) -> Fault:
    """The good answer's bytes changed. `excess`: by how much the announced length differs from the true one."""

    def fault(conversation: Conversation, body: Body) -> None:
        content = change(json.dumps(reply(body)).encode())
        conversation.write(status, content, len(content) + excess, **headers)
        conversation.close_connection = excess != 0

    return fault


def whole(change: Change) -> Fault:
    """The good answer changed: what `change` returns is sent, the answer itself if that is None."""

    def fault(conversation: Conversation, body: Body) -> None:
        good = reply(body)
        changed = change(good)
        conversation.answer(200, good if changed is None else changed)

    return fault


def choice(**fields: Any) -> Fault:
    return whole(lambda good: good["choices"][0].update(fields))


def says(content: Any, **fields: Any) -> Fault:
    """Instead of the text."""

    def change(good: Body) -> None:
        good["choices"][0]["message"]["content"] = content
        good["choices"][0].update(fields)

    return whole(change)


def logprob(value: Any) -> Fault:
    """Instead of each log-probability."""

    def change(good: Body) -> None:
        for entry in (good["choices"][0].get("logprobs") or {}).get("content", ()):
            for listed in (entry, *entry["top_logprobs"]):
                listed["logprob"] = value

    return whole(change)


def usage(**counts: Any) -> Fault:
    return whole(lambda good: good["usage"].update(counts))


def with_key(status: int) -> Fault:
    """The client's key, in an error or, with status 200, in place of the text."""

    def fault(conversation: Conversation, body: Body) -> None:
        key = str(conversation.headers["Authorization"]).rpartition(" ")[2]
        (says(key) if status == 200 else refuse(status, f"you sent {key}"))(conversation, body)

    return fault


def redirect(conversation: Conversation, body: Body) -> None:
    key = str(conversation.headers["Authorization"]).rpartition(" ")[2]
    conversation.write(
        307, b"", Location=f"http://127.0.0.2:9/v1/chat/completions?key={quote(key)}"
    )


def drip(conversation: Conversation, body: Body) -> None:
    """A byte at a time: every read is answered, the whole never."""
    conversation.close_connection = True
    conversation.write(200, b"", 100_000)
    for _ in range(20):
        conversation.wfile.write(b" ")
        time.sleep(0.1)


def endless(conversation: Conversation, body: Body) -> None:
    """A reply without a length that goes on as long as the client reads."""
    conversation.close_connection = True
    conversation.send_response(200)
    conversation.end_headers()
    with suppress(OSError):
        while True:
            conversation.wfile.write(b" " * (1 << 20))


def unpack(size: int) -> Fault:
    """A small packed reply that unpacks to this size."""
    packed = gzip.compress(bytes(1 << 20) * (size >> 20), 1)
    return lambda conversation, body: conversation.write(200, packed, Content_Encoding="gzip")


PARTS = [{"type": "text", "text": "re: by so"}, {"type": "text", "text": "mebody in Fauskenes"}]
HELD: Mapping[str, Fault] = {
    "408": refuse(408), "429": refuse(429, "slow down"), "429-wait": refuse(429, retry_after="0.1"),
    "429-nan": refuse(429, retry_after="nan"), "429-date": refuse(429, retry_after="Fri, 31 Dec 9999 23:59:59 GMT"),
    "400-limited": refuse(400, "Too many tokens, please wait before trying again."), "500": raw(b"oops", status=500),
    "503-page": raw(b"<html><body>busy</body></html>", status=503), "529": refuse(529, "overloaded"), "reset": reset,
    "silence": slow(1.5), "drip": drip, "cut": altered(lambda content: content[: len(content) // 2], excess=200),
    "length-too-short": altered(bytes, excess=-50), "not-gzip": altered(bytes, Content_Encoding="gzip"),
    "truncated": altered(lambda content: content[: len(content) // 2]), "empty": raw(b""),
    "page": raw(b"<html>log in, please</html>"), "binary": raw(bytes(range(256)) * 9), "endless": endless,
    "gzip-bomb": unpack(200 << 20),
    "latin-1": altered(lambda content: content[:-1] + b', "by": "\xe9\xff"}'), "array": whole(lambda good: [good]),
    "deep": raw(b'{"choices": ' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "long-number": altered(lambda content: content[:-1] + b', "n": ' + b"9" * 5000 + b"}"),
    "stream": raw(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n'),
    "error": whole(lambda _: {"error": {"message": "upstream", "code": 502}}),
    "error-odd": whole(lambda _: {"error": {"message": ["x"], "code": [1, 2]}}),
    "no-choices": whole(lambda good: good.pop("choices") and None),
    "nothing-chosen": whole(lambda good: good.update(choices=[])),
    "choice-null": whole(lambda good: good.update(choices=[None])),
    "choice-empty": whole(lambda good: good.update(choices=[{}])),
    "choice-error": choice(error={"code": 502, "message": "upstream died"}),
    "finish-error": says("", finish_reason="error"), "huge-text": says("x" * 50_000_000),
    "twice": altered(lambda content: content[:-1] + b', "choices": []}'), "key-500": with_key(500),
    "key-200": with_key(200),
}  # fmt: skip
UNREADABLE: Mapping[str, Fault] = {
    "content-null": says(None), "content-number": says(42), "content-object": says({"text": "hi"}),
    "content-odd-parts": says([{"type": "image_url", "image_url": "x"}, 7]),
    "message-text": choice(message="hi", text=None), "logprob-nan": logprob(float("nan")),
    "logprob-positive": logprob(5.0), "logprob-text": logprob("-1"),
}  # fmt: skip
TAKEN: Mapping[str, Fault] = {
    "gzip": altered(gzip.compress, Content_Encoding="gzip"), "201": altered(bytes, status=201),
    "byte-order-mark": altered(lambda content: b"\xef\xbb\xbf" + content),
    "blanks-first": altered(lambda content: b"\n" * 5000 + content),
    "error-null": whole(lambda good: good.update(error=None)), "content-parts": says(PARTS),
    "usage-odd-details": usage(prompt_tokens_details="x"),
    "other-model": whole(lambda good: good.update(model="evil-7b")),
    "usage-missing": whole(lambda good: good.pop("usage") and None), "usage-text": usage(prompt_tokens="many"),
    "usage-negative": usage(prompt_tokens=-1000000), "usage-infinite": usage(prompt_tokens=float("inf")),
    "usage-huge": usage(prompt_tokens=10**400),
}  # fmt: skip
FAILED: Mapping[str, Fault] = {
    "400": refuse(400, "the request is wrong"),
    "403-filtered": refuse(403, "This model requires moderation. Your input was flagged."),
    "terminal": refuse(400, "\x1b]0;owned\x07\x1b[2J\x1b[31mred <script>alert(1)</script>"),
    "key-400": with_key(400),
}
STOPPED: Mapping[str, Fault] = {
    "401": with_key(401), "400-key": refuse(400, "API key not valid. Please pass a valid API key."),
    "402": refuse(402, "pay first"), "403": refuse(403, "not for you"), "key-403": with_key(403),
    "404": refuse(404, "no such model"), "redirect": redirect,
}  # fmt: skip
LOST: Mapping[str, Fault] = {  # for longer than engine.server_timeout
    "429-infinite": refuse(429, retry_after="inf"),
    "429-years": refuse(429, retry_after="99999999"),
}

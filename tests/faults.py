"""The table of what a server can do wrong: by name, how it behaves, and what a client has to make of it."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal
from urllib.parse import quote

from tests.fault_behaviours import (
    Behave,
    Exchange,
    altered,
    choice,
    logprob,
    page,
    parts,
    says,
    status,
    usage,
    whole,
    with_key,
)

Outcome = Literal["retried", "taken", "failed", "stopped"]
MEBIBYTE = b" " * 0x100000
BLANKS = 1200  # mebibytes: more than a machine should keep for one reply
DRIP = 0.2  # seconds between two bytes
DEEP = 200_000  # brackets


@dataclass(frozen=True)
class Fault:
    """`outcome` of one such answer: "retried", another attempt is made; "taken" as a good one, with the good one's
    words where `same`; "failed", that call has its error at once; "stopped", the command ends. None is a score."""

    behave: Behave
    outcome: Outcome = "retried"
    same: bool = True


def silence(exchange: Exchange) -> None:
    exchange.over.wait(60)
    exchange.at.close_connection = True


def drip(exchange: Exchange) -> None:
    """A byte at a time: every read is answered, the whole never."""
    exchange.begin(200, Content_Length="100000")
    exchange.at.close_connection = True
    while not exchange.over.wait(DRIP):
        exchange.at.wfile.write(b" ")


def close(exchange: Exchange) -> None:
    exchange.at.close_connection = True


def blanks(exchange: Exchange) -> None:
    exchange.begin(200, Transfer_Encoding="chunked")
    for _ in range(BLANKS):
        exchange.at.wfile.write(b"100000\r\n" + MEBIBYTE + b"\r\n")
    exchange.at.wfile.write(b"0\r\n\r\n")


def bomb(_: bytes) -> bytes:
    return packed_blanks()


@cache
def packed_blanks() -> bytes:
    """Takes some seconds."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(MEBIBYTE) for _ in range(BLANKS)), packer.flush()])


def broken_chunk(exchange: Exchange) -> None:
    exchange.begin(200, Transfer_Encoding="chunked")
    exchange.raw(b"zz\r\nno length\r\n0\r\n\r\n")


def half_a_chunk(exchange: Exchange) -> None:
    exchange.begin(200, Transfer_Encoding="chunked")
    exchange.raw(b'ff\r\n{"choices": [')


def stream(exchange: Exchange) -> None:
    """Events, though none were asked for."""
    page(200, b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n', "text/event-stream")(exchange)


def elsewhere(exchange: Exchange) -> None:
    place = f"http://127.0.0.2:9/v1/chat/completions?key={quote(exchange.key)}"
    exchange.send(307, b"", Location=place)


STATUS: Mapping[str, Fault] = {
    "400": Fault(status(400, "the request is wrong"), "failed"),
    "401": Fault(status(401, "who are you"), "stopped"),
    "402": Fault(status(402, "pay first"), "stopped"),
    "403": Fault(status(403, "not for you"), "failed"),
    "404": Fault(status(404, "no such model"), "stopped"),
    "408": Fault(status(408)),
    "429": Fault(status(429, "slow down")),
    "429-wait": Fault(status(429, Retry_After="1")),
    "429-negative": Fault(status(429, Retry_After="-5")),
    "429-nan": Fault(status(429, Retry_After="nan")),
    "429-infinite": Fault(status(429, Retry_After="inf"), "failed"),
    "429-years": Fault(status(429, Retry_After="99999999"), "failed"),
    "429-date-past": Fault(status(429, Retry_After="Fri, 31 Dec 1999 23:59:59 GMT")),
    "429-date-far": Fault(status(429, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"), "failed"),
    "429-date-of-its-clock": Fault(
        status(429, Date="Wed, 01 Jan 2031 00:00:00 GMT", Retry_After="Wed, 01 Jan 2031 00:00:01 GMT")
    ),
    "429-date-none": Fault(status(429, Retry_After="Fri, 99 Foo 99999 99:99:99")),
    "500": Fault(page(500, b"oops", "text/plain")),
    "503-page": Fault(page(503, b"<html><body>busy</body></html>")),
    "529": Fault(status(529, "overloaded")),
    "redirect": Fault(elsewhere, "stopped"),
}
CONNECTION: Mapping[str, Fault] = {
    "reset": Fault(Exchange.reset),
    "closed": Fault(close),
    "no-http": Fault(lambda exchange: exchange.raw(b"\x00\x01\x02 not http at all\r\n\r\n")),
    "silence": Fault(silence),
    "drip": Fault(drip),
    "cut": Fault(altered(lambda content: content[: len(content) // 2], excess=200)),
    "length-too-long": Fault(altered(bytes, excess=50)),
    "length-too-short": Fault(altered(bytes, excess=-50)),
    "broken-chunk": Fault(broken_chunk),
    "half-a-chunk": Fault(half_a_chunk),
    "not-gzip": Fault(altered(bytes, Content_Encoding="gzip")),
    "half-a-gzip": Fault(altered(lambda content: gzip.compress(content)[:-20], Content_Encoding="gzip")),
    "unknown-encoding": Fault(altered(bytes, Content_Encoding="rot13")),
    "gzip": Fault(altered(gzip.compress, Content_Encoding="gzip"), "taken"),
    "gzip-bomb": Fault(altered(bomb, Content_Encoding="gzip")),
    "blanks": Fault(blanks),
}
FORM: Mapping[str, Fault] = {
    "truncated": Fault(altered(lambda content: content[: len(content) // 2])),
    "empty": Fault(altered(lambda _: b"")),
    "204": Fault(lambda exchange: exchange.begin(204)),
    "201": Fault(altered(bytes, code=201), "taken"),
    "page": Fault(page(200, b"<html>log in, please</html>")),
    "json-as-page": Fault(altered(bytes, Content_Type="text/html"), "taken"),
    "byte-order-mark": Fault(altered(lambda content: b"\xef\xbb\xbf" + content), "taken"),
    "blanks-first": Fault(altered(lambda content: b"\n" * 5000 + content), "taken"),
    "latin-1": Fault(altered(lambda content: content[:-1] + b', "by": "\xe9\xff"}')),
    "array": Fault(whole(lambda good: [good])),
    "number": Fault(whole(lambda _: 7)),
    "deep": Fault(altered(lambda _: b'{"choices": ' + b"[" * DEEP + b"]" * DEEP + b"}")),
    "long-number": Fault(altered(lambda content: content[:-1] + b', "n": ' + b"9" * 5000 + b"}")),
    "stream": Fault(stream),
}
ANSWER: Mapping[str, Fault] = {
    "error": Fault(whole(lambda _: {"error": {"message": "upstream", "code": 502}})),
    "error-text": Fault(whole(lambda _: {"error": "boom"})),
    "error-odd": Fault(whole(lambda _: {"error": {"message": ["x"], "code": [1, 2]}})),
    "error-null": Fault(whole(lambda good: good.update(error=None)), "taken"),
    "no-choices": Fault(whole(lambda good: good.pop("choices") and None)),
    "nothing-chosen": Fault(whole(lambda good: good.update(choices=[]))),
    "choices-null": Fault(whole(lambda good: good.update(choices=None))),
    "choice-null": Fault(whole(lambda good: good.update(choices=[None]))),
    "choice-empty": Fault(whole(lambda good: good.update(choices=[{}]))),
    "choice-error": Fault(choice(error={"code": 502, "message": "upstream died"})),
    "content-null": Fault(says(None)),
    "content-number": Fault(says(42)),
    "content-object": Fault(says({"text": "hi"})),
    "content-odd-parts": Fault(says([{"type": "image_url", "image_url": "x"}, 7])),
    "content-parts": Fault(whole(parts), "taken"),
    "finish-error": Fault(says("", finish_reason="error")),
    "finish-abort": Fault(says("", finish_reason="abort")),
    "message-text": Fault(choice(message="hi", text=None)),
    "logprob-nan": Fault(logprob(float("nan"))),
    "logprob-infinite": Fault(logprob(float("inf"))),
    "logprob-minus-infinite": Fault(logprob(float("-inf"))),
    "logprob-positive": Fault(logprob(5.0)),
    "logprob-huge": Fault(logprob(1e308)),
    "logprob-text": Fault(logprob("-1")),
    "logprob-null": Fault(logprob(None)),
    "usage-text": Fault(usage(prompt_tokens="many")),
    "usage-negative": Fault(usage(prompt_tokens=-1000000)),
    "usage-infinite": Fault(usage(prompt_tokens=float("inf"))),
    "usage-huge": Fault(usage(prompt_tokens=10**400)),
    "usage-missing": Fault(whole(lambda good: good.pop("usage") and None), "failed"),
    "usage-odd-details": Fault(usage(prompt_tokens_details="x"), "taken"),
    "huge-text": Fault(says("x" * 50_000_000)),
    "other-model": Fault(whole(lambda good: good.update(model="evil-7b")), "taken"),
    "twice": Fault(altered(lambda content: content[:-1] + b', "choices": []}')),
    "escapes": Fault(says("a\x00b\x1b[31mred\x07"), "taken", same=False),
    "surrogates": Fault(says("\ud800 answer \udfff"), "taken", same=False),
    "terminal": Fault(status(400, "\x1b]0;owned\x07\x1b[2J\x1b[31mred <script>alert(1)</script>"), "failed"),
}
KEYS: Mapping[str, Fault] = {
    "key-403": Fault(with_key(str), "failed"),
    "key-500": Fault(with_key(str, 500)),
    "key-200": Fault(with_key(str, 200)),
    "key-401": Fault(with_key(str, 401), "stopped"),
    "key-no-choices": Fault(lambda exchange: exchange.send(200, json.dumps({"note": exchange.key}).encode())),
}
FAULTS: Mapping[str, Fault] = {**STATUS, **CONNECTION, **FORM, **ANSWER, **KEYS}

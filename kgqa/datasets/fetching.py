"""Downloads that go on where they were cut, and that are kept only if they are what they should be."""

from __future__ import annotations

import http
import http.client
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from kgqa.datasets.files import TO_ELSEWHERE
from kgqa.datasets.sources import Source
from kgqa.errors import DataError
from kgqa.storage import sha256, storing

ATTEMPTS = 5  # in a row that bring nothing
PAUSE = 1.0  # seconds before the second of them, doubled each time
SILENCE = 60.0  # seconds without a byte after which a connection counts as cut
BLOCK = 1 << 18
PASSING = (408, 425, 429, 500, 502, 503, 504)  # of HTTP: worth another attempt

Advance = Callable[[int, int | None], None]  # bytes there are now, and in all if that is known


class Unreachable(Exception):
    """A URL that does not give the file; the next one may."""


def fetch(source: Source, target: Path, advance: Advance) -> None:
    """Download a source's file. It appears at `target` whole and checked, or not at all.

    What has arrived lies beside it as NAME.part: a cut connection is taken up from there, and so is the next call.
    A server that cannot continue a file sends it from its beginning.

    Raises:
        DataError: no URL gives the file, or what they give is not what the source says.
        StorageError: the disk is full or not writable.
    """
    part = target.with_name(target.name + ".part")
    with storing(part, TO_ELSEWHERE):
        target.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for url in source.urls:
        if reason := _failure(url, source, part, advance):
            reasons.append(f"{url}: {reason}")
        else:
            with storing(target, TO_ELSEWHERE):
                part.replace(target)
            return
    raise DataError("; ".join(reasons))


def _failure(url: str, source: Source, part: Path, advance: Advance) -> str:
    """Why this URL does not give the file; "" once it is there."""
    try:
        _download(url, part, advance)
    except Unreachable as error:
        return str(error)
    if wrong := mismatch(part, source):
        part.unlink()
        return f"{wrong}; it was not kept"
    return ""


def _download(url: str, part: Path, advance: Advance) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise Unreachable("only http and https are fetched")
    idle = 0
    while True:
        before = _size(part)
        try:
            _continue(url, part, advance)
        except (OSError, http.client.HTTPException) as error:  # urllib's errors are OSErrors
            idle = 0 if _size(part) > before else idle + 1
            if idle == ATTEMPTS or (idle and _is_final(error)):
                raise Unreachable(_reason(error)) from None
            time.sleep(PAUSE * 2**idle if idle else 0)
        else:
            return


def _continue(url: str, part: Path, advance: Advance) -> None:
    """Ask for what is missing of the file.

    Raises:
        OSError, HTTPException: it did not all arrive.
        StorageError: it could not be written.
    """
    have = _size(part)
    headers = {"User-Agent": "kgqa"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        reply = urlopen(Request(url, headers=headers), timeout=SILENCE)  # noqa: S310 - the scheme was looked at
    except HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        if error.headers.get("Content-Range") == f"bytes */{have}":  # there is nothing left to ask for
            return
        part.unlink()
        raise ConnectionError("the server's file is shorter than what is here") from None
    with reply:
        if not (reply.headers.get("Content-Range") or "").startswith(f"bytes {have}-"):
            have = 0  # it cannot continue a file
        length = reply.headers.get("Content-Length")
        total = have + int(length) if length else None
        with storing(part, TO_ELSEWHERE):
            out = part.open("ab" if have else "wb")
        with out:
            while block := reply.read1(BLOCK):  # what is there: a silent connection must not cost what arrived
                with storing(part, TO_ELSEWHERE):
                    out.write(block)
                have += len(block)
                advance(have, total)
            with storing(part, TO_ELSEWHERE):
                out.flush()
    if total is not None and have < total:
        raise ConnectionError(f"the connection was cut at {have:,} of {total:,} bytes")


def mismatch(file: Path, source: Source) -> str:
    """What is wrong with a file that should be the source's; "" if nothing is."""
    size, actual = _size(file), sha256(file)
    with file.open("rb") as content:
        page = content.read(1024).lstrip().lower().startswith((b"<!doctype", b"<html"))
    if not page and size == (source.bytes or size) and actual == (source.sha256 or actual):
        return ""
    what = "a web page came instead of the file" if page else f"sha256 is {actual} of {size:,} bytes"
    known = "not known" if source.bytes is None else f"{source.bytes:,}"
    return f"{what}, expected sha256 {source.sha256 or 'not known'} of {known} bytes"


def _is_final(error: Exception) -> bool:
    """Another attempt would end the same."""
    if isinstance(error, HTTPError):
        return error.code not in PASSING
    reason = getattr(error, "reason", None)
    return isinstance(reason, socket.gaierror | ConnectionRefusedError)


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"HTTP {error.code} {error.reason}"
    return str(getattr(error, "reason", "")) or str(error) or type(error).__name__


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0

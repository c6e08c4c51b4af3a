"""Downloads that go on where they were cut, and that are kept only if they are what they should be."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kgqa.datasets.files import TO_ELSEWHERE
from kgqa.datasets.sources import Source
from kgqa.errors import DataError
from kgqa.util import http
from kgqa.util.fs import explain_storage_errors, sha256

if TYPE_CHECKING:
    import httpx2

ATTEMPTS = 5  # in a row that bring nothing
PAUSE = 1.0  # seconds before the second of them, doubled each time
SILENCE = 60.0  # seconds without a byte after which a connection counts as cut
PASSING = (408, 425, 429, 500, 502, 503, 504)  # of HTTP: worth another attempt

Advance = Callable[[int, int | None], None]  # bytes there are now, and in all if that is known


def fetch(source: Source, target: Path, advance: Advance) -> None:
    """Download a source's file. It appears at `target` whole and checked, or not at all.

    What has arrived lies beside it as NAME.part: a cut connection is taken up from there, and so is the next call.
    A server that cannot continue a file sends it from its beginning.

    Raises:
        DataError: no URL gives the file, or what they give is not what the source says.
        StorageError: the disk is full or not writable.
    """
    part = target.with_name(target.name + ".part")
    with explain_storage_errors(part, TO_ELSEWHERE):
        target.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    with http.create_client(SILENCE, {"Accept-Encoding": "identity"}) as client:
        for url in source.urls:
            if reason := _failure(client, url, source, part, advance):
                reasons.append(f"{url}: {reason}")
            else:
                with explain_storage_errors(target, TO_ELSEWHERE):
                    part.replace(target)
                return
    raise DataError("; ".join(reasons))


class _Refused(http.NoResponse):
    """A status that says no. final: another attempt would end the same."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(http.status_line(response))
        self.final = response.status_code not in PASSING


def _failure(client: httpx2.Client, url: str, source: Source, part: Path, advance: Advance) -> str:
    """Return why this URL does not give the file; "" once it is there."""
    if urlsplit(url).scheme not in ("http", "https"):
        return "only http and https are fetched"
    try:
        _download(client, url, part, advance)
    except http.NoResponse as error:
        return str(error)
    if wrong := mismatch(part, source):
        part.unlink()
        return f"{wrong}; it was not kept"
    return ""


def _download(client: httpx2.Client, url: str, part: Path, advance: Advance) -> None:
    idle = 0
    while True:
        before = _size(part)
        try:
            _continue(client, url, part, advance)
        except http.NoResponse as error:
            idle = 0 if _size(part) > before else idle + 1
            final = isinstance(error, http.ServerNotFound) or (isinstance(error, _Refused) and error.final)
            if idle == ATTEMPTS or (idle and final):
                raise
            time.sleep(PAUSE * 2**idle if idle else 0)
        else:
            return


def _continue(client: httpx2.Client, url: str, part: Path, advance: Advance) -> None:
    """Ask for what is missing of the file.

    Raises:
        Unanswered: it did not all arrive.
        StorageError: it could not be written.
    """
    have = _size(part)
    with (
        http.translate_errors(),
        client.stream("GET", url, headers={"Range": f"bytes={have}-"} if have else {}) as reply,
    ):
        if reply.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            if reply.headers.get("Content-Range") == f"bytes */{have}":  # there is nothing left to ask for
                return
            part.unlink()
            raise http.NoResponse("the server's file is shorter than what is here")
        if reply.is_error:
            raise _Refused(reply)
        if not reply.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            have = 0  # it cannot continue a file
        _receive(reply, have, part, advance)


def _receive(reply: httpx2.Response, have: int, part: Path, advance: Advance) -> None:
    """Write what comes behind the first `have` bytes."""
    length = reply.headers.get("Content-Length")
    total = have + int(length) if length else None
    with explain_storage_errors(part, TO_ELSEWHERE):
        out = part.open("ab" if have else "wb")
    with explain_storage_errors(part, TO_ELSEWHERE), out:  # closing it writes what the disk did not take before
        try:
            with http.translate_errors():
                for block in reply.iter_raw():  # what is there: a silent connection must not cost what arrived
                    with explain_storage_errors(part, TO_ELSEWHERE):
                        out.write(block)
                        out.flush()
                    have += len(block)
                    advance(have, total)
        except http.NoResponse as error:
            if total is None or isinstance(error, http.ResponseTimeout):
                raise
            raise http.NoResponse(f"the connection was cut at {have:,} of {total:,} bytes") from error


def mismatch(file: Path, source: Source) -> str:
    """Return what is wrong with a file that should be the source's; "" if nothing is."""
    size, actual = _size(file), sha256(file)
    with file.open("rb") as content:
        page = content.read(1024).lstrip().lower().startswith((b"<!doctype", b"<html"))
    if not page and size == (source.bytes or size) and actual == (source.sha256 or actual):
        return ""
    what = "a web page came instead of the file" if page else f"sha256 is {actual} of {size:,} bytes"
    known = "not known" if source.bytes is None else f"{source.bytes:,}"
    return f"{what}, expected sha256 {source.sha256 or 'not known'} of {known} bytes"


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0

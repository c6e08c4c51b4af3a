"""HTTP by httpx2: clients with our timeouts, and what goes wrong with a server in words.

Unanswered            no answer, or not all of it; another attempt may get it
├── Silent            nothing came for as long as the client waits
├── TooLong           more came than there can be
└── NoServer          nobody was reached at the address
    └── Absent        nobody listens there, or the name leads nowhere: another attempt ends the same
"""

from __future__ import annotations

import logging
import socket
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

LOGS = ("httpx2", "httpcore2")  # they tell what servers put into headers, which may be what we put into ours
CONNECT = 10.0  # seconds to reach a server that many calls wait for


class Unanswered(Exception):
    """No answer, or not all of it; another attempt may get it."""


class Silent(Unanswered):
    """Nothing came for as long as the client waits."""


class TooLong(Unanswered):
    """More came than there can be."""


class NoServer(Unanswered):
    """Nobody was reached at the address."""


class Absent(NoServer):
    """Nobody listens there, or the name leads nowhere."""


def client(silence: float, headers: Mapping[str, str] | None = None, *, redirected: bool = True) -> httpx2.Client:
    """For threads, to be closed. silence: seconds without a byte after which a connection counts as cut."""
    import httpx2

    _keep_headers_out_of_logs()
    return httpx2.Client(
        timeout=silence, headers={"User-Agent": "kgqa", **(headers or {})}, follow_redirects=redirected
    )


def async_client(headers: Mapping[str, str], kept: int) -> httpx2.AsyncClient:
    """For one event loop, to be closed: any number of requests, each timed by its caller; `kept` connections stay.

    It follows no redirection: what the headers hold is meant for one server.
    """
    import httpx2

    _keep_headers_out_of_logs()
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "gzip", **headers},
        timeout=httpx2.Timeout(None, connect=CONNECT),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=kept),
    )


@lru_cache(maxsize=64)
def address(url: str) -> httpx2.URL:
    """What an address says, read once.

    Raises:
        httpx2.InvalidURL: it is none.
    """
    import httpx2

    return httpx2.URL(url)


async def content(response: httpx2.Response, most: int) -> bytes:
    """The body of a response that is being streamed, unpacked, as far as it may go.

    Raises:
        TooLong: it has more than `most` bytes; no more are kept, however small they came packed.
        Unanswered: it is packed in a way that was not asked for, or broken.
    """
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("", "identity", "gzip"):
        raise Unanswered(f"an answer packed as {packing!r:.40}, which was not asked for")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if packing == "gzip" else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        try:
            body += unpacker.decompress(chunk, most + 1 - len(body)) if unpacker else chunk
        except zlib.error as error:
            raise Unanswered("an answer that says it is gzip and is not") from error
        if len(body) > most:
            raise TooLong(f"an answer of more than {most:,} bytes")
    if unpacker and not unpacker.eof:
        raise Unanswered("an answer whose gzip ends half-way")
    return bytes(body)


@contextmanager
def in_words() -> Iterator[None]:
    """Raises Unanswered for what httpx2 raises; a status that says no is an answer."""
    import httpx2

    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        kind = Absent if _caused_by(error, (ConnectionRefusedError, socket.gaierror)) else NoServer
        raise kind(str(error) or type(error).__name__) from error
    except httpx2.TimeoutException as error:
        raise Silent(str(error) or type(error).__name__) from error
    except httpx2.InvalidURL as error:
        raise Absent(str(error)) from error
    except httpx2.RequestError as error:
        raise Unanswered(f"the connection broke ({type(error).__name__})") from error


def status_line(response: httpx2.Response) -> str:
    """E.g. HTTP 404 Not Found."""
    return f"HTTP {response.status_code} {response.reason_phrase}".rstrip()


def _keep_headers_out_of_logs() -> None:
    for name in LOGS:
        logging.getLogger(name).setLevel(logging.WARNING)


def _caused_by(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False

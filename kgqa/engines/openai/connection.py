"""One request and its answer, by aiohttp, which costs a sixth of httpx2's CPU a call (docs/PERFORMANCE.md).

What goes wrong is told in the words of `kgqa.util.http`; what an answer means is for `endpoint`.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kgqa.util import http

if TYPE_CHECKING:
    import aiohttp

KEPT = 4.0  # seconds that an idle connection stays: most servers close theirs after five
NOBODY = (ConnectionRefusedError, socket.gaierror)


class Received(NamedTuple):
    """An answer, unpacked, whatever its status says."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Connections:
    """To one server, for one event loop: any number of requests, each of which may take `timeout` seconds.

    It follows no redirection and keeps no cookies: what the headers hold is meant for one server.
    """

    def __init__(self, server: str, headers: Mapping[str, str], timeout: float) -> None:
        self._server, self._timeout = server, timeout
        self._headers = {"User-Agent": "kgqa", "Accept-Encoding": "gzip", **headers}
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, url: str, body: bytes | None, most: int) -> Received:
        """Return the whole answer to a JSON body.

        Raises:
            http.Unanswered: there is none, none in time (http.Silent), or it has more than `most` bytes (http.TooLong).
        """
        told = {"Content-Type": "application/json"} if body is not None else None
        with _in_words():
            async with self._open().request(method, url, data=body, headers=told, allow_redirects=False) as answer:
                return Received(answer.status, answer.headers, await _content(answer, most))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # transports are told to close, and do so in the loop's next round

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            trusted = http.ssl_context() if self._server.startswith("https:") else True
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT, ssl=trusted),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=http.CONNECT),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                proxy=http.find_proxy(
                    self._server
                ),  # trust_env would look for it, and into ~/.netrc, with every request
            )
        return self._session


async def _content(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body, unpacked as it comes, as far as it may go, however small it came packed."""
    packing = answer.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("", "identity", "gzip"):
        raise http.NoResponse(f"an answer packed as {packing!r:.40}, which was not asked for")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if packing == "gzip" else None
    body = bytearray()
    async for chunk in answer.content.iter_any():
        try:
            body += unpacker.decompress(chunk, most + 1 - len(body)) if unpacker else chunk
        except zlib.error as error:
            raise http.NoResponse("an answer that says it is gzip and is not") from error
        if len(body) > most:
            raise http.ResponseTooLong(f"an answer of more than {most:,} bytes")
    if unpacker and not unpacker.eof:
        raise http.NoResponse("an answer whose gzip ends half-way")
    return bytes(body)


@contextmanager
def _in_words() -> Iterator[None]:
    """Translate the errors of aiohttp. A response with an error status is not an error here."""
    import aiohttp

    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        cause = getattr(error, "os_error", None)
        kind = http.ServerNotFound if isinstance(cause, NOBODY) else http.ConnectionFailed
        raise kind(str(error) or type(error).__name__) from error
    except asyncio.TimeoutError as error:
        raise http.ResponseTimeout(str(error) or type(error).__name__) from error
    except aiohttp.InvalidURL as error:
        raise http.ServerNotFound(str(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise http.NoResponse(f"the connection broke ({type(error).__name__})") from error

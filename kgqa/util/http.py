"""HTTP: clients (httpx2) with our timeouts, and what goes wrong with a server in words.

Unanswered            no answer, or not all of it; another attempt may get it
├── Silent            nothing came for as long as the client waits
├── TooLong           more came than there can be
└── NoServer          nobody was reached at the address
    └── Absent        nobody listens there, or the name leads nowhere: another attempt ends the same
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kgqa.errors import ConfigError

if TYPE_CHECKING:
    import httpx2

LOGS = ("httpx2", "httpcore2")  # they tell what servers put into headers, which may be what we put into ours
AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # variables that say whose certificates count
CONNECT = 10.0  # seconds to reach a server that many calls wait for


class NoResponse(Exception):
    """No answer, or not all of it; another attempt may get it."""


class ResponseTimeout(NoResponse):
    """Nothing came for as long as the client waits."""


class ResponseTooLong(NoResponse):
    """More came than there can be."""


class ConnectionFailed(NoResponse):
    """Nobody was reached at the address."""


class ServerNotFound(ConnectionFailed):
    """Nobody listens there, or the name leads nowhere."""


def create_client(
    silence: float, headers: Mapping[str, str] | None = None, *, redirected: bool = True
) -> httpx2.Client:
    """Create a client for threads, which the caller closes. It gives up after `silence` seconds without a byte.

    Raises:
        ConfigError: see `trusted`.
    """
    import httpx2

    _keep_headers_out_of_logs()
    named = {"User-Agent": "kgqa", **(headers or {})}
    return httpx2.Client(verify=ssl_context(), timeout=silence, headers=named, follow_redirects=redirected)


def ssl_context() -> ssl.SSLContext:
    """Return the trusted certificates, the same for all of kgqa.

    Raises:
        ConfigError: the variables that say so lead nowhere.
    """
    import httpx2

    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one
        given = " ".join(f"{name}={os.environ[name]}" for name in AUTHORITIES if os.environ.get(name))
        raise ConfigError(f"{given}: no readable PEM certificates ({error}); correct it, or unset it") from None


def find_proxy(url: str) -> str | None:
    """Return the proxy for an address from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""
    parts = urlsplit(url)
    every = getproxies()
    found = every.get(parts.scheme) or every.get("all")
    if not found or proxy_bypass(parts.netloc):
        return None
    return found if "://" in found else f"http://{found}"


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise a NoResponse for an error of httpx2; an HTTP status is not an error.

    Raises Unanswered for what httpx2 raises; a status that says no is an answer.
    """
    import httpx2

    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        kind = ServerNotFound if _has_cause(error, (ConnectionRefusedError, socket.gaierror)) else ConnectionFailed
        raise kind(str(error) or type(error).__name__) from error
    except httpx2.TimeoutException as error:
        raise ResponseTimeout(str(error) or type(error).__name__) from error
    except httpx2.InvalidURL as error:
        raise ServerNotFound(str(error)) from error
    except httpx2.RequestError as error:
        raise NoResponse(f"the connection broke ({type(error).__name__})") from error


def status_line(response: httpx2.Response) -> str:
    """Return the status as text, e.g. HTTP 404 Not Found."""
    return f"HTTP {response.status_code} {response.reason_phrase}".rstrip()


def _keep_headers_out_of_logs() -> None:
    for name in LOGS:
        logging.getLogger(name).setLevel(logging.WARNING)


def _has_cause(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False

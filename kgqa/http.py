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
    """For threads, to be closed. silence: seconds without a byte after which a connection counts as cut.

    Raises:
        ConfigError: see `trusted`.
    """
    import httpx2

    _keep_headers_out_of_logs()
    named = {"User-Agent": "kgqa", **(headers or {})}
    return httpx2.Client(verify=trusted(), timeout=silence, headers=named, follow_redirects=redirected)


def trusted() -> ssl.SSLContext:
    """Who may vouch for a server: the same everywhere in kgqa.

    Raises:
        ConfigError: the variables that say so lead nowhere.
    """
    import httpx2

    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one
        given = " ".join(f"{name}={os.environ[name]}" for name in AUTHORITIES if os.environ.get(name))
        raise ConfigError(f"{given}: no readable PEM certificates ({error}); correct it, or unset it") from None


def proxy(url: str) -> str | None:
    """Through which this address is to be asked: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, but for NO_PROXY."""
    parts = urlsplit(url)
    every = getproxies()
    found = every.get(parts.scheme) or every.get("all")
    if not found or proxy_bypass(parts.netloc):
        return None
    return found if "://" in found else f"http://{found}"


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

"""HTTP to an OpenAI-compatible server: retry failed attempts, and turn the final failure into one clear error.

aiohttp costs a sixth of httpx2's CPU per call (docs/PERFORMANCE.md). OpenAI's own client is not used: it does not wait
for a server that is down for a while, ignores Retry-After beyond a minute, and hides how long the last attempt took.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from kgqa.errors import ConfigError, EngineDied, EngineError, UsageError
from kgqa.types import Json
from kgqa.util import http
from kgqa.util.jsonio import encode_request
from kgqa.util.redaction import Key

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)
events = logging.getLogger("kgqa.events")  # see kgqa.runtime.work_log

T = TypeVar("T")
DEFAULT_URL = "https://api.openai.com/v1"
URL_VARIABLE = "OPENAI_BASE_URL"
MAX_BACKOFF = 30.0  # seconds between two attempts, unless the server asks for more
MAX_RECONNECT = 5.0  # seconds between two attempts to reach a server that is gone
KEEPALIVE = 4.0  # seconds of an idle connection: most servers close theirs after five
MAX_BYTES = 32 << 20  # of a response
SHOWN = 120  # characters of an invalid response
RATE_LIMITED = 429
LOOPBACK = ("127.0.0.1", "localhost", "::1")  # no proxy is used for them
RETRIED = frozenset({408, 409, 425, RATE_LIMITED})  # and all of 500 to 599


@dataclass(frozen=True)
class RetryPolicy:
    """Seconds of one attempt, number of retries, seconds before the first retry, seconds that a server can be gone."""

    timeout: float
    retries: int
    backoff: float
    server_timeout: float


class Refused(EngineError):
    """The server understood the request and rejects it. `error`: its error object."""

    def __init__(self, status: int, error: Mapping[str, Json]) -> None:
        self.message = " ".join(str(error.get("message") or error).split())[:300]
        self.error = error
        super().__init__(f"the server refused the call ({status}): {self.message}")


class NotFound(ConfigError):
    """The server does not know the model or the path."""


class _Failure(Exception):
    """An attempt failed, but another can succeed. `status`: the server's; `after`: seconds that it asks to wait."""

    def __init__(self, reason: str, status: int = 0, after: float = 0.0) -> None:
        super().__init__(reason)
        self.status, self.after = status, after


class _Gone(Exception):
    """The server could not be reached."""


class Transport:
    """A server's address and key. It belongs to one event loop and sends any number of parallel requests.

    The key is sent in the request's header only. If a server repeats it, error messages do not.
    """

    def __init__(self, url: str, key: str | None, policy: RetryPolicy, on_rate_limited: Callable[[], None]) -> None:
        self.url = url
        self._key = Key(key) if key else None
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._policy, self._on_rate_limited = policy, on_rate_limited
        self._session: aiohttp.ClientSession | None = None
        self._gone_since: float | None = None
        self._resume_at = 0.0  # one call's Retry-After holds for all

    async def get(self, path: str) -> Json:
        """Return the JSON of a path below the address. A path that starts with ".." is relative to /v1."""
        return (await self._request("GET", path, None, lambda answer: answer))[0]

    async def post(self, path: str, body: Mapping[str, Json], validate: Callable[[Json], T]) -> tuple[T, float]:
        """Return the validated JSON, and the seconds of the attempt that succeeded, with the server's queue.

        `validate` raises ValueError for an invalid response, which is then requested again.

        Raises:
            Refused: the server rejects the request. A retry would not help.
            ConfigError: it does not accept the key, redirects, or (NotFound) does not know the model or the path.
            UsageError: the account is used up.
            EngineError: every attempt failed.
            EngineDied: nothing has listened for longer than `server_timeout`.
        """
        return await self._request("POST", path, body, validate)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # transports close in the loop's next round

    async def _request(
        self, method: str, path: str, body: Mapping[str, Json] | None, validate: Callable[[Json], T]
    ) -> tuple[T, float]:
        url = self.url.removesuffix("/v1") + path[2:] if path.startswith("..") else self.url + path
        content = None if body is None else encode_request(dict(body))
        failures = 0
        while True:
            await asyncio.sleep(max(0.0, self._resume_at - time.monotonic()))
            started = time.perf_counter()
            try:
                answer = self._read(*await self._send(method, url, content))
                return self._validate(answer, validate), time.perf_counter() - started
            except _Gone as error:
                wait = self._wait_for_server(error)
            except _Failure as error:
                failures += 1
                wait = self._wait_for_retry(error, failures)
            await asyncio.sleep(wait)

    async def _send(self, method: str, url: str, content: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of one attempt."""
        import aiohttp

        try:
            async with self._open().request(method, url, data=content, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        raise _Failure(f"an answer of more than {MAX_BYTES:,} bytes")
                self._gone_since = None
                return response.status, response.headers, bytes(body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _Gone(str(error) or type(error).__name__) from error
        except asyncio.TimeoutError as error:
            raise _Failure(f"no answer within {self._policy.timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Failure(f"the connection broke ({type(error).__name__})") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            trusted = http.ssl_context() if self.url.startswith("https:") else True
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE, ssl=trusted),
                headers={"User-Agent": "kgqa", "Content-Type": "application/json", **self._headers},
                timeout=aiohttp.ClientTimeout(total=self._policy.timeout, sock_connect=http.CONNECT),
                cookie_jar=aiohttp.DummyCookieJar(),
                # trust_env would look for it, and into ~/.netrc, with every request
                proxy=None if urlsplit(self.url).hostname in LOOPBACK else http.find_proxy(self.url),
            )
        return self._session

    def _read(self, status: int, headers: Mapping[str, str], content: bytes) -> Json:
        """Return the JSON of a successful response. Raise what another one means."""
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):  # invalid UTF-8, extreme numbers and nesting included
            answer = None
        if self._key and self._key.is_in(content.decode(errors="replace")) and status < 300:
            raise _Failure("an answer that repeats the key it was asked with")
        if 200 <= status < 300:
            if not isinstance(answer, (dict, list)):
                is_page = content.lstrip()[:1] == b"<"
                kind = "a web page where the server's answer should be" if is_page else "an answer that is not JSON"
                raise _Failure(f"{kind}: {self._show(content.decode(errors='replace'))!r}")
            if not isinstance(answer, dict) or not answer.get("error"):
                return answer
            status = 502  # some proxies put errors into a successful response
        if 300 <= status < 400:
            place = urlsplit(headers.get("location", ""))
            where = self._show(f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}")
            raise ConfigError(f"the server sends on to {where}; set engine.base_url to that")
        error = answer.get("error") or answer if isinstance(answer, dict) else content.decode(errors="replace")
        if not isinstance(error, dict):
            error = {"message": error}
        raise self._interpret(status, self._key.redact_json(error) if self._key else error, headers)

    def _interpret(self, status: int, error: Mapping[str, Json], headers: Mapping[str, str]) -> Exception:
        """Return the exception for an error of the server."""
        code = error.get("code")
        if status == 502 and isinstance(code, int) and 400 <= code < 600:
            status = code
        refused = Refused(status, error)
        if status == 402 or "insufficient_quota" in (code, error.get("type")):
            return UsageError(f"the account is used up: {refused.message}; all replies so far are saved")
        if status in RETRIED or status >= 500:
            return _Failure(f"{status} {refused.message}", status, _retry_after(headers))
        if status == 401 and not self._key:
            names = "the variable that engine.api_key_env names (OPENAI_API_KEY unless set otherwise)"
            return ConfigError(f"the server wants a key, and {names} holds none: {refused.message}")
        if status == 401:
            return ConfigError(f"the server does not accept the key of engine.api_key_env: {refused.message}")
        if status == 404:
            return NotFound(f"the server does not know the model or the path: {refused.message}")
        return refused

    def _validate(self, answer: Json, validate: Callable[[Json], T]) -> T:
        try:
            return validate(answer)
        except ValueError as error:
            shown = self._show(json.dumps(answer, ensure_ascii=False))
            raise _Failure(f"{self._show(str(error))}: {shown}") from error

    def _show(self, text: str) -> str:
        """Return the start of a server's text without the key."""
        text = text[: 10 * SHOWN].encode(errors="replace").decode()  # no halves of surrogate pairs
        return (self._key.redact(text) if self._key else text)[:SHOWN]

    def _wait_for_server(self, error: _Gone) -> float:
        """Return the seconds until the next attempt. Waiting for a server costs no retry."""
        now, limit = time.monotonic(), self._policy.server_timeout
        if self._gone_since is None:
            self._gone_since = now
            log.info("no server at %s; looking again for %g s", self.url, limit)
        if now - self._gone_since >= limit:
            raise EngineDied(f"no server at {self.url} for {limit:g} s ({error}); start it, or set engine.base_url")
        wait = min(MAX_RECONNECT, self._policy.backoff * _jitter())
        _log_retry("wait", f"no server at {self.url}", wait + MAX_RECONNECT)
        return wait

    def _wait_for_retry(self, failure: _Failure, failures: int) -> float:
        """Return the seconds until the next attempt."""
        policy = self._policy
        if failure.status == RATE_LIMITED:
            self._on_rate_limited()
        if failures > policy.retries:
            raise EngineError(f"the server failed {failures} times, at last: {failure}") from failure
        if failure.after > policy.server_timeout:
            limit = f"engine.server_timeout={policy.server_timeout:g}"
            raise EngineError(f"the server asks to wait {failure.after:g} s, {limit}: {failure}") from failure
        if failure.after:
            self._resume_at = max(self._resume_at, time.monotonic() + failure.after)
        wait: float = max(failure.after, min(MAX_BACKOFF, policy.backoff * 2 ** (failures - 1))) * _jitter()
        _log_retry("wait" if failure.after else "retry", str(failure), wait)
        return wait


def find_address(base_url: str | None, key_variable: str) -> str:
    """Return the server's address from the configuration or the environment. Raise ConfigError if it is invalid.

    A name, password or query in it could be a secret, so the message does not repeat it.
    """
    url = base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"engine.base_url (or ${URL_VARIABLE}) must hold no name, password or query: "
            f"put the key into ${key_variable}"
        )
    port = parts.netloc.rpartition("]")[2].partition(":")[2] or "0"
    if parts.scheme not in ("http", "https") or not parts.hostname or not port.isdecimal():
        raise ConfigError(f"engine.base_url={url}: must be like http://127.0.0.1:8000/v1")
    return url.rstrip("/")


def find_key(variable: str, url: str) -> str | None:
    """Return the API key from the environment. Raise ConfigError if it is invalid, or OpenAI's server needs one."""
    value = os.environ.get(variable, "").strip()
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"${variable} holds characters that no key has; set it again")
    if not value and url == DEFAULT_URL:
        raise ConfigError(
            f"${variable} is not set, and {DEFAULT_URL} answers nobody without a key: "
            f"export {variable}=…, or name your own server: engine.base_url=URL (or ${URL_VARIABLE})"
        )
    return value or None


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of Retry-After; 0 without it. A date is compared with the server's own clock."""
    value: Any = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        now = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (TypeError, ValueError, OverflowError, OSError):
        return 0.0


def _jitter() -> float:
    """Return a random factor, so that calls which failed together are not repeated together."""
    return random.uniform(1.0, 1.25)  # noqa: S311 - not for secrets


def _log_retry(event: str, cause: str, seconds: float) -> None:
    """Log an event for `kgqa runs --running`, which counts equal causes."""
    fields = {"event": event, "cause": cause, "seconds": round(seconds, 2)}
    events.info("again in %.1f s: %s", seconds, cause, extra={"fields": fields})

"""Send HTTP requests to an OpenAI-compatible server, retry failed attempts, and raise one clear error at the end.

aiohttp needs a sixth of httpx2's CPU time per call (docs/dev/LOG.md). OpenAI's client does not wait for a server
that is down, ignores Retry-After of more than a minute, and does not report the time of the last attempt.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from kgqa.engines.openai.hold import Hold, RetryPolicy
from kgqa.engines.openai.messages import Meaning, find_meaning
from kgqa.errors import ConfigError, EngineError, KgqaError, ServerLost, UsageError
from kgqa.types import Json
from kgqa.util import http
from kgqa.util.jsonio import encode_request
from kgqa.util.redaction import ApiKey

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)
events = logging.getLogger("kgqa.events")  # see kgqa.runtime.monitor

T = TypeVar("T")
# seconds of an idle connection: most servers close theirs after five
KEEPALIVE = 4.0
MAX_BYTES = 32 << 20  # of a response
SHOWN = 120  # characters of an invalid response
RATE_LIMITED = 429
# OpenSSL's reason if a server answers a TLS handshake without encryption
PLAIN_HTTP = "WRONG_VERSION_NUMBER"
UNKNOWN = "the server does not know the model or the path"
LOOPBACK = ("127.0.0.1", "localhost", "::1")  # without a proxy
BUSY = frozenset({RATE_LIMITED, 503, 529})  # statuses of an overloaded server
RETRIED = frozenset({408, 409, 425, RATE_LIMITED})  # and 500 to 599
# failures of a server in a row after which a test request shows whether it works
ENOUGH = 3


class Refused(EngineError):
    """The server rejects the request. error: its error object. meaning: the meaning of its message."""

    def __init__(
        self, status: int, error: Mapping[str, Json], meaning: Meaning | None = None
    ) -> None:
        self.message = " ".join(str(error.get("message") or error.get("detail") or error).split())[
            :300
        ]
        self.error, self.meaning = error, meaning
        super().__init__(f"the server rejected the call ({status}): {self.message}")


@dataclass
class Failure(Exception):
    """An attempt failed, but another can succeed.

    reason: for the final error. cause: a few words for progress lines. after: seconds that the server asks to wait.
    is_own: the request can be the reason, if the server answers others. denied: the configuration is wrong, unless the
    server has answered a call. is_closed: no program listens at the port.
    """

    reason: str
    cause: str
    after: float = 0.0
    is_own: bool = True
    denied: str = ""
    is_closed: bool = False

    def __str__(self) -> str:
        return self.reason

    def log(self, event: str) -> None:
        events.info("%s", self, extra={"fields": {"event": event, "cause": self.reason}})


class Transport:
    """A connection to one server. It belongs to one event loop and sends any number of parallel requests.

    The API key is in the header of requests only. If a server repeats it, error messages do not.
    group: the group of keys in messages, such as "engine" for engine.base_url. socket: the file of a server on this
    machine. Then the host of the URL is only a name.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        policy: RetryPolicy,
        *,
        on_rate_limited: Callable[[], None] = lambda: None,
        group: str = "engine",
        socket: Path | None = None,
    ) -> None:
        self.url, self.policy, self._group, self._socket = url, policy, group, socket
        self._key = ApiKey(key or "")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._on_rate_limited = on_rate_limited
        self._session: aiohttp.ClientSession | None = None
        self._hold = Hold(url, policy)
        # why the last `get` returned None: the status and the server's message
        self.rejection = ""

    async def get(self, path: str) -> Json | None:
        """Return the JSON of a path below the address, or None if the server does not answer with status 200.

        A path that starts with ".." is relative to /v1. Wait for a server that does not answer.
        """
        while True:
            async with self._hold.turn() as is_trial:
                try:
                    status, headers, content = await self._send("GET", path)
                    if status != 503 or b"oading" not in content:
                        answer = _decode(content) if status == 200 else None
                        self.rejection = (
                            self._explain_rejection(status, headers, content)
                            if answer is None
                            else ""
                        )
                        return answer
                    failure = Failure(
                        "503 the model is loading", "503 (the model is loading)"
                    )  # llama.cpp
                except Failure as error:
                    failure = error
                if self._is_over(failure, is_trial=is_trial):
                    raise self._explain(failure) from failure

    async def list_models(self, path: str = "/models") -> list[dict[str, Json]] | None:
        """Return the models that the server lists, or None if it has no list."""
        answer = await self.get(path)
        listed = answer.get("data") if isinstance(answer, dict) else answer
        if not isinstance(listed, list):
            return None
        return [model for model in listed if isinstance(model, dict) and model.get("id")]

    async def fetch(self, path: str, body: Mapping[str, Json]) -> Json:
        """Return the JSON of any successful response to a request."""
        answer, _ = await self.post(path, body, lambda answer: answer)
        return answer

    async def post(
        self,
        path: str,
        body: Mapping[str, Json],
        read: Callable[[Json], T],
        make_test: Callable[[], Mapping[str, Json]] | None = None,
        salt: str = "",  # noqa: ARG002 - only batches join equal requests
    ) -> tuple[T, float]:
        """Return what `read` makes of the JSON, and the seconds of the successful attempt, with the server's queue.

        A failure of the server holds all calls, see `Hold`. A call fails only if the server answers others meanwhile,
        after `retries` more attempts.

        Args:
            read: raises ValueError for a response that a working server never sends.
            make_test: returns a small request. After `ENOUGH` failures, and after `server_timeout` seconds, it shows
                whether the server or this request is the reason.
            salt: separates equal requests that need different replies.

        Raises:
            Refused: the server rejects the request. A retry would not help.
            ConfigError: the server does not accept the key, redirects, or does not know the model or the path.
            UsageError: the account is used up.
            EngineError: all attempts failed while the server answered others.
            ServerLost: the server has failed for `server_timeout` seconds.
        """
        own, failures, is_tested = 0, 0, False
        while True:
            async with self._hold.turn() as is_trial:
                started, answers = time.perf_counter(), self._hold.answers
                try:
                    value = await self._attempt(path, body, read)
                    self._hold.succeed(is_trial=is_trial)
                    return value, time.perf_counter() - started
                except Refused:
                    self._hold.succeed(is_trial=is_trial)
                    raise
                except Failure as error:
                    failure = error
                    failures += 1
                    is_own = error.is_own and (is_tested or self._hold.answers > answers)
                    is_over = not is_own and self._is_over(error, is_trial=is_trial)
            if is_own and is_tested:
                raise EngineError(
                    f"the server answers a test call, but not this call: {failure}"
                ) from failure
            if is_own:
                own += 1
                if own > self.policy.retries:
                    raise EngineError(
                        f"the call failed {own} times while others succeeded: {failure}"
                    ) from failure
                failure.log("retry")
                await asyncio.sleep(self.policy.pause(own))
                continue
            if (
                failure.is_own
                and make_test
                and (is_over or (failures > 1 and self._hold.failures >= ENOUGH))
            ):
                is_tested = await self._passes(path, make_test(), read)
            if is_over and not is_tested:
                raise self._explain(failure) from failure

    async def _passes(self, path: str, test: Mapping[str, Json], read: Callable[[Json], T]) -> bool:
        """Return whether the server answers a test request. If it does, release all calls."""
        try:
            await self._attempt(path, test, read)
        except (Failure, Refused):
            return False
        self._hold.succeed(is_trial=True)
        return True

    async def find_status(self, path: str, body: Mapping[str, Json]) -> int | None:
        """Return the status of the response to one request, or None without a response."""
        try:
            status, _, _ = await self._send("POST", path, encode_request(dict(body)))
        except Failure:
            return None
        return status

    async def exchange(
        self, method: str, path: str, content: bytes | None, kind: str, most: int
    ) -> bytes:
        """Return the body of a successful response to one attempt. kind: of the content. most: bytes of the response.

        Raises:
            Failure: another attempt can succeed.
        """
        status, headers, body = await self._send(method, path, content, kind, most or MAX_BYTES)
        if not 200 <= status < 300:
            raise self._interpret(status, self._read_error(body), headers)
        return body

    @property
    def is_held(self) -> bool:
        """Return whether calls wait for the server."""
        return self._hold.is_held

    async def close(self) -> None:
        self._hold.close()
        if self._session is not None:
            await self._session.close()
            # transports close in the loop's next round
            await asyncio.sleep(0)

    def _is_over(self, failure: Failure, *, is_trial: bool) -> bool:
        """Hold the server. Show the first failure of one that has not answered. Return whether the run must stop."""
        failure.log("wait")
        is_closed = self._is_closed(failure)
        limit = self.policy.find_limit(is_closed=is_closed)
        if limit and not (self._hold.answers or self._hold.is_held or failure.denied):
            other = "Wait longer" if is_closed else "Stop at once"
            seconds = 600 if is_closed else 0
            cause = f"{self.url}: {str(failure).rstrip('.')}. Retrying for {limit:g} s"
            log.warning("%s. %s: %s.server_timeout=%d", cause, other, self._group, seconds)
        is_over = self._hold.fail(
            failure.cause, failure.after, is_trial=is_trial, is_closed=is_closed
        )
        return is_over or bool(failure.denied and not self._hold.answers)

    def _is_closed(self, failure: Failure) -> bool:
        """Return whether a port is closed from the start. A server that answered can come back."""
        return failure.is_closed and not self._hold.answers

    def _explain(self, failure: Failure) -> KgqaError:
        """Return the error that stops the run."""
        if failure.denied and not self._hold.answers:
            return ConfigError(failure.denied)
        limit = f"{self._group}.server_timeout={self.policy.server_timeout:g}"
        if failure.after > self.policy.server_timeout:
            return ServerLost(
                f"{self.url} requires a wait of {failure.after:g} s, but {limit}: {failure}"
            )
        is_closed = self._is_closed(failure)
        seconds = self.policy.find_limit(is_closed=is_closed)
        longer = f"If it is starting: {self._group}.server_timeout=600" if is_closed else ""
        silence = f"has not answered any call for {seconds:g} s" if seconds else "does not answer"
        return ServerLost(f"{self.url} {silence}: {failure} {longer if seconds else ''}".rstrip())

    async def _attempt(self, path: str, body: Mapping[str, Json], read: Callable[[Json], T]) -> T:
        """Return what `read` makes of the answer to one attempt."""
        answer = self._read(*await self._send("POST", path, encode_request(dict(body))))
        try:
            return read(answer)
        except ValueError as error:
            text = self._show(json.dumps(answer, ensure_ascii=False))
            raise Failure(f"{self._show(str(error))}: {text}", "an invalid answer") from error

    async def _send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        kind: str = "",
        most: int = MAX_BYTES,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of one attempt."""
        import aiohttp

        url = self.url.removesuffix("/v1") + path[2:] if path.startswith("..") else self.url + path
        try:
            request = {"data": content, "headers": {"Content-Type": kind} if kind else None}
            async with self._open().request(
                method, url, allow_redirects=False, **request
            ) as response:
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > most:
                        raise Failure(f"an answer of more than {most:,} bytes", "an endless answer")
                return response.status, response.headers, bytes(body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            key = "server=" if self._group == "engine" else f"{self._group}.base_url"
            if getattr(getattr(error, "os_error", None), "reason", "") == PLAIN_HTTP:
                key = f"{key.rstrip('=')}=http{self.url.removeprefix('https')}"
                raise ConfigError(f"{self.url}: the server speaks http: write {key}") from error
            remedy = f"Start the server, or correct {key}."
            # localhost can have two addresses, whose error has no number
            is_closed = isinstance(error, aiohttp.ClientConnectorError) and (
                urlsplit(self.url).hostname in LOOPBACK or error.errno == errno.ECONNREFUSED
            )
            reason = f"no connection ({_reason(error)}). {remedy}"
            raise Failure(reason, "no connection", is_own=False, is_closed=is_closed) from error
        except asyncio.TimeoutError as error:
            raise Failure(
                f"no answer within {self.policy.timeout:g} s", "no answer in time"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Failure(
                f"the connection broke ({type(error).__name__})", "a broken connection"
            ) from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            trusted = http.ssl_context() if self.url.startswith("https:") else True
            connector = (
                aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE, ssl=trusted)
                if self._socket is None
                else aiohttp.UnixConnector(str(self._socket), limit=0, keepalive_timeout=KEEPALIVE)
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={"User-Agent": "kgqa", "Content-Type": "application/json", **self._headers},
                timeout=aiohttp.ClientTimeout(total=self.policy.timeout, sock_connect=http.CONNECT),
                cookie_jar=aiohttp.DummyCookieJar(),
                # trust_env would read it and ~/.netrc for every request
                proxy=None
                if urlsplit(self.url).hostname in LOOPBACK
                else http.find_proxy(self.url),
            )
        return self._session

    def _read(self, status: int, headers: Mapping[str, str], content: bytes) -> Json:
        """Return the JSON of a successful response. Raise the exception for any other."""
        answer = _decode(content)
        text = content.decode(errors="replace")
        if self._key.is_in(text) and status < 300:
            raise Failure("an answer that repeats the API key", "an invalid answer")
        if 200 <= status < 300:
            if answer is None:
                kind = (
                    "a web page" if content.lstrip()[:1] == b"<" else "an answer that is not JSON"
                )
                raise Failure(f"{kind}: {self._show(text)!r}", kind)
            if not isinstance(answer, dict) or not answer.get("error"):
                return answer
            # some proxies put errors into a successful response
            status = 502
        if 300 <= status < 400:
            target = urlsplit(headers.get("location", ""))
            where = self._show(f"{target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}")
            raise ConfigError(
                f"the server redirects to {where}. Set {self._group}.base_url to that."
            )
        raise self._interpret(status, self._read_error(content), headers)

    def _read_error(self, content: bytes) -> Mapping[str, Json]:
        """Return the error object of a response without the key."""
        answer = _decode(content)
        error = (
            answer.get("error") or answer
            if isinstance(answer, dict)
            else content.decode(errors="replace")
        )
        redacted: Mapping[str, Json] = self._key.redact_json(
            error if isinstance(error, dict) else {"message": error}
        )
        return redacted

    def _interpret(
        self, status: int, error: Mapping[str, Json], headers: Mapping[str, str]
    ) -> Exception:
        """Return the exception for an error of the server."""
        code = error.get("code")
        if status == 502 and isinstance(code, int) and 400 <= code < 600:
            status = code
        meaning = find_meaning(status, error)
        refused = Refused(status, error, meaning)
        if meaning in ("too_long", "filtered", "tools"):
            return refused
        if status == 402 or meaning == "used_up":
            return UsageError(
                f"the account is used up: {refused.message}. All replies so far are saved."
            )
        if status == RATE_LIMITED or meaning == "limited":
            self._on_rate_limited()
        reason, cause, after = f"{status} {refused.message}", str(status), 0.0
        with suppress(ValueError):  # it can be a date
            after = max(0.0, float(headers.get("retry-after", "")))
        if status in BUSY or meaning == "limited" or (after and status >= 500):
            return Failure(reason, cause, after, is_own=False)
        if status in RETRIED or status >= 500:
            return Failure(reason, cause, after)
        if status == 401 or meaning == "key":
            return Failure(reason, cause, is_own=False, denied=self._explain_key(refused))
        if status == 403:
            return Failure(reason, cause, denied=f"the server denies access: {refused.message}")
        if status == 404:
            return ConfigError(f"{UNKNOWN}: {refused.message}")
        return refused

    def _explain_rejection(self, status: int, headers: Mapping[str, str], content: bytes) -> str:
        """Return the status of a response without the expected JSON, and the server's message."""
        if status >= 400:
            return f"{status} {Refused(status, self._read_error(content)).message}"
        try:
            self._read(status, headers, content)
        except (Failure, KgqaError) as error:
            return str(error)
        return ""

    def _explain_key(self, refused: Refused) -> str:
        if self._headers:
            return f"the server does not accept the key of {self._group}.api_key_env: {refused.message}"
        names = f"the variable that {self._group}.api_key_env names (OPENAI_API_KEY unless set otherwise)"
        remedy = "Set it, for example: export OPENAI_API_KEY=…"
        return f"the server requires a key, and {names} is not set: {refused.message}. {remedy}"

    def _show(self, text: str) -> str:
        """Return the start of a server's text without the key."""
        text = text[: 10 * SHOWN].encode(errors="replace").decode()  # no halves of surrogate pairs
        return self._key.redact(text)[:SHOWN]


def _reason(error: Exception) -> str:
    """Return why there is no connection, such as "Connection refused"."""
    cause = getattr(error, "os_error", None)
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)
    if isinstance(cause, socket.gaierror) and cause.strerror:
        # a wrong name of a host: aiohttp adds its own settings to the text
        return str(cause.strerror)
    return str(error) or type(error).__name__


def _decode(content: bytes) -> Json | None:
    """Return the object or list of a response, or None if it is not JSON, not UTF-8 or nested too deeply."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, (dict, list)) else None

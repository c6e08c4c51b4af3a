"""HTTP to an OpenAI-compatible server: retry failed attempts, and turn the final failure into one clear error.

aiohttp costs a sixth of httpx2's CPU per call (docs/PERFORMANCE.md). OpenAI's own client is not used: it does not wait
for a server that is down for a while, ignores Retry-After beyond a minute, and hides how long the last attempt took.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from kgqa.engines.openai.hold import Hold, RetryPolicy
from kgqa.engines.openai.messages import Meaning, find_meaning
from kgqa.errors import ConfigError, EngineError, KgqaError, ServerLost, UsageError
from kgqa.types import Json
from kgqa.util import http
from kgqa.util.jsonio import encode_request
from kgqa.util.redaction import Key

if TYPE_CHECKING:
    import aiohttp

events = logging.getLogger("kgqa.events")  # see kgqa.runtime.work_log

T = TypeVar("T")
DEFAULT_URL = "https://api.openai.com/v1"
URL_VARIABLE = "OPENAI_BASE_URL"
KEEPALIVE = 4.0  # seconds of an idle connection: most servers close theirs after five
MAX_BYTES = 32 << 20  # of a response
SHOWN = 120  # characters of an invalid response
RATE_LIMITED = 429
LOOPBACK = ("127.0.0.1", "localhost", "::1")  # no proxy is used for them
BUSY = frozenset({RATE_LIMITED, 503, 529})  # the server has no time, whatever the request is
RETRIED = frozenset({408, 409, 425, RATE_LIMITED})  # and all of 500 to 599


class Refused(EngineError):
    """The server understood the request and rejects it. `error`: its error object. `meaning`: of its message."""

    def __init__(self, status: int, error: Mapping[str, Json], meaning: Meaning | None = None) -> None:
        self.message = " ".join(str(error.get("message") or error).split())[:300]
        self.error, self.meaning = error, meaning
        super().__init__(f"the server refused the call ({status}): {self.message}")


@dataclass
class _Failure(Exception):
    """An attempt failed, but another can succeed.

    reason: why, for the error at the end. cause: in a word, for progress lines. after: seconds that the server asks to
    wait. is_own: the request can be the reason, if the server answers others. denied: the error of a server that has
    not answered anything yet. outcome: the request failed; the server is held; it has failed for too long.
    """

    reason: str
    cause: str
    after: float = 0.0
    is_own: bool = True
    denied: KgqaError | None = None
    outcome: Literal["own", "held", "over"] = "held"

    def __str__(self) -> str:
        return self.reason


class Transport:
    """A server's address and key. It belongs to one event loop and sends any number of parallel requests.

    The key is sent in the request's header only. If a server repeats it, error messages do not.
    group: of the keys that messages name, as in engine.base_url.
    """

    def __init__(
        self, url: str, key: str | None, policy: RetryPolicy, on_rate_limited: Callable[[], None], group: str = "engine"
    ) -> None:
        self.url, self.policy, self._group = url, policy, group
        self._key = Key(key) if key else None
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._on_rate_limited = on_rate_limited
        self._session: aiohttp.ClientSession | None = None
        self._hold = Hold(url, policy)

    async def get(self, path: str) -> Json | None:
        """Return the JSON of a path below the address, or None if the server does not answer with status 200.

        A path that starts with ".." is relative to /v1. Wait for a server that is gone.
        """
        while True:
            is_trial = await self._hold.enter()
            try:
                status, _, content = await self._send("GET", self._locate(path), None)
                if status == 503 and b"oading" in content:  # llama.cpp while it loads the model
                    raise _Failure("503 the model is loading", "503 (the model is loading)", is_own=False)  # noqa: TRY301
            except _Failure as failure:
                self._hold_server(failure, is_trial=is_trial)
                if failure.outcome == "over":
                    raise self._explain(failure) from failure
            else:
                self._hold.leave(is_trial=is_trial)
                return _decode(content) if status == 200 else None

    async def post(
        self,
        path: str,
        body: Mapping[str, Json],
        validate: Callable[[Json], T],
        test: Mapping[str, Json] | None = None,
    ) -> tuple[T, float]:
        """Return the validated JSON, and the seconds of the attempt that succeeded, with the server's queue.

        A failure of the server holds all calls, see `Hold`. A call fails only if the server answers others meanwhile,
        and then after `retries` more attempts.

        Args:
            validate: raises ValueError for a response that no server which works would send.
            test: a small request. If the server has failed for `server_timeout` seconds, it shows whether the server
                or this request is the reason.

        Raises:
            Refused: the server rejects the request. A retry would not help.
            ConfigError: it does not accept the key, redirects, or does not know the model or the path.
            UsageError: the account is used up.
            EngineError: every attempt failed, and the server answered others.
            ServerLost: the server has failed for `server_timeout` seconds.
        """
        url, content = self._locate(path), encode_request(dict(body))
        own, is_tested = 0, False
        while True:
            try:
                return await self._take_turn(url, content, validate)
            except _Failure as failure:  # noqa: PERF203 - each attempt can fail
                if failure.outcome == "own":
                    own += 1
                    if own > self.policy.retries:
                        raise EngineError(f"the call failed {own} times while others did not: {failure}") from failure
                    _log("retry", failure)
                    await asyncio.sleep(self.policy.pause(own))
                elif failure.outcome == "over":
                    if is_tested:
                        raise EngineError(f"the server answers a test, but not this call: {failure}") from failure
                    if not (failure.is_own and test and await self._works(url, test, validate)):
                        raise self._explain(failure) from failure
                    is_tested = True

    async def close(self) -> None:
        self._hold.close()
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # transports close in the loop's next round

    def _locate(self, path: str) -> str:
        return self.url.removesuffix("/v1") + path[2:] if path.startswith("..") else self.url + path

    async def _take_turn(self, url: str, content: bytes, validate: Callable[[Json], T]) -> tuple[T, float]:
        """Make one attempt when the server is not held, or to try whether it answers again."""
        is_trial = await self._hold.enter()
        started, answers = time.perf_counter(), self._hold.answers
        try:
            answer = await self._attempt(url, content, validate)
        except _Failure as failure:
            if failure.is_own and self._hold.answers > answers:
                self._hold.leave(is_trial=is_trial)
                failure.outcome = "own"
            else:
                self._hold_server(failure, is_trial=is_trial)
            raise
        except Refused:
            self._hold.succeed(is_trial=is_trial)
            raise
        except BaseException:  # also a cancelled call
            self._hold.leave(is_trial=is_trial)
            raise
        self._hold.succeed(is_trial=is_trial)
        return answer, time.perf_counter() - started

    def _hold_server(self, failure: _Failure, *, is_trial: bool) -> None:
        is_over = self._hold.fail(failure.cause, failure.after, is_trial=is_trial)
        if is_over or (failure.denied is not None and not self._hold.answers):
            failure.outcome = "over"
        _log("wait", failure)

    async def _works(self, url: str, test: Mapping[str, Json], validate: Callable[[Json], object]) -> bool:
        """Return whether the server answers a small request."""
        try:
            await self._attempt(url, encode_request(dict(test)), validate)
        except (_Failure, Refused):
            return False
        return True

    def _explain(self, failure: _Failure) -> KgqaError:
        """Return the error that stops the run."""
        if failure.denied and not self._hold.answers:
            return failure.denied
        limit = f"{self._group}.server_timeout={self.policy.server_timeout:g}"
        if failure.after > self.policy.server_timeout:
            return ServerLost(f"{self.url} asks to wait {failure.after:g} s, and {limit}: {failure}")
        return ServerLost(f"{self.url} has not answered any call for {self.policy.server_timeout:g} s: {failure}")

    async def _attempt(self, url: str, content: bytes, validate: Callable[[Json], T]) -> T:
        """Return the validated answer of one attempt."""
        answer = self._read(*await self._send("POST", url, content))
        try:
            return validate(answer)
        except ValueError as error:
            shown = self._show(json.dumps(answer, ensure_ascii=False))
            raise _Failure(f"{self._show(str(error))}: {shown}", "an invalid answer") from error

    async def _send(self, method: str, url: str, content: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of one attempt."""
        import aiohttp

        try:
            async with self._open().request(method, url, data=content, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        raise _Failure(f"an answer of more than {MAX_BYTES:,} bytes", "an endless answer")
                return response.status, response.headers, bytes(body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason = f"no connection ({str(error) or type(error).__name__})"
            remedy = f"start the server, or set {self._group}.base_url"
            raise _Failure(f"{reason}; {remedy}", "no connection", is_own=False) from error
        except asyncio.TimeoutError as error:
            raise _Failure(f"no answer within {self.policy.timeout:g} s", "no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Failure(f"the connection broke ({type(error).__name__})", "a broken connection") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            trusted = http.ssl_context() if self.url.startswith("https:") else True
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE, ssl=trusted),
                headers={"User-Agent": "kgqa", "Content-Type": "application/json", **self._headers},
                timeout=aiohttp.ClientTimeout(total=self.policy.timeout, sock_connect=http.CONNECT),
                cookie_jar=aiohttp.DummyCookieJar(),
                # trust_env would look for it, and into ~/.netrc, with every request
                proxy=None if urlsplit(self.url).hostname in LOOPBACK else http.find_proxy(self.url),
            )
        return self._session

    def _read(self, status: int, headers: Mapping[str, str], content: bytes) -> Json:
        """Return the JSON of a successful response. Raise what another one means."""
        answer = _decode(content)
        text = content.decode(errors="replace")
        if self._key and self._key.is_in(text) and status < 300:
            raise _Failure("an answer that repeats the key it was sent", "an invalid answer")
        if 200 <= status < 300:
            if answer is None:
                kind = "a web page" if content.lstrip()[:1] == b"<" else "an answer that is not JSON"
                raise _Failure(f"{kind}: {self._show(text)!r}", kind)
            if not isinstance(answer, dict) or not answer.get("error"):
                return answer
            status = 502  # some proxies put errors into a successful response
        if 300 <= status < 400:
            place = urlsplit(headers.get("location", ""))
            where = self._show(f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}")
            raise ConfigError(f"the server sends on to {where}; set {self._group}.base_url to that")
        error = answer.get("error") or answer if isinstance(answer, dict) else text
        if not isinstance(error, dict):
            error = {"message": error}
        raise self._interpret(status, self._key.redact_json(error) if self._key else error, headers)

    def _interpret(self, status: int, error: Mapping[str, Json], headers: Mapping[str, str]) -> Exception:
        """Return the exception for an error of the server."""
        code = error.get("code")
        if status == 502 and isinstance(code, int) and 400 <= code < 600:
            status = code
        meaning = find_meaning(status, error)
        refused = Refused(status, error, meaning)
        if meaning in ("too_long", "filtered", "tools"):
            return refused
        if status == 402 or meaning == "used_up":
            return UsageError(f"the account is used up: {refused.message}; all replies so far are saved")
        if status == RATE_LIMITED or meaning == "limited":
            self._on_rate_limited()
        reason, cause, after = f"{status} {refused.message}", str(status), _retry_after(headers)
        if status in BUSY or meaning == "limited" or (after and status >= 500):
            return _Failure(reason, cause, after, is_own=False)
        if status in RETRIED or status >= 500:
            return _Failure(reason, cause, after)
        if status == 401 or meaning == "key":
            return _Failure(reason, cause, is_own=False, denied=ConfigError(self._explain_key(refused)))
        if status == 403:
            return _Failure(reason, cause, denied=ConfigError(f"the server denies access: {refused.message}"))
        if status == 404:
            return ConfigError(f"the server does not know the model or the path: {refused.message}")
        return refused

    def _explain_key(self, refused: Refused) -> str:
        if self._key:
            return f"the server does not accept the key of {self._group}.api_key_env: {refused.message}"
        names = f"the variable that {self._group}.api_key_env names (OPENAI_API_KEY unless set otherwise)"
        return f"the server wants a key, and {names} holds none: {refused.message}"

    def _show(self, text: str) -> str:
        """Return the start of a server's text without the key."""
        text = text[: 10 * SHOWN].encode(errors="replace").decode()  # no halves of surrogate pairs
        return (self._key.redact(text) if self._key else text)[:SHOWN]


def find_address(base_url: str | None, key_variable: str, group: str = "engine") -> str:
    """Return the server's address from the configuration or the environment. Raise ConfigError if it is invalid.

    A name, password or query in it could be a secret, so the message does not repeat it. Nor does it repeat a key that
    is in the place of the variable's name.
    """
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key_variable):
        raise ConfigError(f"{group}.api_key_env: must be the NAME of an environment variable, in capitals")
    url = base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"{group}.base_url (or ${URL_VARIABLE}) must hold no name, password or query: "
            f"put the key into ${key_variable}"
        )
    port = parts.netloc.rpartition("]")[2].partition(":")[2] or "0"
    if parts.scheme not in ("http", "https") or not parts.hostname or not port.isdecimal():
        raise ConfigError(f"{group}.base_url={url}: must be like http://127.0.0.1:8000/v1")
    return url.rstrip("/")


def find_key(variable: str, url: str, group: str = "engine") -> str | None:
    """Return the API key from the environment. Raise ConfigError if it is invalid, or OpenAI's server needs one."""
    value = os.environ.get(variable, "").strip()
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"${variable} holds characters that no key has; set it again")
    if not value and url == DEFAULT_URL:
        raise ConfigError(
            f"${variable} is not set, and {DEFAULT_URL} requires a key: "
            f"export {variable}=…, or name your own server: {group}.base_url=URL (or ${URL_VARIABLE})"
        )
    return value or None


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of Retry-After; 0 without it, or if it is a date."""
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return 0.0


def _log(event: str, failure: _Failure) -> None:
    events.info("%s", failure, extra={"fields": {"event": event, "cause": failure.reason}})


def _decode(content: bytes) -> Json | None:
    """Return the object or list of a response; None if it is not JSON, invalid UTF-8 and extreme nesting included."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, (dict, list)) else None

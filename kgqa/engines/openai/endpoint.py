"""HTTP to an OpenAI-compatible server: tries again where that can help, gives up in words where it cannot.

The retries of OpenAI's own client are not used: it knows neither a server that is down
for a while and comes back, nor Retry-After beyond a minute, and it hides how long the attempt that counted took.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from kgqa.engines.openai.answers import longest, texts
from kgqa.engines.openai.connection import Connections, Received
from kgqa.errors import ConfigError, EngineDied, EngineError, UsageError
from kgqa.types import Json
from kgqa.util import http
from kgqa.util.jsonio import encode_request
from kgqa.util.redaction import Key

log = logging.getLogger(__name__)
events = logging.getLogger("kgqa.events")  # see kgqa.runtime.work_log

LONGEST_BACKOFF = 30.0  # seconds between two attempts, unless the server asks for more
LOOK_AGAIN = 5.0  # seconds between two looks at a server that is gone
TOO_OFTEN = 429
AGAIN = frozenset({408, 409, 425, TOO_OFTEN})  # and all of 500 to 599
SHOWN = 120  # characters of an answer that is none
READ = 4000  # of it, to look for what must not be shown
Lacking = Callable[[Mapping[str, Json], Mapping[str, Json]], str]  # answer, request -> why it is none, or ""


class ServerReply(NamedTuple):
    """A server's JSON, and the seconds of the attempt that succeeded, the server's queue included."""

    json: dict[str, Json]
    seconds: float


class Refused(EngineError):
    """The server understood the request and will not do it. `parameter`: which part of it, where it says."""

    def __init__(self, status: int, error: Mapping[str, Json]) -> None:
        self.message = " ".join(str(error.get("message") or error).split())[:300]
        self.status, self.error = status, error
        self.parameter = str(error.get("param") or "")
        super().__init__(f"the server refused the call ({status}): {self.message}")


class Unknown(ConfigError):
    """The server does not know the model or the path."""


class _Trouble(Exception):
    """This attempt failed, another one may not. `status`: the server's; `after`: seconds that it asks to wait."""

    def __init__(self, reason: str, status: int = 0, after: float = 0.0) -> None:
        super().__init__(reason)
        self.status, self.after = status, after


@dataclass(frozen=True)
class Persistence:
    """The retry settings: timeout of one attempt, number of retries, waiting time before the first retry."""

    timeout: float
    retries: int
    backoff: float
    patience: float


class Endpoint:
    """A server's address and key. Belongs to the event loop it is used in; as many requests at once as it is given.

    The key is put into the request's header and nowhere else; a server that repeats it is not repeated, and a reply
    that holds it is an attempt that failed.
    """

    def __init__(
        self, url: str, key: str | None, persistence: Persistence, crowded: Callable[[], None] = lambda: None
    ) -> None:
        """crowded: is told when the server says that it is asked too often."""
        self.url = url.rstrip("/")
        self._key = Key(key) if key else None
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._connections = Connections(self.url, headers, persistence.timeout)
        self._persistence, self._crowded = persistence, crowded
        self._gone_since: float | None = None
        self._resume_at = 0.0  # what one call learns from Retry-After holds for all

    async def get(self, path: str) -> dict[str, Json]:
        """Return a path below the address, e.g. "/models"; one that starts with ".." is taken beside it."""
        return (await self._ask("GET", path, None, None)).json

    async def post(self, path: str, body: Mapping[str, Json], lacking: Lacking | None = None) -> ServerReply:
        """Return the server's answer. `lacking`: what makes it none, so that it is asked for again.

        Raises:
            Refused: it says that the request is wrong; asking again would not help.
            ConfigError: it does not accept the key, lies elsewhere, or (Unknown) does not know the model or the path.
            UsageError: the account is used up.
            EngineError: every attempt failed.
            EngineDied: nobody has listened for longer than `patience`.
        """
        return await self._ask("POST", path, body, lacking)

    async def close(self) -> None:
        await self._connections.close()

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Json] | None, lacking: Lacking | None
    ) -> ServerReply:
        url = self.url.removesuffix("/v1") + path[2:] if path.startswith("..") else self.url + path
        failures = 0
        while True:
            if (early := self._resume_at - time.monotonic()) > 0:
                await asyncio.sleep(early)
            try:
                answered = await self._attempt(method, url, body)
                if lacking and body is not None:
                    self._accept(answered.json, lacking(answered.json, body))
            except http.ConnectionFailed as gone:
                wait = self._until_next_look(gone)
            except _Trouble as trouble:
                failures += 1
                wait = self._until_next_attempt(trouble, failures)
            else:
                return answered
            await asyncio.sleep(wait)

    async def _attempt(self, method: str, url: str, body: Mapping[str, Json] | None) -> ServerReply:
        content = None if body is None else encode_request(dict(body))
        started = time.perf_counter()
        try:
            received = await self._connections.ask(method, url, content, longest(body, len(content or b"")))
        except http.ConnectionFailed:
            raise
        except http.ResponseTimeout as error:
            raise _Trouble(f"no answer within {self._persistence.timeout:g} s") from error
        except http.NoResponse as error:
            raise _Trouble(self._show(str(error))) from error
        self._gone_since = None
        return ServerReply(self._read(received, asks=body is not None), time.perf_counter() - started)

    def _read(self, received: Received, *, asks: bool) -> dict[str, Json]:
        status, headers, content = received
        answer = _json(content)
        if isinstance(answer, list) and not asks:
            answer = {"data": answer}  # as OpenAI's lists are; llama.cpp's of its adapters is bare
        if 200 <= status < 300:
            if not isinstance(answer, dict):
                raise _Trouble(f"{_unlike_json(content)}: {self._show(content[:READ].decode(errors='replace'))!r}")
            if not answer.get("error"):
                if self._key and self._key.is_in("\n".join(texts(answer))):
                    raise _Trouble("an answer that repeats the key it was asked with")
                return answer
        if 300 <= status < 400:
            raise ConfigError(f"the server sends on to {self._place(headers)}; set engine.base_url to that")
        told = answer if isinstance(answer, dict) else {"error": content[:READ].decode(errors="replace")}
        inner = told.get("error") or told
        error = inner if isinstance(inner, dict) else {"message": inner}
        if status == 401 and not self._key:
            names = "the variable that engine.api_key_env names (OPENAI_API_KEY unless set otherwise)"
            raise ConfigError(f"the server wants a key, and {names} holds none: {Refused(status, error).message}")
        raise _refusal(status, self._key.redact_json(error) if self._key else error, headers)

    def _accept(self, answer: Mapping[str, Json], reason: str) -> None:
        """Raise _Trouble where there is a reason against it."""
        if reason:
            raise _Trouble(f"{reason}: {self._show(json.dumps(answer, ensure_ascii=False))}")

    def _show(self, text: str) -> str:
        """Return the beginning of what a server said."""
        text = text[:READ]
        return (self._key.redact(text) if self._key else text)[:SHOWN]

    def _place(self, headers: Mapping[str, str]) -> str:
        """Return where a redirection leads, with nothing that could be a secret."""
        parts = urlsplit(headers.get("location", ""))
        host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""
        return self._show(host + parts.path) or "another place"

    def _until_next_look(self, gone: http.ConnectionFailed) -> float:
        """Return seconds to wait for a server that is gone; waiting for it costs no call an attempt."""
        now = time.monotonic()
        patience = self._persistence.patience
        if self._gone_since is None:
            self._gone_since = now
            log.info("no server at %s; looking again for %g s", self.url, patience)
        if now - self._gone_since >= patience:
            raise EngineDied(f"no server at {self.url} for {patience:g} s ({gone}); start it, or set engine.base_url")
        wait = min(LOOK_AGAIN, self._persistence.backoff * _jitter())
        _tell("wait", f"no server at {self.url}", wait + LOOK_AGAIN)
        return wait

    def _until_next_attempt(self, trouble: _Trouble, failures: int) -> float:
        limits = self._persistence
        if trouble.status == TOO_OFTEN:
            self._crowded()
        if failures > limits.retries:
            raise EngineError(f"the server failed {failures} times, at last: {trouble}") from trouble
        if trouble.after > limits.patience:
            raise EngineError(
                f"the server asks to wait {trouble.after:g} s, engine.patience={limits.patience:g}: {trouble}"
            ) from trouble
        if trouble.after:
            self._resume_at = max(self._resume_at, time.monotonic() + trouble.after)
        wait: float = max(trouble.after, min(LONGEST_BACKOFF, limits.backoff * 2 ** (failures - 1))) * _jitter()
        _tell("wait" if trouble.after else "retry", str(trouble), wait)
        return wait


def _tell(event: str, cause: str, seconds: float) -> None:
    """For logs and `kgqa runs --running`, which count equal causes."""
    told = {"event": event, "cause": cause, "seconds": round(seconds, 2)}
    events.info("again in %.1f s: %s", seconds, cause, extra={"fields": told})


def _refusal(status: int, error: Mapping[str, Json], headers: Mapping[str, str]) -> Exception:
    """Return what an answer that brings no reply means."""
    if status < 300:  # some proxies answer so and put the status inside
        status = code if isinstance(code := error.get("code"), int) and 400 <= code < 600 else 502
    refused = Refused(status, error)
    if status == 402 or "insufficient_quota" in (error.get("code"), error.get("type")):
        return UsageError(f"the account is used up: {refused.message}; everything answered so far is saved")
    if status in AGAIN or status >= 500:
        return _Trouble(f"{status} {refused.message}", status, _retry_after(headers))
    if status == 401:
        return ConfigError(f"the server does not accept the key of engine.api_key_env: {refused.message}")
    if status == 404:
        return Unknown(f"the server does not know the model or the path: {refused.message}")
    return refused


def _json(content: bytes) -> Json:
    """Return None where it is not JSON: an encoding that is none, numbers and nesting beyond measure included."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _unlike_json(content: bytes) -> str:
    is_page = content.lstrip()[:1] == b"<"
    return "a web page where the server's answer should be" if is_page else "an answer that is not a JSON object"


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return seconds; 0 where the server does not say. The header holds seconds or a date, which is read by its own
    clock.
    """
    value = headers.get("retry-after", "")
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

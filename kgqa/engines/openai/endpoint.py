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
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from kgqa import http
from kgqa.errors import ConfigError, EngineDied, EngineError, UsageError
from kgqa.types import Json

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)
events = logging.getLogger("kgqa.events")  # see kgqa.runtime.work_log

LONGEST_BACKOFF = 30.0  # seconds between two attempts, unless the server asks for more
LOOK_AGAIN = 5.0  # seconds between two looks at a server that is gone
AGAIN = frozenset({408, 409, 425, 429})  # and all of 500 to 599


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
    """This attempt failed, another one may not. `after`: seconds the server asks to wait."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True)
class Persistence:
    """How long to go on: seconds for one attempt, attempts beside the first, seconds before the second attempt
    (doubled each time), and seconds that a server may be gone or ask to wait."""

    timeout: float
    retries: int
    backoff: float
    patience: float


class Endpoint:
    """A server's address and key. Belongs to the event loop it is used in; as many requests at once as it is given.

    The key is put into the request's header and nowhere else; a server that repeats it is not repeated.
    """

    def __init__(self, url: str, key: str | None, persistence: Persistence, connections: int) -> None:
        self.url = url.rstrip("/")
        self._key, self._persistence, self._connections = key, persistence, connections
        self._client: httpx2.AsyncClient | None = None
        self._gone_since: float | None = None
        self._resume_at = 0.0  # what one call learns from Retry-After holds for all

    async def get(self, path: str) -> dict[str, Json]:
        """A path below the address, e.g. "/models"; one that starts with ".." is taken beside it."""
        return (await self._ask("GET", path, None)).json

    async def post(self, path: str, body: Mapping[str, Json]) -> ServerReply:
        """The server's answer.

        Raises:
            Refused: it says that the request is wrong; asking again would not help.
            ConfigError: it does not accept the key, or (Unknown) does not know the model or the path.
            UsageError: the account is used up.
            EngineError: every attempt failed.
            EngineDied: nobody has listened for longer than `patience`.
        """
        return await self._ask("POST", path, body)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _ask(self, method: str, path: str, body: Mapping[str, Json] | None) -> ServerReply:
        url = self.url.removesuffix("/v1") + path[2:] if path.startswith("..") else self.url + path
        failures = 0
        while True:
            await asyncio.sleep(max(0.0, self._resume_at - time.monotonic()))
            try:
                return await self._attempt(method, url, body)
            except http.NoServer as gone:
                wait = self._until_next_look(gone)
            except _Trouble as trouble:
                failures += 1
                wait = self._until_next_attempt(trouble, failures)
            await asyncio.sleep(wait)

    async def _attempt(self, method: str, url: str, body: Mapping[str, Json] | None) -> ServerReply:
        client = self._opened()
        started = time.perf_counter()
        try:
            with http.in_words():
                request = client.request(method, url, json=body)
                response = await asyncio.wait_for(request, self._persistence.timeout)
        except http.NoServer:
            raise
        except (asyncio.TimeoutError, http.Silent) as error:
            raise _Trouble(f"no answer within {self._persistence.timeout:g} s") from error
        except http.Unanswered as error:
            raise _Trouble(str(error)) from error
        self._gone_since = None
        return ServerReply(self._read(response), time.perf_counter() - started)

    def _read(self, response: httpx2.Response) -> dict[str, Json]:
        answer = _json(response.text)
        if response.status_code == 200 and isinstance(answer, dict) and "error" not in answer:
            return answer
        text = response.text.replace(self._key, "[key]") if self._key else response.text  # it goes into a message
        if response.status_code == 200 and not isinstance(_json(text), dict):
            raise _Trouble(f"an answer that is not a JSON object: {text[:80]!r}")
        raise _refusal(response.status_code, text, response.headers)

    def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._client = http.async_client(headers, self._connections)
        return self._client

    def _until_next_look(self, gone: http.NoServer) -> float:
        """Seconds to wait for a server that is gone; waiting for it costs no call an attempt."""
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
    """For logs and `kgqa status`, which count equal causes."""
    told = {"event": event, "cause": cause, "seconds": round(seconds, 2)}
    events.info("again in %.1f s: %s", seconds, cause, extra={"told": told})


def _refusal(status: int, text: str, headers: Mapping[str, str]) -> Exception:
    """What an answer that brings no reply means."""
    answer = _json(text)
    inner = answer.get("error", answer) if isinstance(answer, dict) else text[:300]
    error = inner if isinstance(inner, dict) else {"message": str(inner)}
    if status == 200:  # some proxies answer so and put the status inside
        status = code if isinstance(code := error.get("code"), int) and 400 <= code < 600 else 502
    refused = Refused(status, error)
    if status == 402 or "insufficient_quota" in (error.get("code"), error.get("type")):
        return UsageError(f"the account is used up: {refused.message}; everything answered so far is saved")
    if status in AGAIN or status >= 500:
        return _Trouble(f"{status} {refused.message}", _retry_after(headers))
    if status == 401:
        return ConfigError(f"the server does not accept the key of engine.api_key_env: {refused.message}")
    if status == 404:
        return Unknown(f"the server does not know the model or the path: {refused.message}")
    return refused


def _json(text: str) -> Json:
    """None where it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds; 0 where the server does not say. The header holds seconds or a date."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def _jitter() -> float:
    """So that calls which failed together do not come back together."""
    return random.uniform(1.0, 1.25)  # noqa: S311 - not for secrets

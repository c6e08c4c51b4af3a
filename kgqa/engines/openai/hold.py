"""Hold all calls to a server that fails until one succeeds. Then let them all go.

One rule for everything that is the server's fault: a call never fails for it. If no call succeeds for
`server_timeout` seconds, the run stops and can be resumed.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kgqa.util.waiting import add_wait, remove_wait

MAX_PAUSE = 16.0  # seconds between two attempts, unless the server asks for more
ALMOST = 0.01  # seconds: a timer can be this early


@dataclass(frozen=True)
class RetryPolicy:
    """Seconds of one attempt, number of retries, seconds before the first retry, seconds that a server can fail."""

    timeout: float
    retries: int
    backoff: float
    server_timeout: float

    def pause(self, failures: int) -> float:
        """Return the seconds after so many failures. The factor keeps calls that failed together apart."""
        factor = random.uniform(1.0, 1.25)  # noqa: S311 - not for secrets
        return min(MAX_PAUSE, self.backoff * 2.0 ** min(failures - 1, 16)) * factor


@dataclass
class Hold:
    """The state of one server. It belongs to one event loop; `describe` can be called from any thread."""

    url: str
    policy: RetryPolicy
    answers: int = 0  # that the server gave: a call that fails sees whether others were answered meanwhile
    _is_held: bool = False
    _is_closed: bool = False
    _trial: asyncio.Lock = field(default_factory=asyncio.Lock)  # of the one call that tries a held server
    _waiting: int = 0
    _since: float = 0.0  # the first failure after which no call has succeeded; 0: there is none
    _failures: int = 0  # since then
    _next: float = 0.0  # when the next attempt can start
    _cause: str = ""

    async def enter(self) -> bool:
        """Wait until an attempt can start. Return whether it is a trial, which one of the other methods ends."""
        if not self._is_held:
            return False
        self._waiting += 1
        try:
            await self._trial.acquire()
        finally:
            self._waiting -= 1
        is_trial = False
        try:
            if self._is_held:
                await asyncio.sleep(self._next - time.monotonic())
            is_trial = self._is_held
        finally:
            if not is_trial:  # also if the call is cancelled
                self._trial.release()
        return is_trial

    def succeed(self, *, is_trial: bool) -> None:
        """Count an answer. After a trial, let all calls go."""
        self.answers += 1
        if is_trial:
            self._is_held, self._since, self._failures = False, 0.0, 0
            remove_wait(self.describe)
        self.leave(is_trial=is_trial)

    def leave(self, *, is_trial: bool) -> None:
        """End an attempt that shows nothing about the server."""
        if is_trial:
            self._trial.release()

    def fail(self, cause: str, after: float, *, is_trial: bool) -> bool:
        """Hold the server after a failure of its own. Return whether it has failed for too long.

        Args:
            cause: as in "503 from HOST".
            after: seconds that the server asks to wait; 0 if it does not.
        """
        if self._is_held and not is_trial:  # sent before the server was held
            return False
        if not self._is_held:
            self._is_held = True
            if not self._is_closed:
                add_wait(self.describe)
        self.leave(is_trial=is_trial)
        now, limit = time.monotonic(), self.policy.server_timeout
        self._since = self._since or now
        self._failures += 1
        self._cause = cause
        left = self._since + limit - now
        pause = after or self.policy.pause(self._failures)
        self._next = now + min(pause, max(left, 0.0))  # the last attempt is at the end of the time
        return left <= ALMOST or after > left

    def close(self) -> None:
        """Stop showing the wait, also of attempts that fail later because the connection was closed."""
        self._is_closed = True
        remove_wait(self.describe)

    def describe(self) -> str:
        """Return why the calls wait, and for how long; "" while they do not."""
        if not self._since:
            return ""
        left = max(0.0, self._next - time.monotonic())
        calls = self._waiting + self._trial.locked()
        host = urlsplit(self.url).netloc
        count = "1 call waits" if calls == 1 else f"{calls} calls wait"
        return f"{self._cause} from {host}, next try in {left:.0f} s, {count}" if calls else ""

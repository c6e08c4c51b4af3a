"""Hold all calls to a server that fails until one succeeds, then release them all.

A call never fails because of its server. If no call succeeds for `server_timeout` seconds, the run stops and can be
resumed.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kgqa.util.waiting import add_wait, remove_wait

# seconds between two attempts, unless the server asks for more
MAX_PAUSE = 16.0
# seconds: a timer can be this early
ALMOST = 0.01


@dataclass(frozen=True)
class RetryPolicy:
    """Seconds of one attempt, number of retries, seconds before the first retry, seconds that a server can fail.

    closed_timeout: the last one for a closed port that has not answered yet, if it is shorter.
    """

    timeout: float
    retries: int
    backoff: float
    server_timeout: float
    closed_timeout: float = math.inf

    def find_limit(self, *, is_closed: bool) -> float:
        """Return the seconds that a failure of the server can last."""
        return min(self.server_timeout, self.closed_timeout) if is_closed else self.server_timeout

    def pause(self, failures: int) -> float:
        """Return the seconds to wait. A random factor separates calls that failed together."""
        factor = random.uniform(1.0, 1.25)  # noqa: S311 - not for secrets
        return min(MAX_PAUSE, self.backoff * 2.0 ** min(failures - 1, 16)) * factor


@dataclass
class Hold:
    """The state of one server. It belongs to one event loop. `describe` can be called from any thread."""

    url: str
    policy: RetryPolicy
    # of the server: a call that fails sees whether others were answered meanwhile
    answers: int = 0
    # since the server was held
    failures: int = 0
    # of the one call that tries a held server
    _trial: asyncio.Lock = field(default_factory=asyncio.Lock)
    # calls, with the one that tries
    _waiting: int = 0
    # when the server was held; None: it is not
    _since: float | None = None
    # when the next attempt can start
    _next: float = 0.0
    _cause: str = ""

    @property
    def is_held(self) -> bool:
        return self._since is not None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Wait until an attempt can start. Yield whether it is a trial, the only attempt while the server is held."""
        if self._since is not None:
            self._waiting += 1
            try:
                async with self._trial:
                    if self._since is not None:
                        await asyncio.sleep(self._next - time.monotonic())
                        yield True
                        return
            finally:
                self._waiting -= 1
        yield False

    def succeed(self, *, is_trial: bool) -> None:
        """Count an answer. After a trial, release all calls."""
        self.answers += 1
        if is_trial:
            self._since = None
            remove_wait(self.describe)

    def fail(self, cause: str, after: float, *, is_trial: bool, is_closed: bool = False) -> bool:
        """Hold the server after a failure. Return whether it has failed for too long.

        Args:
            cause: as in "503 from HOST".
            after: seconds that the server asks to wait, or 0.
            is_closed: as in `RetryPolicy`.
        """
        now = time.monotonic()
        if self._since is None:
            self._since, self.failures = now, 0
            add_wait(self.describe)
        elif not is_trial:
            # sent before the server was held
            return False
        self.failures += 1
        self._cause = cause
        left = self._since + self.policy.find_limit(is_closed=is_closed) - now
        pause = after or self.policy.pause(self.failures)
        # the last attempt is at the end of the time
        self._next = now + min(pause, max(left, 0.0))
        return left <= ALMOST or after > left

    def close(self) -> None:
        """Stop showing the wait."""
        remove_wait(self.describe)

    def describe(self) -> str:
        """Return why the calls wait, and for how long, or "" while they do not."""
        if self._since is None:
            return ""
        left = max(0.0, self._next - time.monotonic())
        count = "1 call waits" if self._waiting == 1 else f"{self._waiting} calls wait"
        host = urlsplit(self.url).netloc
        return (
            f"{self._cause} from {host}, next try in {left:.0f} s, {count}" if self._waiting else ""
        )

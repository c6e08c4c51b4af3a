"""Hold all calls to a server that fails until one succeeds. Then let them go, twice as many with each reply.

One rule for everything that is the server's fault: a call never fails for it. If no call succeeds for
`server_timeout` seconds, the run stops and can be resumed.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
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


Turn = asyncio.Semaphore | None  # the gate through which an attempt came; None: the server was not held


@dataclass
class Hold:
    """The state of one server. It belongs to one event loop; `describe` can be called from any thread."""

    url: str
    policy: RetryPolicy
    answers: int = 0  # that the server gave: a call that fails sees whether others were answered meanwhile
    _gate: Turn = None  # of the calls that can try; None: the server is not held
    _waiting: int = 0
    _trying: int = 0  # attempts through the gate that have not ended
    _since: float = 0.0  # the first failure after which no call has succeeded; 0: there is none
    _failures: int = 0  # since then
    _next: float = 0.0  # when the next attempt can start
    _cause: str = ""

    async def enter(self) -> Turn:
        """Wait until an attempt can start. Return its turn, which one of the other methods ends."""
        gate = self._gate
        if gate is None:
            return None
        self._waiting += 1
        try:
            await gate.acquire()
        finally:
            self._waiting -= 1
        self._trying += 1
        await asyncio.sleep(self._next - time.monotonic())
        return gate

    def succeed(self, turn: Turn) -> None:
        """Count an answer. If it came through the gate, let twice as many calls try the server next."""
        self.answers += 1
        if turn is None or turn is not self._gate:
            return
        self._trying -= 1
        self._since, self._failures = 0.0, 0
        if self._waiting:
            turn.release()
            turn.release()
        else:
            self._gate = None
            remove_wait(self.describe)

    def leave(self, turn: Turn) -> None:
        """End an attempt that shows nothing about the server."""
        if turn is not None and turn is self._gate:
            self._trying -= 1
            if not self._trying:
                turn.release()

    def fail(self, turn: Turn, cause: str, after: float) -> bool:
        """Hold the server after a failure of its own. Return whether it has failed for too long.

        Args:
            cause: as in "503 from HOST".
            after: seconds that the server asks to wait; 0 if it does not.
        """
        if self._gate is None:
            self._gate, self._trying = asyncio.Semaphore(1), 0
            add_wait(self.describe)
        elif turn is not self._gate:  # sent before the server was held
            return False
        else:
            self.leave(turn)
        now, limit = time.monotonic(), self.policy.server_timeout
        self._since = self._since or now
        self._failures += 1
        self._cause = cause
        left = self._since + limit - now
        pause = after or self.policy.pause(self._failures)
        self._next = now + min(pause, max(left, 0.0))  # the last attempt is at the end of the time
        return left <= ALMOST or after > left

    def close(self) -> None:
        """Stop showing the wait."""
        remove_wait(self.describe)

    def describe(self) -> str:
        """Return why the calls wait, and for how long; "" while they do not."""
        if not self._since:
            return ""
        left = max(0.0, self._next - time.monotonic())
        calls = self._waiting + self._trying
        host = urlsplit(self.url).netloc
        count = "1 call waits" if calls == 1 else f"{calls} calls wait"
        return f"{self._cause} from {host}, next try in {left:.0f} s, {count}" if calls else ""

"""How many calls a server is given at once: what was set, what it says it has, or what it turns out to be good for."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean

FIRST = 32  # before anything is known
MOST = 1024  # connections
WORTH = 1.2  # times the calls a second that twice as many at once must bring: less is a queue at the server
SLIGHT = 1.1  # times as many: less may be chance, and would add up
AGAIN = 16  # times as many calls as there are places, until more places are tried again
FULL = 0.9  # of the places taken: what fewer calls take says nothing about more
BACK = 0.7  # of the places are left after a refusal for coming too often


@dataclass(frozen=True, slots=True)
class Place:
    """One call's: begun when the server was given at most `limit` calls, and was given them."""

    limit: int
    full: bool


@dataclass
class Room:
    """Belongs to one event loop; `limit` is read from anywhere.

    Learning, as long as nothing was set: the limit is doubled while that brings more calls a second, which by Little's
    law is told by the mean seconds of as many calls as there are places. Where that ends it stays, for a while, as
    other work may have been the reason; and for good where the server refuses calls that come too often.
    """

    limit: int
    learning: bool
    _running: int = 0
    _seconds: list[float] = field(default_factory=list)  # of calls begun at this limit
    _before: tuple[int, float] | None = None  # half this limit, and the mean seconds there
    _rest: int = 0  # calls until it is tried whether more places help

    @classmethod
    def of(cls, concurrency: int | None) -> Room:
        return cls(FIRST, learning=True) if concurrency is None else cls(concurrency, learning=False)

    def told(self, slots: object) -> None:
        """The server says how many calls it works on at once."""
        if self.learning and isinstance(slots, int) and slots > 0:
            self.limit, self.learning = min(slots, MOST), False

    def enter(self) -> Place:
        self._running += 1
        return Place(self.limit, self._running >= FULL * self.limit)

    def leave(self, place: Place, seconds: float | None) -> None:
        """The call has ended; None: without a reply."""
        self._running -= 1
        if seconds is None or not (self.learning and place.full and place.limit == self.limit):
            return
        if self._rest:
            self._rest -= 1
            return
        self._seconds.append(seconds)
        if len(self._seconds) >= self.limit:
            self._judge(fmean(self._seconds))

    def crowded(self) -> None:
        """The server was asked too often, not for something wrong. Of many that it refuses so, the first counts."""
        if self.learning:
            self.limit, self.learning = max(1, round(BACK * self.limit)), False

    def _judge(self, seconds: float) -> None:
        half, faster = self._before or (self.limit, WORTH * seconds)
        gain = self.limit / half * faster / max(seconds, 1e-9)
        self._seconds, self._before = [], (self.limit, seconds)
        if gain >= WORTH and self.limit < MOST:
            self.limit = min(2 * self.limit, MOST)
            return
        if gain < WORTH:
            self.limit = round(half * gain) if gain > SLIGHT else half
        self._before, self._rest = None, AGAIN * self.limit

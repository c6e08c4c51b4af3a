"""Limit the parallel calls to a server: as configured, as the server reports, or as measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

FIRST = 32  # before anything is known
MOST = 1024  # connections
HASTE = 3  # places that a reply adds at the start; later one
QUEUED = 4  # times the least seconds of a call, by its work: the reply has waited at the server and adds no places
WORTH = 0.2  # of as many more calls must come back as more work a second: less is a queue at the server
PROMPT = 8  # tokens of a reply that take a server as long as reading a prompt: replies differ, and so must not decide
SAMPLE = 4  # calls of a rung tell what it is worth, for a rung of so many times as many calls
AHEAD = 2  # times where a rung ends, so far the limit may have gone when it is judged, at the start; later to its end
SPARE = 1.2  # times the calls that are enough, for those on their way
AGAIN = 16  # times as many calls as there are places, until more places are tried again
FULL = 0.9  # of the places taken: what fewer calls take says nothing about more
BACK = 0.7  # of the places are left after a refusal for coming too often


@dataclass(frozen=True, slots=True)
class Place:
    """One call's: begun when the server was given at most `limit` calls, and was given `running`, this one included."""

    limit: int
    running: int


@dataclass
class _Rung:
    """Calls that were begun at a limit from `begin` to twice as much, and have ended."""

    begin: int
    calls: int = 0
    running: int = 0  # of all these calls together, as are the others
    seconds: float = 0.0
    work: float = 0.0

    def add(self, running: int, seconds: float, work: float) -> None:
        self.calls += 1
        self.running += running
        self.seconds += seconds
        self.work += work

    @property
    def at_once(self) -> float:
        return self.running / self.calls

    @property
    def pace(self) -> float:
        """Return work a second, by Little's law: of a call, times those under way."""
        return self.at_once * self.work / max(self.seconds, 1e-9)


@dataclass
class Room:
    """Belongs to one event loop; `limit` is read from anywhere.

    Learning, as long as nothing was set: while the program has more to ask, every reply adds places, but each doubling
    has to bring more work a second than the one before. Where one does not, the limit goes back to what is enough, for
    a while, as other work may have been the reason; and for good where the server refuses calls that come too often.
    """

    limit: int
    learning: bool
    _running: int = 0
    _rungs: dict[int, _Rung] = field(default_factory=dict)  # by where they begin
    _starting: bool = True
    _judged: int = 0  # where the rung begins that is judged next; 0: the limit, when the next call ends
    _quickest: float = math.inf  # seconds of a call by its work
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
        return Place(self.limit, self._running)

    def leave(self, place: Place, seconds: float | None, tokens: int = 0) -> None:
        """The call has ended; None: without a reply, else with one of so many tokens."""
        full = self._running >= FULL * self.limit
        self._running -= 1
        if seconds is None or not self.learning:
            return
        work = tokens + PROMPT
        self._quickest = min(self._quickest, seconds / work)
        if self._rest:
            self._rest -= place.running >= FULL * place.limit
            return
        self._judged = self._judged or self.limit
        if full and seconds <= QUEUED * self._quickest * work:
            more, ahead = (HASTE, AHEAD) if self._starting else (1, 1)
            self.limit = min(self.limit + more, 2 * ahead * self._judged, MOST)
        if place.running >= FULL * place.limit:
            self._note(place, seconds, work)
            self._judge()

    def _note(self, place: Place, seconds: float, work: float) -> None:
        begin = self._judged
        while 2 * begin <= place.limit:
            begin *= 2
        self._rungs.setdefault(begin, _Rung(begin)).add(place.running, seconds, work)

    def crowded(self) -> None:
        """The server was asked too often, not for something wrong. Of many that it refuses so, the first counts."""
        if self.learning:
            self.limit, self.learning = max(1, round(BACK * self.limit)), False

    def _judge(self) -> None:
        """Of the lowest two rungs the lower one, once enough of both have ended."""
        lower, upper = (self._rungs.get(begin) for begin in (self._judged, 2 * self._judged))
        if lower is None or upper is None or upper.calls < upper.begin / SAMPLE:
            return
        if _worth(lower, upper) and 2 * upper.begin <= MOST:
            self._judged = upper.begin
            return
        self.limit = self._enough(lower, upper)
        self._rungs, self._judged, self._rest, self._starting = {}, 0, AGAIN * self.limit, False

    def _enough(self, lower: _Rung, upper: _Rung) -> int:
        """Return how many calls reach the upper rung's throughput at the pace of a call below both, where none waited
        yet.
        """
        if _worth(lower, upper):
            return MOST
        below = self._rungs.get(lower.begin // 2)
        if below is None or not below.calls:
            return lower.begin
        wanted = SPARE * below.at_once * max(lower.pace, upper.pace) / below.pace
        return min(max(lower.begin, round(wanted)), upper.begin)


def _worth(lower: _Rung, upper: _Rung) -> bool:
    return upper.pace / lower.pace - 1 >= WORTH * (upper.at_once / lower.at_once - 1)

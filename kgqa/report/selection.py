"""Select the questions with calls in a page that cannot hold all: failed ones first, then a sample of each group."""

from __future__ import annotations

import heapq
from collections import Counter
from enum import IntEnum

from kgqa.util.fs import text_digest


class Group(IntEnum):
    """The group of a question: the first that applies. The page lists groups in this order."""

    FAILED = 0
    DISPUTED = 1  # the judge or the run it stands against says otherwise
    FLAGGED = 2
    OTHER = 3


SAID = {
    Group.FAILED: "that failed",
    Group.DISPUTED: "that a judge or the other run contradicts",
    Group.FLAGGED: "with flags",
    Group.OTHER: "others, drawn by their ids",
}
_DRAWN = 60  # bits of the number that an id is drawn by


class Selection:
    """Traces as they come; those stay that come first in the order of groups, and in a group by a hash of the id.

    So a group that has no room as a whole leaves an even sample, which is the same for the same questions, and no more
    than the page can hold is ever in memory.
    """

    def __init__(self, room: int) -> None:
        """`room`: characters that all lines may have together."""
        self._room, self._size = room, 0
        self._lines: dict[str, str] = {}
        self._last_first: list[tuple[int, str]] = []  # a heap: what goes first when room is needed
        self._first_left_out: int | None = None
        self._of: Counter[Group] = Counter()
        self._kept: Counter[Group] = Counter()

    def wants(self, question_id: str, group: Group) -> bool:
        """Return whether there may be room for this one; each is to be asked for once."""
        self._of[group] += 1
        return self._first_left_out is None or _order(question_id, group) < self._first_left_out

    def add(self, question_id: str, group: Group, line: str) -> None:
        heapq.heappush(self._last_first, (-_order(question_id, group), question_id))
        self._lines[question_id] = line
        self._size += len(line)
        self._kept[group] += 1
        self._leave_out()

    def shrink(self, room: int) -> None:
        self._room = min(room, self._room)
        self._leave_out()

    def line(self, question_id: str) -> str:
        """Return empty for one that was left out."""
        return self._lines.get(question_id, "")

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def whole(self) -> bool:
        return self._first_left_out is None

    def said(self) -> str:
        """Return how many of each group are in the page, for people."""
        groups = [group for group in Group if self._of[group]]
        if groups == [Group.OTHER]:
            return f"it has {len(self):,} questions, drawn by their ids"
        return "it has those of " + ", ".join(
            f"{self._kept[group]:,} of {self._of[group]:,} {SAID[group]}" for group in groups
        )

    def _leave_out(self) -> None:
        while self._size > self._room and self._lines:
            order, question_id = heapq.heappop(self._last_first)
            self._first_left_out = -order
            self._size -= len(self._lines.pop(question_id))
            self._kept[Group(-order >> _DRAWN)] -= 1


def _order(question_id: str, group: Group) -> int:
    return group << _DRAWN | int(text_digest(question_id, _DRAWN // 4), 16)

"""Place the labels of a plot's points so that they do not overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

LETTER, LINE = 6.4, 14  # pixels of a label: a letter's mean width, a line's height
_BESIDE, _ABOVE = 7, -6  # from a point to its label
_LONGEST = 36  # characters of names that share a label; how many more there are is counted
_SAME = 2  # pixels: points nearer than this share a label
_OFFSETS = (_ABOVE, 14, -18, 26, -30, 38, -42, 50, -54, 62, -66, 74)  # that are tried, the nearest first
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class Label:
    """Of the point at `x`, `y`; `at_x`, `at_y`: its own place, on its base line. Left of its point it ends there."""

    x: float
    y: float
    text: str
    at_x: float = 0
    at_y: float = 0

    @property
    def moved(self) -> bool:
        """Return whether it is not right beside its point."""
        return self.at_y not in (self.y + _ABOVE, self.y + 14)

    @property
    def box(self) -> Box:
        width = LETTER * len(self.text)
        left = self.at_x - width if self.at_x < self.x else self.at_x
        return left, self.at_y - LINE + 2, left + width, self.at_y + 2


def place_labels(labels: Sequence[Label], points: Sequence[tuple[float, float]], right: float) -> Iterator[Label]:
    """Yield the labels with their places; points in one place have one label, their names after each other.

    right: the last pixel that a label may take; a longer one goes to the left of its point.
    """
    taken: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    for label in _join(labels):
        wide = label.x + _BESIDE + LETTER * len(label.text) > right
        at_x = label.x + (-_BESIDE if wide else _BESIDE)
        tried = [replace(label, at_x=at_x, at_y=label.y + offset) for offset in _OFFSETS]
        free = (each for each in tried if not any(_overlap(each.box, box) for box in taken))
        chosen = next(free, tried[0])
        taken.append(chosen.box)
        yield chosen


def _join(labels: Sequence[Label]) -> list[Label]:
    together: list[list[Label]] = []
    for label in labels:
        near = (each for each in together if abs(each[0].x - label.x) + abs(each[0].y - label.y) <= _SAME)
        if (found := next(near, None)) is None:
            together.append([label])
        else:
            found.append(label)
    return [replace(each[0], text=_names([label.text for label in each])) for each in together]


def _names(texts: Sequence[str]) -> str:
    """Return as many names as fit, at least one."""
    told = texts[0]
    for place, text in enumerate(texts[1:], start=1):
        if len(told) + len(text) > _LONGEST:
            return f"{told} and {len(texts) - place} more"
        told += f", {text}"
    return told


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]

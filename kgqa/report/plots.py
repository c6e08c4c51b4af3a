"""Plots for dark and light pages: lines, points and bars with intervals. `page.svg` draws them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kgqa.util.text import pluralize, score_text

WIDTH, HEIGHT = 640, 300
# pixels on a phone, where a drawing of WIDTH would have letters of half the size
NARROW = 324
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 14, 44
# pixels of a bar, of a line of its name, and below it
BAR, LINE, GAP = 16, 16, 10
NAME = 46  # characters on a line of a bar's name, which has two lines at most
LEGEND_ROW = 18  # pixels of an entry
_CHARACTER = 6.8  # pixels
# pixels between two places of a line that labels avoid, and between two labels
_STEP, _SPACE = 5, 4
_MOST_TICKS = 11  # of a logarithmic axis
# points of a line from which on they are not marked
_MANY = 40
_Box = tuple[float, float, float, float]  # left, top, right, bottom
_Label = tuple[float, float, str, str]  # x, y, text and what x is of the text: start, middle or end
COLOURS = ("#2f7fb5", "#c4622d", "#3f9461", "#9a5fb0", "#b58a1a", "#c0467c", "#5a7d8c", "#7f8b2f")


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    # ends of the interval of y
    low: float | None = None
    high: float | None = None
    label: str = ""  # shown next to it


@dataclass(frozen=True, slots=True)
class Series:
    """A line or a set of points. `colour`: an index of COLOURS. `hollow`: dashed."""

    name: str
    points: Sequence[Point]
    colour: int
    hollow: bool = False
    line: bool = True

    @property
    def paint(self) -> str:
        return COLOURS[self.colour % len(COLOURS)]

    @property
    def has_dots(self) -> bool:
        return not self.line or len(self.points) < _MANY


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot. `places`: the names of x = 0, 1, … if x is not a quantity.

    A cost has a logarithmic axis if its values differ by more than a factor of ten. choice: a page shows only the plots
    of one choice.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    places: Sequence[str] = ()
    x_is_cost: bool = False
    choice: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def number(self) -> str:
        """Return the value as text: a score, which has an interval, with one decimal."""
        if self.low is not None:
            return score_text(self.value)
        return f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"


@dataclass(frozen=True, slots=True)
class BarPlot:
    """A horizontal bar per value, the largest first, or `in_order` as they are. choice: see `Plot`."""

    title: str
    bars: Sequence[Bar]
    choice: str = ""
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class _Scale:
    """A linear or logarithmic function from a quantity to pixels, with the values to mark on its axis."""

    low: float
    high: float
    start: float
    end: float
    marks: Sequence[float] = ()
    is_log: bool = False

    @classmethod
    def of(
        cls,
        values: Sequence[float],
        start: float,
        end: float,
        about: int = 5,
        *,
        is_log: bool = False,
    ) -> _Scale:
        """Return a scale from the mark below the values to the mark above them."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if low == high:
            # of the value's size, so that round marks differ
            margin = abs(low) / 10
            low, high = low - margin, high + (margin or 1)
        marks = log_ticks(low, high) if is_log else ticks(low, high, about)
        return cls(marks[0], marks[-1], start, end, marks, is_log)

    def __call__(self, value: float) -> float:
        value, low, high = (
            map(math.log, (value, self.low, self.high))
            if self.is_log
            else (value, self.low, self.high)
        )
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round values from the last one not above `low` to the first one not below `high`."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 10) for n in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten times 1, 2 and 5, from the last one not above `low` to the first one not below `high`.

    If they would run together, return only powers of ten.
    """
    marks = _list_log_marks(low, high, (1, 2, 5))
    return marks if len(marks) <= _MOST_TICKS else _list_log_marks(low, high, (1,))


def _list_log_marks(low: float, high: float, factors: Sequence[int]) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [round(factor * 10.0**power, 10) for power in powers for factor in factors]
    first = max(place for place, mark in enumerate(marks) if mark <= low)
    last = min(place for place, mark in enumerate(marks) if mark >= high)
    return marks[first : last + 1]


def lay_out_bars(plot: BarPlot, width: int = WIDTH) -> dict[str, object]:
    """Return the values of the template's `bars`: the bars in order, and the scale of their length.

    Scores in percent have the same scale in all plots.
    """
    bars = plot.bars if plot.in_order else sorted(plot.bars, key=lambda bar: -bar.value)
    # before the bar: at the end of the interval it looks like the interval's end
    left = 18 + round(_CHARACTER * max(len(bar.number) for bar in bars))
    names = [
        textwrap.wrap(bar.name, NAME * width // NARROW, max_lines=2, placeholder=" …") or [""]
        for bar in bars
    ]
    ends = [
        0.0,
        *(end for bar in bars for end in (bar.value, bar.low, bar.high) if end is not None),
    ]
    # a score has an interval
    if any(bar.low is not None for bar in bars):
        ends.append(100.0)
    row = BAR + GAP + LINE * max(map(len, names))
    # the last mark has room for half of its number
    x = _Scale.of(ends, left, width - 24, 4)
    return {
        "title": plot.title,
        "bars": list(zip(bars, names, strict=True)),
        "x": x,
        "row": row,
        "line": LINE,
        "top": TOP,
        "bottom": TOP + len(bars) * row,
        "width": width,
        "paint": COLOURS[0],
    }


def lay_out_points(plot: Plot, width: int = WIDTH) -> dict[str, object]:
    """Return the values of the template's `points`: the scales of both axes, labels with room, and the legend."""
    points = [point for series in plot.series for point in series.points]
    if plot.places:
        x = _Scale(-0.5, len(plot.places) - 0.5, LEFT, width - RIGHT)
    else:
        values = [point.x for point in points]
        is_log = plot.x_is_cost and bool(values) and 0 < 10 * min(values) < max(values)
        x = _Scale.of(values, LEFT, width - RIGHT, 8 * width // WIDTH, is_log=is_log)
    ends = [end for p in points for end in (p.y, p.low, p.high) if end is not None]
    # a score has an interval, and the same scale in all plots
    if any(point.low is not None for point in points):
        ends += [0.0, 100.0]
    y = _Scale.of(ends, HEIGHT - BOTTOM, TOP)
    legend, legend_height = _lay_out_legend(plot.series if len(plot.series) > 1 else (), width)
    lines = [
        *(box for series in plot.series for box in _line_boxes(series, x, y)),
        *(
            (x(point.x) - 3, y(point.high), x(point.x) + 3, y(point.low))
            for point in points
            if point.low is not None and point.high is not None
        ),
    ]
    named = [point for point in points if point.label]
    places = [(x(point.x), y(point.y)) for point in named]
    labels, numbered = _place_names(places, [point.label for point in named], lines, width)
    keys = [line for number, name in numbered for line in _wrap_key(f"{number}: {name}", width)]
    if missing := len(named) - len(labels):
        keys.append(f"{pluralize(missing, 'point')} without room for a number")
    size = {
        "width": width,
        "height": HEIGHT + legend_height + LEGEND_ROW * len(keys),
        "keys_top": HEIGHT + legend_height + 6,
        "row": LEGEND_ROW,
    }
    return {"plot": plot, "x": x, "y": y, "labels": labels, "keys": keys, "legend": legend, **size}


def _lay_out_legend(
    series: Sequence[Series], width: int
) -> tuple[list[tuple[Series, float, float, list[str]]], int]:
    """Return each series with the place and the lines of its name, and the height of all."""
    room = width - LEFT
    longest = max((len(each.name) for each in series), default=0)
    per_row = max(1, int(room / (30 + _CHARACTER * longest)))
    entries, lines = list[tuple[Series, float, float, list[str]]](), 0
    for number, each in enumerate(series):
        column = number % per_row
        name = textwrap.wrap(each.name, int((room - 14) / _CHARACTER)) or [""]
        top = HEIGHT + 6 + LEGEND_ROW * lines
        entries.append((each, round(LEFT + room / per_row * column, 1), top, name))
        # only a name with its own row has several lines
        if column == per_row - 1 or each is series[-1]:
            lines += len(name)
    return entries, 6 + LEGEND_ROW * lines if lines else 0


def _line_boxes(series: Series, x: _Scale, y: _Scale) -> Iterator[_Box]:
    """Yield small boxes along the line of a series."""
    places = [(x(point.x), y(point.y)) for point in series.points] if series.line else []
    for (left, first), (right, last) in pairwise(places):
        steps = max(1, math.ceil(math.dist((left, first), (right, last)) / _STEP))
        for step in range(steps + 1):
            share = step / steps
            middle, height = left + share * (right - left), first + share * (last - first)
            yield middle - 2, height - 2, middle + 2, height + 2


def _place_names(
    places: Sequence[tuple[float, float]], names: Sequence[str], lines: Sequence[_Box], width: int
) -> tuple[list[_Label], list[tuple[str, str]]]:
    """Return the labels of points, and the names of those that have a number, because the name has no room.

    Points that have no room for a number have no label.
    """
    labels = _place_labels(places, names, lines, width)
    named = [label for _, _, label, _ in labels]
    numbers: dict[str, str] = {}
    # each name that stays can take the room of a number
    while len(labels) < len(names):
        others = (name for name in names if name not in named)
        numbers = {name: f"{number}" for number, name in enumerate(dict.fromkeys(others), 1)}
        labels = _place_labels(places, [numbers.get(name, name) for name in names], lines, width)
        if not named:
            # the last resort: numbers on lines and intervals
            labels = _place_labels(places, [numbers[name] for name in names], (), width)
            break
        named.pop()
    texts = {text for _, _, text, _ in labels}
    return labels, [(number, name) for name, number in numbers.items() if number in texts]


def _wrap_key(text: str, width: int) -> list[str]:
    """Return the lines of a numbered name below a plot."""
    # SVG joins spaces
    indent = 3 * "\N{NO-BREAK SPACE}"
    return textwrap.wrap(text, int((width - 8) / _CHARACTER), subsequent_indent=indent)


def _place_labels(
    places: Sequence[tuple[float, float]], texts: Sequence[str], lines: Sequence[_Box], width: int
) -> list[_Label]:
    """Return each label next to its point, if it has free room there."""
    boxes = [*lines, *((x - 4, y - 4, x + 4, y + 4) for x, y in places)]
    labels: list[_Label] = []
    for (x, y), label in zip(places, texts, strict=True):
        wide = _CHARACTER * len(label)
        sides = ((x + 7, x + 7, "start"), (x - 7 - wide, x - 7, "end"))
        spots = [(*side, y + shift) for shift in (4, -6, 16) for side in sides]
        spots += [(x - wide / 2, x, "middle", y + shift) for shift in (-9, 19)]
        spots += [(*side, y + shift) for shift in (-18, 28) for side in sides]
        for left, at, anchor, base in spots:
            box = (left, base - 10, left + wide, base + 2)
            is_inside = (
                left > LEFT and box[2] < width and box[1] > 0 and box[3] < HEIGHT - BOTTOM + 2
            )
            is_free = all(
                box[0] > other[2] or other[0] > box[2] or box[1] > other[3] or other[1] > box[3]
                for other in boxes
            )
            if is_inside and is_free:
                boxes.append((box[0] - _SPACE, box[1] - 2, box[2] + _SPACE, box[3] + 2))
                labels.append((round(at, 1), round(base, 1), label, anchor))
                break
    return labels

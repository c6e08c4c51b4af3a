"""Plots as SVG for dark and light pages: lines, points and bars with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 14, 44
BAR, BAR_LENGTH = 20, 220  # pixels from a bar to the next, and for the bars: names are readable on a phone
_NAME = 44  # characters of a bar's name
LEGEND_ROW = 18  # pixels of an entry
_CHARACTER = 6.8  # pixels
_MANY = 40  # points of a line from which on they are not marked
COLOURS = ("#2f7fb5", "#c4622d", "#3f9461", "#9a5fb0", "#b58a1a", "#c0467c", "#5a7d8c", "#7f8b2f")

_Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    low: float | None = None  # ends of the interval of y
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


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot. `places`: the names of x = 0, 1, … if x is not a quantity.

    A cost has a logarithmic axis if its values differ by more than a factor of ten.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    places: Sequence[str] = ()
    x_is_cost: bool = False


@dataclass(frozen=True, slots=True)
class _Scale:
    """A linear or logarithmic function from a quantity to pixels."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        value, low, high = map(math.log, (value, self.low, self.high)) if self.is_log else (value, self.low, self.high)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def marks(self, about: int = 5) -> list[float]:
        return log_ticks(self.low, self.high) if self.is_log else ticks(self.low, self.high, about)


def svg(plot: Plot) -> str:
    """Return an <svg> element. Series without points are only in the legend, which a single series lacks."""
    points = [point for series in plot.series for point in series.points]
    ends = [end for p in points for end in (p.y, p.low, p.high) if end is not None]
    if plot.places:
        x = _Scale(-0.5, len(plot.places) - 0.5, LEFT, WIDTH - RIGHT)
    else:
        values = [point.x for point in points]
        is_log = plot.x_is_cost and bool(values) and 0 < 10 * min(values) < max(values)
        x = _log_scale(values, LEFT, WIDTH - RIGHT) if is_log else _scale(values, LEFT, WIDTH - RIGHT)
    y = _scale(ends, HEIGHT - BOTTOM, TOP)
    legend = plot.series if len(plot.series) > 1 else ()
    per_row = max(1, int((WIDTH - LEFT) / (30 + _CHARACTER * max((len(curve.name) for curve in legend), default=0))))
    height = HEIGHT + (6 + LEGEND_ROW * math.ceil(len(legend) / per_row) if legend else 0)
    drawn = (part for series in plot.series for part in _draw(series, x, y))
    parts = [*_axes(plot, x, y), *drawn, *_labels(plot.series, x, y), *_legend(legend, per_row)]
    return _svg(plot.title, WIDTH, height, parts, " broad")


def _svg(title: str, width: float, height: float, parts: Sequence[str], kind: str = "") -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    frame = f'{size} font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'
    name = f'class="plot{kind}" role="img" aria-label="{escape(title)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {name} {frame}>'
    return "\n".join([head, *parts, "</svg>"])


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with its interval. Bars of a group share a heading and a color."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class BarPlot:
    title: str
    bars: Sequence[Bar]


def bars_svg(plot: BarPlot) -> str:
    """Return an <svg> element with a horizontal bar per value, the largest of each group first."""
    groups: dict[str, list[Bar]] = {}
    for bar in sorted(plot.bars, key=lambda bar: -bar.value):
        groups.setdefault(bar.group, []).append(bar)
    left = 16 + round(_CHARACTER) * min(_NAME, max(len(bar.name) for bar in plot.bars))
    ends = [0.0, *(end for bar in plot.bars for end in (bar.value, bar.low, bar.high) if end is not None)]
    x = _Scale(min(ends), max(ends) or 1.0, left, left + BAR_LENGTH)
    parts, y = list[str](), TOP
    for number, (group, members) in enumerate(sorted(groups.items())):
        if len(groups) > 1:
            parts.append(f'<text x="0" y="{y + 13}" class="group">{escape(group)}</text>')
            y += BAR
        for bar in members:
            parts += _bar(bar, left, y, x, COLOURS[number % len(COLOURS)])
            y += BAR
        y += 8
    return _svg(plot.title, left + BAR_LENGTH + 44, y, parts)


def _bar(bar: Bar, left: float, y: float, x: _Scale, colour: str) -> Iterator[str]:
    name = bar.name if len(bar.name) <= _NAME else f"{bar.name[: _NAME - 1]}…"
    yield f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(name)}<title>{escape(bar.name)}</title></text>'
    wide = f"{x(bar.value) - left:.1f}"
    yield f'<rect x="{left}" y="{y + 3}" width="{wide}" height="{BAR - 7}" fill="{colour}" fill-opacity=".75"/>'
    end = bar.value
    if bar.low is not None and bar.high is not None:
        end = max(end, bar.high)
        low, high, top = x(bar.low), x(bar.high), y + 6
        path = f"M{low},{top + 3.5}H{high}M{low},{top}v7M{high},{top}v7"
        yield f'<path d="{path}" stroke="currentColor" fill="none"/>'
    yield f'<text x="{x(end) + 6}" y="{y + 13}">{bar.value:.1f}</text>'


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round values from the last one not above `low` to the first one not below `high`."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 10) for n in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten times 1, 2 and 5, from the last one not above `low` to the first one not below `high`."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [round(factor * 10.0**power, 10) for power in powers for factor in (1, 2, 5)]
    first = max(place for place, mark in enumerate(marks) if mark <= low)
    last = min(place for place, mark in enumerate(marks) if mark >= high)
    return marks[first : last + 1]


def _log_scale(values: Sequence[float], start: float, end: float) -> _Scale:
    marks = log_ticks(min(values), max(values))
    return _Scale(marks[0], marks[-1], start, end, is_log=True)


def _scale(values: Sequence[float], start: float, end: float) -> _Scale:
    if not values:
        return _Scale(0.0, 1.0, start, end)
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 1 if low < 0 else max(0.0, low - 1), high + 1  # no values below a share of 0
    marks = ticks(low, high)
    return _Scale(marks[0], marks[-1], start, end)


def _axes(plot: Plot, x: _Scale, y: _Scale) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    for mark in y.marks():
        yield (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark)}" y2="{y(mark)}" stroke="currentColor" '
            'stroke-opacity=".15"/>'
        )
        yield f'<text x="{LEFT - 6}" y="{y(mark) + 4}" text-anchor="end">{mark:g}</text>'
    named = enumerate(plot.places) if plot.places else ((mark, _number(mark)) for mark in x.marks(8))
    for mark, name in named:
        yield f'<text x="{x(mark)}" y="{bottom + 16}" text-anchor="middle">{escape(name)}</text>'
    yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" stroke="currentColor"/>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{bottom + 34}" text-anchor="middle">{escape(plot.x)}</text>'
    middle = (TOP + bottom) / 2
    yield f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{escape(plot.y)}</text>'


def _draw(series: Series, x: _Scale, y: _Scale) -> Iterator[str]:
    colour = COLOURS[series.colour % len(COLOURS)]
    if series.line and len(series.points) > 1:
        path = " ".join(f"{x(point.x)},{y(point.y)}" for point in series.points)
        dashes = ' stroke-dasharray="5 4"' if series.hollow else ""
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>'
    for point in series.points:
        at = x(point.x)
        if point.low is not None and point.high is not None:
            yield (
                f'<line x1="{at}" x2="{at}" y1="{y(point.low)}" y2="{y(point.high)}" stroke="{colour}" '
                'stroke-width="5" stroke-opacity=".35" stroke-linecap="round"/>'
            )
        if not series.line or len(series.points) < _MANY:
            yield _dot(at, y(point.y), colour, series.hollow, f"{point.label or series.name}: {point.y:.2f}")


def _labels(all_series: Iterable[Series], x: _Scale, y: _Scale) -> Iterator[str]:
    """Yield the label of each point next to it, or at the end of a line. Tooltips have those without free room."""
    points = [(x(point.x), y(point.y), point.label) for series in all_series for point in series.points]
    taken = [(left - 4, top - 4, left + 4, top + 4) for left, top, _ in points]  # left, top, right, bottom
    for across, down, label in points:
        wide = _CHARACTER * len(label)
        right, left, centre = across + 7, across - 7 - wide, across - wide / 2
        places = [(start, down + shift) for shift in (4, -6, 16) for start in (right, left)]
        places += [(centre, down - 9), (centre, down + 19)]
        near = len(places)
        places += [(start, down + shift) for shift in (-22, 32, -40, 50) for start in (right, left)]
        for number, (start, base) in enumerate(places if label else ()):
            box = (start, base - 10, start + wide, base + 2)
            is_inside = start > LEFT and box[2] < WIDTH and box[1] > 0 and box[3] < HEIGHT - BOTTOM + 2
            if is_inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                anchor, at = ("end", across - 7) if start == left else ("start", start)
                yield f'<text x="{at:.1f}" y="{base:.1f}" text-anchor="{anchor}">{escape(label)}</text>'
                if number >= near:
                    end = base - 10 if base > down else base + 3
                    yield f'<path d="M{across},{down}L{at:.1f},{end:.1f}" stroke="currentColor" stroke-opacity=".5"/>'
                break


def _overlap(box: _Box, other: _Box) -> bool:
    return box[0] <= other[2] and other[0] <= box[2] and box[1] <= other[3] and other[1] <= box[3]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _dot(x: float, y: float, colour: str, hollow: bool, title: str) -> str:
    fill = "none" if hollow else colour
    shown = f"<title>{escape(title)}</title>"
    return f'<circle cx="{x}" cy="{y}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.8">{shown}</circle>'


def _legend(series: Iterable[Series], per_row: int) -> Iterator[str]:
    for number, curve in enumerate(series):
        left = round(LEFT + (WIDTH - LEFT) / per_row * (number % per_row), 1)
        top = HEIGHT + LEGEND_ROW * (number // per_row) + 6
        colour = COLOURS[curve.colour % len(COLOURS)]
        yield _dot(left + 4, top - 4, colour, curve.hollow, curve.name)
        yield f'<text x="{left + 14}" y="{top}">{escape(curve.name)}</text>'

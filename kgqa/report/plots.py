"""Plots as SVG for dark and light pages: lines, points and bars with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
class Bar:
    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class BarPlot:
    """A horizontal bar per value, the largest first."""

    title: str
    bars: Sequence[Bar]


def svg(plot: Plot | BarPlot) -> str:
    """Return an <svg> element. Series without points are only in the legend, which a single series lacks."""
    return _bars_svg(plot) if isinstance(plot, BarPlot) else _points_svg(plot)


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
    def of(cls, values: Sequence[float], start: float, end: float, about: int = 5, *, is_log: bool = False) -> _Scale:
        """Return a scale from the mark below the values to the mark above them."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if low == high:
            low, high = low - 1 if low < 0 else max(0.0, low - 1), high + 1  # no values below a share of 0
        marks = log_ticks(low, high) if is_log else ticks(low, high, about)
        return cls(marks[0], marks[-1], start, end, marks, is_log)

    def __call__(self, value: float) -> float:
        value, low, high = map(math.log, (value, self.low, self.high)) if self.is_log else (value, self.low, self.high)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)


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


def _bars_svg(plot: BarPlot) -> str:
    left = 16 + round(_CHARACTER) * min(_NAME, max(len(bar.name) for bar in plot.bars))
    ends = [0.0, *(end for bar in plot.bars for end in (bar.value, bar.low, bar.high) if end is not None)]
    x = _Scale(min(ends), max(ends) or 1.0, left, left + BAR_LENGTH)
    parts = list[str]()
    for number, bar in enumerate(sorted(plot.bars, key=lambda bar: -bar.value)):
        y, end = TOP + number * BAR, bar.value
        name = bar.name if len(bar.name) <= _NAME else f"{bar.name[: _NAME - 1]}…"
        title = f"{escape(name)}<title>{escape(bar.name)}</title>"
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{title}</text>')
        size = f'width="{x(bar.value) - left:.1f}" height="{BAR - 7}"'
        parts.append(f'<rect x="{left}" y="{y + 3}" {size} fill="{COLOURS[0]}" fill-opacity=".75"/>')
        if bar.low is not None and bar.high is not None:
            end = max(end, bar.high)
            low, high, top = x(bar.low), x(bar.high), y + 6
            path = f"M{low},{top + 3.5}H{high}M{low},{top}v7M{high},{top}v7"
            parts.append(f'<path d="{path}" stroke="currentColor" fill="none"/>')
        parts.append(f'<text x="{x(end) + 6}" y="{y + 13}">{bar.value:.1f}</text>')
    return _svg(plot.title, left + BAR_LENGTH + 44, TOP + len(plot.bars) * BAR + 8, parts)


def _points_svg(plot: Plot) -> str:
    points = [point for series in plot.series for point in series.points]
    if plot.places:
        x = _Scale(-0.5, len(plot.places) - 0.5, LEFT, WIDTH - RIGHT)
    else:
        values = [point.x for point in points]
        is_log = plot.x_is_cost and bool(values) and 0 < 10 * min(values) < max(values)
        x = _Scale.of(values, LEFT, WIDTH - RIGHT, 8, is_log=is_log)
    ends = [end for p in points for end in (p.y, p.low, p.high) if end is not None]
    y = _Scale.of(ends, HEIGHT - BOTTOM, TOP)
    legend = plot.series if len(plot.series) > 1 else ()
    per_row = max(1, int((WIDTH - LEFT) / (30 + _CHARACTER * max((len(curve.name) for curve in legend), default=0))))
    height = HEIGHT + (6 + LEGEND_ROW * math.ceil(len(legend) / per_row) if legend else 0)
    drawn = (part for series in plot.series for part in _draw(series, x, y))
    labels = _labels([(x(point.x), y(point.y), point.label) for point in points])
    return _svg(plot.title, WIDTH, height, [*_axes(plot, x, y), *drawn, *labels, *_legend(legend, per_row)], " broad")


def _svg(title: str, width: float, height: float, parts: Sequence[str], kind: str = "") -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    frame = f'{size} font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'
    name = f'class="plot{kind}" role="img" aria-label="{escape(title)}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {name} {frame}>', *parts, "</svg>"])


def _axes(plot: Plot, x: _Scale, y: _Scale) -> Iterator[str]:
    bottom, across = HEIGHT - BOTTOM, f'x1="{LEFT}" x2="{WIDTH - RIGHT}"'
    for mark in y.marks:
        yield f'<line {across} y1="{y(mark)}" y2="{y(mark)}" stroke="currentColor" stroke-opacity=".15"/>'
        yield f'<text x="{LEFT - 6}" y="{y(mark) + 4}" text-anchor="end">{mark:g}</text>'
    marks = [(mark, f"{mark:,.0f}" if mark >= 1000 else f"{mark:g}") for mark in x.marks]
    for at, name in enumerate(plot.places) if plot.places else marks:
        yield f'<text x="{x(at)}" y="{bottom + 16}" text-anchor="middle">{escape(name)}</text>'
    yield f'<line {across} y1="{bottom}" y2="{bottom}" stroke="currentColor"/>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{bottom + 34}" text-anchor="middle">{escape(plot.x)}</text>'
    turned = f"translate(14 {(TOP + bottom) / 2}) rotate(-90)"
    yield f'<text transform="{turned}" text-anchor="middle">{escape(plot.y)}</text>'


def _draw(series: Series, x: _Scale, y: _Scale) -> Iterator[str]:
    colour = COLOURS[series.colour % len(COLOURS)]
    if series.line and len(series.points) > 1:
        path = " ".join(f"{x(point.x)},{y(point.y)}" for point in series.points)
        dashes = ' stroke-dasharray="5 4"' if series.hollow else ""
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>'
    for point in series.points:
        at = x(point.x)
        if point.low is not None and point.high is not None:
            ends = f'x1="{at}" x2="{at}" y1="{y(point.low)}" y2="{y(point.high)}"'
            yield f'<line {ends} stroke="{colour}" stroke-width="5" stroke-opacity=".35" stroke-linecap="round"/>'
        if not series.line or len(series.points) < _MANY:
            yield _dot(at, y(point.y), series, f"{point.label or series.name}: {point.y:.2f}")


def _labels(points: Sequence[tuple[float, float, str]]) -> Iterator[str]:
    """Yield the label of each point next to it. Only the tooltip has a label without free room."""
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y, _ in points]  # left, top, right, bottom
    for x, y, label in points:
        wide = _CHARACTER * len(label)
        places = [(start, y + shift) for shift in (4, -6, 16) for start in (x + 7, x - 7 - wide)]
        places += [(x - wide / 2, y - 9), (x - wide / 2, y + 19)]
        for left, base in places if label else ():
            box = (left, base - 10, left + wide, base + 2)
            is_inside = left > LEFT and box[2] < WIDTH and box[1] > 0 and box[3] < HEIGHT - BOTTOM + 2
            is_free = all(
                box[0] > other[2] or other[0] > box[2] or box[1] > other[3] or other[1] > box[3] for other in taken
            )
            if is_inside and is_free:
                taken.append(box)
                yield f'<text x="{left + wide / 2:.1f}" y="{base:.1f}" text-anchor="middle">{escape(label)}</text>'
                break


def _dot(x: float, y: float, series: Series, title: str) -> str:
    colour = COLOURS[series.colour % len(COLOURS)]
    fill, shown = "none" if series.hollow else colour, f"<title>{escape(title)}</title>"
    return f'<circle cx="{x}" cy="{y}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.8">{shown}</circle>'


def _legend(all_series: Sequence[Series], per_row: int) -> Iterator[str]:
    for number, series in enumerate(all_series):
        left = round(LEFT + (WIDTH - LEFT) / per_row * (number % per_row), 1)
        top = HEIGHT + LEGEND_ROW * (number // per_row) + 6
        yield _dot(left + 4, top - 4, series, series.name)
        yield f'<text x="{left + 14}" y="{top}">{escape(series.name)}</text>'

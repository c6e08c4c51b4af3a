"""Build the report of a reproduction: published values next to ours, differences, cost, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgqa.report.content import Section
from kgqa.report.plots import Plot, Point, Series
from kgqa.scoring.published_delta import CLOSE, CLOSE_SHARE, CLOSE_WIDTHS, FEW, SAME_SHARE, Metric, Ours, Value, Verdict

RULE = (
    "OK: the published value lies in our 95 % interval; close: within "
    f"{CLOSE_WIDTHS:g} half-widths of it, or {CLOSE:g} points; off: further away. Without an interval: OK within "
    f"{100 * SAME_SHARE:g} % of the published value, close within {100 * CLOSE_SHARE:g} %. few: fewer than {FEW} "
    "questions, which tell nothing about the paper's value."
)
_COMPARED = ("published", "ours", "95 % interval", "difference", "verdict")


@dataclass(frozen=True, slots=True)
class Line:
    """One published value. Without one of ours, `note` says why."""

    row: str
    column: str
    metric: Metric
    published: Value | None
    ours: Ours | None
    verdict: Verdict
    note: str


@dataclass(frozen=True, slots=True)
class CellLine:
    """The result of one cell, and the command that runs only this cell."""

    row: str
    column: str
    state: str
    why: str
    command: str
    run: str  # the run's folder; "": none yet


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`differing`: setting, the paper's value, ours. `against`: the metric on a figure's x axis, "" for its columns."""

    id: str
    title: str
    place: str
    command: str
    axis: str
    against: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    lines: Sequence[Line]
    cells: Sequence[CellLine]
    differing: Sequence[tuple[str, str, str]]
    cost: Sequence[tuple[str, str]]
    chosen: Sequence[tuple[str, str, str]] = ()  # cell, values chosen on dev, among how many

    @property
    def is_figure(self) -> bool:
        return self.place.startswith("Figure")

    @property
    def heading(self) -> str:
        return f"{self.id}: {self.title}"


def sections(table: Reproduction) -> list[Section]:
    """Return the verdicts, the values by column (of a figure by row), what differs, the cost, the cells."""
    chosen = Section("Chosen on development questions", ("cell", "values", "among"), table.chosen)
    listed = [
        _verdicts(table),
        *_compare(table),
        chosen,
        differing_section(table.differing),
        _costs(table),
        *_cells(table),
    ]
    return [section for section in listed if section.rows]


def build_comparison_sections(table: Reproduction) -> list[Section]:
    """Return the values alone."""
    return [section for section in _compare(table) if section.rows]


def plots(table: Reproduction) -> list[Plot]:
    """Return a figure's, one for each metric that any point is known of; the paper's points are hollow."""
    if not table.is_figure:
        return []
    made = _of_one_column(table) if len(table.columns) == 1 else _by_metric(table)
    return [plot for plot in made if any(series.points for series in plot.series)]


def value_text(value: Value | None, unit: str) -> str:
    if value is None:
        return "–"
    spread = "" if value.spread is None else f" ± {value.spread:g}"
    return f"{'~' if value.approximate else ''}{_number(value.number, unit)}{spread}"


def _verdicts(table: Reproduction) -> Section:
    verdicts = Counter(line.verdict for line in table.lines if line.ours and line.published)
    rows = [(verdict, f"{verdicts[verdict]:,}") for verdict in ("OK", "close", "off", "few") if verdicts[verdict]]
    without = sum(line.published is not None and line.ours is None for line in table.lines)
    rows += [("not run", f"{without:,}")] if without else []
    states = Counter(cell.state for cell in table.cells)
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    text = (f"{table.place}. {len(table.cells):,} cells: {counts}.", table.command, RULE)
    return Section("Verdicts", ("published values", "number"), rows or [("none is given in the text", "0")], text)


def _compare(table: Reproduction) -> Iterator[Section]:
    by_row = table.is_figure and len(table.rows) <= len(table.columns)
    for name in table.rows if by_row else table.columns:
        lines = [line for line in table.lines if name == (line.row if by_row else line.column)]
        rows = [
            (line.column if by_row else line.row, _metric_text(line.metric), *_line_texts(line))
            for line in lines
            if line.published or line.ours
        ]
        yield Section(name, ((table.axis or "column") if by_row else "system", "metric", *_COMPARED), rows)


def _line_texts(line: Line) -> tuple[str, str, str, str, str]:
    unit, ours = line.metric.unit, line.ours
    if ours is None:
        return value_text(line.published, unit), "–", "", "", line.note
    interval = "" if ours.low is None or ours.high is None else f"{ours.low:.1f} to {ours.high:.1f}"
    published = value_text(line.published, unit)
    mean = f"{_number(ours.mean, unit)}{'' if ours.spread is None else f' ± {ours.spread:.1f}'}"
    if line.published is None:
        return published, mean, interval, "", ""
    difference = ours.mean - line.published.number
    return published, mean, interval, _format_signed(difference, unit), line.verdict


def _metric_text(metric: Metric) -> str:
    return metric.name if metric.unit in ("%", metric.name.lower()) else f"{metric.name} ({metric.unit})"


def _number(number: float, unit: str) -> str:
    if unit == "%":
        return f"{number:.1f}" if round(10 * number, 6) % 1 == 0 else f"{number:.2f}"
    return f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 1000 else f"{number:,.2f}"


def _format_signed(difference: float, unit: str) -> str:
    return f"{'+' if difference >= 0 else '−'}{_number(abs(difference), unit)}"


def differing_section(rows: Sequence[tuple[str, str, str]]) -> Section:
    """Return what is not as in the paper."""
    text = ("What is not as in the paper, as far as it is known; a number is only comparable as far as these allow.",)
    return Section("Settings that differ", ("setting", "paper", "here"), rows, text)


def _costs(table: Reproduction) -> Section:
    text = "Of the cells that ended, as if nothing had been cached: judges counted in, the extraction of triples not."
    return Section("Cost", (), table.cost, (text,))


def _cells(table: Reproduction) -> Iterator[Section]:
    commands = [(f"{c.row} · {c.column}", c.state, c.command) for c in table.cells if c.command]
    yield Section("The command of each cell", ("cell", "state", "command"), commands)
    idle = [(f"{c.row} · {c.column}", c.state, c.why) for c in table.cells if c.why]
    yield Section("Cells that were not run", ("cell", "state", "why"), idle)


def _by_metric(table: Reproduction) -> Iterator[Plot]:
    """Yield over the columns, or over the metric that is the x axis."""
    metrics = list(dict.fromkeys(line.metric for line in table.lines))
    by_place = {(line.row, line.column, line.metric.name): line for line in table.lines}
    x_of = _positions(table.columns)
    for metric in metrics:
        if metric.name == table.against:
            continue
        series: list[Series] = []
        for colour, row in enumerate(table.rows):
            lines = [line for c in table.columns if (line := by_place.get((row, c, metric.name)))]
            across = [by_place.get((row, line.column, table.against)) if table.against else None for line in lines]
            theirs = [_theirs(line, x, x_of) for line, x in zip(lines, across, strict=True)]
            ours = [_ours(line, x, x_of) for line, x in zip(lines, across, strict=True)]
            series += _pair(row, colour, theirs, ours, line=not table.against)
        numeric = table.against or _numeric(table.columns)
        places = () if numeric else table.columns
        x_name = table.against or table.axis
        yield Plot(f"{table.place}, {metric.name}", x_name, _metric_text(metric), series, places)


def _of_one_column(table: Reproduction) -> Iterator[Plot]:
    """Yield a distribution: the metrics side by side."""
    names = list(dict.fromkeys(line.metric.name for line in table.lines))
    x_of = {name: float(place) for place, name in enumerate(names)}
    series: list[Series] = []
    for colour, row in enumerate(table.rows):
        lines = [line for line in table.lines if line.row == row]
        theirs = [Point(x_of[m.metric.name], m.published.number) if m.published else None for m in lines]
        ours = [Point(x_of[m.metric.name], m.ours.mean, m.ours.low, m.ours.high) if m.ours else None for m in lines]
        series += _pair(row, colour, theirs, ours, line=False)
    short = [name if len(names) < 8 else str(number + 1) for number, name in enumerate(names)]
    unit = table.lines[0].metric.unit if table.lines else ""
    yield Plot(table.place, "" if len(names) < 8 else "the table's lines, in order", unit, series, short)


def _theirs(line: Line, across: Line | None, x_of: dict[str, float]) -> Point | None:
    if line.published is None:
        return None
    if across is None:
        return Point(x_of[line.column], line.published.number)
    return Point(across.published.number, line.published.number, label=line.column) if across.published else None


def _ours(line: Line, across: Line | None, x_of: dict[str, float]) -> Point | None:
    if line.ours is None:
        return None
    ends = (line.ours.low, line.ours.high)
    if across is None:
        return Point(x_of[line.column], line.ours.mean, *ends)
    return Point(across.ours.mean, line.ours.mean, *ends, label=line.column) if across.ours else None


def _pair(
    row: str, colour: int, theirs: Sequence[Point | None], ours: Sequence[Point | None], *, line: bool
) -> Iterator[Series]:
    for name, points, hollow in ((f"{row}, paper", theirs, True), (f"{row}, ours", ours, False)):
        known = [point for point in points if point is not None]
        if known:
            yield Series(name, known, colour, hollow, line)


def _positions(columns: Sequence[str]) -> dict[str, float]:
    if _numeric(columns):
        return {column: float(column) for column in columns}
    return {column: float(place) for place, column in enumerate(columns)}


def _numeric(columns: Sequence[str]) -> bool:
    return all(column.replace(".", "", 1).isdigit() for column in columns)

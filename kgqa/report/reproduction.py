"""The report of a reproduction: published values next to ours, differences, costs, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kgqa.report.page import sections_page
from kgqa.report.plots import Plot, Point, Series, svg
from kgqa.report.section import FILES, MarkedCell, Section, latex, markdown
from kgqa.scoring.published_delta import CLOSE, CLOSE_SHARE, CLOSE_WIDTHS, FEW, SAME_SHARE, Metric, Ours, Value, Verdict
from kgqa.util.fs import json_text, replace_file

RULE = (
    "OK: the published value lies in our 95 % interval; close: within "
    f"{CLOSE_WIDTHS:g} half-widths of it, or {CLOSE:g} points; off: further away. Without an interval: OK within "
    f"{100 * SAME_SHARE:g} % of the published value, close within {100 * CLOSE_SHARE:g} %. few: fewer than {FEW} "
    "questions, which tell nothing about the paper's value."
)
POINTS = "Plots: the paper's points are hollow, where its text gives them. Ours are filled, with 95 % intervals."
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

    def sections(self) -> list[Section]:
        """Return the verdicts with the plots, the values, the settings that differ, the costs, the cells."""
        cost_text = "As if nothing had been cached. Judges are included, the extraction of triples is not."
        commands = [(f"{cell.row} · {cell.column}", cell.state, cell.command) for cell in self.cells if cell.command]
        idle = [(f"{cell.row} · {cell.column}", cell.state, cell.why) for cell in self.cells if cell.why]
        listed = [
            self._verdicts(),
            *self.comparison(),
            Section("Chosen on development questions", ("cell", "values", "among"), self.chosen),
            differing_section(self.differing),
            Section("Cost", (), self.cost, (cost_text,)),
            Section("The command of each cell", ("cell", "state", "command"), commands),
            Section("Cells that were not run", ("cell", "state", "why"), idle),
        ]
        return [section for section in listed if section.rows]

    def comparison(self) -> list[Section]:
        """Return the values, a section for each column (for a figure with few rows: for each row)."""
        by_row = self.is_figure and len(self.rows) <= len(self.columns)
        header = ((self.axis or "column") if by_row else "system", "metric", *_COMPARED)
        sections = []
        for name in self.rows if by_row else self.columns:
            rows = [
                (line.column if by_row else line.row, _metric_text(line.metric), *_line_cells(line))
                for line in self.lines
                if name == (line.row if by_row else line.column) and (line.published or line.ours)
            ]
            sections += [Section(name, header, rows)] if rows else []
        return sections

    def plots(self) -> list[Plot]:
        """Return the plots of a figure with several columns, one for each metric with a known point."""
        if not self.is_figure or len(self.columns) == 1:
            return []
        return [plot for plot in self._by_metric() if plot.series]

    def _verdicts(self) -> Section:
        verdicts = Counter(line.verdict for line in self.lines if line.ours and line.published)
        rows = [(verdict, f"{verdicts[verdict]:,}") for verdict in ("OK", "close", "off", "few") if verdicts[verdict]]
        without = sum(line.published is not None and line.ours is None for line in self.lines)
        rows += [("not run", f"{without:,}")] if without else []
        states = Counter(cell.state for cell in self.cells)
        counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
        plots = self.plots()
        text = (f"{self.place}. {len(self.cells):,} cells: {counts}.", self.command, RULE, *([POINTS] if plots else []))
        rows = rows or [("none is given in the text", "0")]
        return Section("Verdicts", ("published values", "number"), rows, text, plots=plots)

    def _by_metric(self) -> Iterator[Plot]:
        """Yield a plot for each metric over the columns, or over the metric that is the x axis."""
        by_place = {(line.row, line.column, line.metric.name): line for line in self.lines}
        numeric = all(column.replace(".", "", 1).isdigit() for column in self.columns)
        x_of = {column: float(column) if numeric else place for place, column in enumerate(self.columns)}
        for metric in dict.fromkeys(line.metric for line in self.lines):
            if metric.name == self.against:
                continue
            series: list[Series] = []
            for colour, row in enumerate(self.rows):
                theirs, ours = list[Point](), list[Point]()
                for line in (by_place.get((row, column, metric.name)) for column in self.columns):
                    if line and not self.against:
                        theirs += _published_point(x_of[line.column], line)
                        ours += _our_point(x_of[line.column], line)
                    elif line and (across := by_place.get((row, line.column, self.against))):
                        if across.published:
                            theirs += _published_point(across.published.number, line, line.column)
                        if across.ours:
                            ours += _our_point(across.ours.mean, line, line.column)
                series += _pair(row, colour, theirs, ours, line=not self.against)
            places = () if self.against or numeric else self.columns
            x_name, y_name = self.against or self.axis, _metric_text(metric)
            yield Plot(f"{self.place}, {metric.name}", x_name, y_name, series, places)


def differing_section(rows: Sequence[tuple[str, str, str]]) -> Section:
    text = "What is not as in the paper, as far as it is known. A number is only comparable as far as these allow."
    return Section("Settings that differ", ("setting", "paper", "here"), rows, (text,))


def write_reproduction(table: Reproduction, folder: Path) -> Path:
    """Write report.md, .html, .tex, table.json and a figure's plots as .svg, and return the HTML file."""
    pictures = []
    for number, plot in enumerate(table.plots(), 1):
        replace_file(folder / f"plot{number}.svg", f"{svg(plot)}\n")
        pictures.append(f"![{plot.title}](plot{number}.svg)\n")
    text = "\n".join([markdown(table.heading, table.sections()), *pictures])
    replace_file(folder / FILES["md"], text)
    replace_file(folder / FILES["latex"], latex(table.heading, table.comparison()))
    replace_file(folder / "table.json", json_text(asdict(table)))
    return replace_file(folder / FILES["html"], sections_page(table.heading, table.place, table.sections()))


def only_ours(table: Reproduction) -> Reproduction:
    """Return the table without the values that have none of ours."""
    return replace(table, lines=[line for line in table.lines if line.ours])


def value_text(value: Value | None, unit: str) -> str:
    if value is None:
        return "–"
    spread = "" if value.spread is None else f" ± {value.spread:g}"
    return f"{'~' if value.approximate else ''}{_number(value.number, unit)}{spread}"


def _line_cells(line: Line) -> tuple[str, str, str, str, str]:
    unit, ours, published = line.metric.unit, line.ours, value_text(line.published, line.metric.unit)
    if ours is None:
        return published, "–", "", "", line.note
    interval = "" if ours.low is None or ours.high is None else f"{ours.low:.1f} to {ours.high:.1f}"
    mean = f"{_number(ours.mean, unit)}{'' if ours.spread is None else f' ± {ours.spread:.1f}'}"
    if line.published is None:
        return published, mean, interval, "", ""
    difference = ours.mean - line.published.number
    signed = f"{'+' if difference >= 0 else '−'}{_number(abs(difference), unit)}"
    return published, mean, interval, signed, MarkedCell(line.verdict, line.verdict.lower())


def _metric_text(metric: Metric) -> str:
    return metric.name if metric.unit in ("%", metric.name.lower()) else f"{metric.name} ({metric.unit})"


def _number(number: float, unit: str) -> str:
    if unit == "%":
        return f"{number:.1f}" if round(10 * number, 6) % 1 == 0 else f"{number:.2f}"
    return f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 1000 else f"{number:,.2f}"


def _published_point(x: float, line: Line, label: str = "") -> list[Point]:
    return [Point(x, line.published.number, label=label)] if line.published else []


def _our_point(x: float, line: Line, label: str = "") -> list[Point]:
    return [Point(x, line.ours.mean, line.ours.low, line.ours.high, label)] if line.ours else []


def _pair(row: str, colour: int, theirs: Sequence[Point], ours: Sequence[Point], *, line: bool) -> list[Series]:
    pair = (Series(f"{row}, paper", theirs, colour, True, line), Series(f"{row}, ours", ours, colour, False, line))
    return [series for series in pair if series.points]

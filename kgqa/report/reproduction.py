"""The report of a reproduction: published values next to ours, differences, costs and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from math import ceil
from pathlib import Path

from kgqa.artifacts.run import MADE_UP
from kgqa.report.columns import JUDGE_ACCURACY
from kgqa.report.page import sections_page
from kgqa.report.plots import Plot, Point, Series
from kgqa.report.section import FILES, MarkedCell, Section, latex, markdown
from kgqa.scoring.published_delta import (
    FEW,
    MARGIN_SHARE,
    SECONDS,
    Delta,
    Ours,
    PublishedMetric,
    Value,
    Verdict,
    wilson_interval,
)
from kgqa.util.fs import json_text, replace_file
from kgqa.util.text import pluralize, score_text

POINTS = "Plots: points of the paper's text are hollow. Ours are filled, with 95 % intervals."
# of a value that is unknown
MISSING = "–"
VERDICTS: tuple[Verdict, ...] = ("agrees", "differs", "cannot tell", "not compared", "no model")
ORDER = (
    "Two rows differ here if the 95 % interval of their paired difference excludes 0. One in 20 such intervals "
    "misleads. Rows are not compared if the paper uses different models and we use one."
)
CORRECTED = (
    "The accuracy without the judge's errors, by the labels of kgqa evaluate. Its interval contains the uncertainty of "
    "both. The papers' values are not corrected, so that they are compared with the judge's own."
)
FAILED = "Values show failed questions, which count as wrong. Run the command again to retry them."
# chance that an interval excludes 0 if nothing differs
ALPHA = 0.05
# models in the heading of our values
_NAMED = 2


@dataclass(frozen=True, slots=True)
class Line:
    """A published value. `note`: why there is none of ours."""

    row: str
    column: str
    metric: PublishedMetric
    published: Value | None
    ours: Ours | None
    delta: Delta | None
    note: str

    def number(self, *, ours: bool) -> float | None:
        """Return our value or the published one, None if it is not known."""
        if ours:
            return self.ours.mean if self.ours else None
        return self.published.number if self.published else None


@dataclass(frozen=True, slots=True)
class CellLine:
    """The result of one cell, and the command that runs only this cell."""

    row: str
    column: str
    state: str
    why: str
    command: str
    # the run's folder; "": none yet
    run: str


@dataclass(frozen=True, slots=True)
class Order:
    """The pairs of rows of a column with an order in the paper, by the order in our runs."""

    column: str
    metric: str
    pairs: int
    same: int
    reversed: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A table or figure with our values.

    differing: setting, the paper's value, ours. against: the metric on a figure's x axis, "" for its columns.
    answered_by: the models of our values. margin: the points within which two values agree.
    """

    id: str
    title: str
    place: str
    command: str
    axis: str
    against: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    answered_by: tuple[str, ...]
    margin: float
    lines: Sequence[Line]
    cells: Sequence[CellLine]
    differing: Sequence[tuple[str, str, str]]
    cost: Sequence[tuple[str, str]]
    orders: Sequence[Order] = ()
    # cell, values chosen on dev, among how many
    chosen: Sequence[tuple[str, str, str]] = ()
    # the source of the published values, if it is not the paper
    second_hand: str = ""
    scorer: str = ""  # a sentence
    # cell, accuracy by a judge, and the same corrected by labels
    corrected: Sequence[tuple[str, str, str]] = ()
    # about the scores of cells
    warnings: Sequence[str] = ()
    # which calls the costs leave out, by cells
    cost_notes: Sequence[str] = ()

    @property
    def is_figure(self) -> bool:
        return self.place.startswith("Figure")

    @property
    def heading(self) -> str:
        return f"{self.id}: {self.title}"

    def sections(self) -> list[Section]:
        """Return the sections without empty ones."""
        cost_text = "Computed as if no reply had been cached. Judges are included, the extraction of triples is not."
        commands = [
            (f"{cell.row} · {cell.column}", cell.state, cell.command)
            for cell in self.cells
            if cell.command
        ]
        idle = [
            (f"{cell.row} · {cell.column}", cell.state, cell.why) for cell in self.cells if cell.why
        ]
        listed = [
            self.verdicts(),
            *self.comparison(),
            self.rules_section(),
            Section(
                "Judge, corrected by labels",
                ("cell", JUDGE_ACCURACY, "corrected"),
                self.corrected,
                (CORRECTED,),
            ),
            self.order_section(),
            Section("Chosen on development questions", ("cell", "values", "among"), self.chosen),
            differing_section(self.differing),
            Section("Cost", (), self.cost, (cost_text, *self.cost_notes)),
            Section("The command of each cell", ("cell", "state", "command"), commands),
            Section("Cells that were not run", ("cell", "state", "why"), idle),
        ]
        return [section for section in listed if section.rows]

    def comparison(self) -> list[Section]:
        """Return a section of values per column, or per row for a figure with few rows."""
        by_row = self.is_figure and len(self.rows) <= len(self.columns)
        models = self.answered_by
        named = ", ".join(models) if len(models) <= _NAMED else f"{len(models)} models"
        ours = MarkedCell(f"ours ({named})" if models else "ours", brief="ours")
        compared = (
            "published",
            ours,
            "95 % interval",
            "difference",
            "verdict",
            "agrees within",
            "prediction",
        )
        header = ((self.axis or "column") if by_row else "system", "metric", *compared)
        sections = []
        for name in self.rows if by_row else self.columns:
            rows = [
                (line.column if by_row else line.row, _metric_text(line.metric), *_line_cells(line))
                for line in self.lines
                if name == (line.row if by_row else line.column) and (line.published or line.ours)
            ]
            # a narrow terminal omits the last two
            sections += [Section(name, header, rows, optional=2)] if rows else []
        return sections

    def paper_tables(self) -> list[Section]:
        """Return the sections of `comparison` with the columns for a paper. The report has the others, and reasons."""
        tables = []
        for section in self.comparison():
            header = (*section.header[:3], "ours", "95 % interval", "verdict")
            rows = [(*row[:5], "not run" if row[3] == MISSING else row[6]) for row in section.rows]
            tables.append(Section(section.title, header, rows))
        return tables

    def order_section(self) -> Section:
        """Return the numbers of pairs of rows by order."""
        header = ("column", "metric", "pairs of rows", "as in the paper", "reversed", "cannot tell")
        return Section(
            "Order of the rows", header, [astuple(order) for order in self.orders], (ORDER,)
        )

    def plots(self) -> list[Plot]:
        """Return a plot per metric with a known point, for a figure with several columns."""
        if not self.is_figure or len(self.columns) == 1:
            return []
        return [plot for plot in self._by_metric() if plot.series]

    def verdicts(self) -> Section:
        """Return the numbers of published values by verdict."""
        counts = Counter(line.delta.verdict for line in self.lines if line.delta)
        without = sum(line.published is not None and line.ours is None for line in self.lines)
        numbers: dict[str, int] = {verdict: counts[verdict] for verdict in VERDICTS}
        numbers["not run"] = without
        by_verdict = {name: number for name, number in numbers.items() if number} or {
            "no value in the text": len(self.lines)
        }
        states = Counter(cell.state for cell in self.cells)
        cells = ", ".join(f"{count:,} {state}" for state, count in states.items())
        plots = self.plots()
        place = f"{self.place}. {len(self.cells):,} cells: {cells}."
        failed = [FAILED] if any(line.ours and line.ours.failed for line in self.lines) else []
        copied = (
            [f"The published values are secondary, from {self.second_hand}."]
            if self.second_hand
            else []
        )
        scorer = [self.scorer] if self.scorer else []
        warnings = (f"**Warning**: {text}" for text in self.warnings)
        text = (
            *warnings,
            place,
            *copied,
            *scorer,
            *failed,
            *self._remarks(),
            *([POINTS] if plots else []),
        )
        return Section("Verdicts", ("published values", "number"), by_verdict, text, plots=plots)

    def rules_section(self) -> Section:
        """Return the meaning of each verdict and column."""
        rules = {
            "agrees": f"the 95 % interval of the difference is within {self.margin:g} points of 0 "
            f"({100 * MARGIN_SHARE:g} % of the published value if the unit is not percent). "
            "It includes the sampling errors of both values.",
            "differs": "the interval excludes 0 and is not within the margin.",
            "cannot tell": "the interval includes 0 and is wider than the margin, there is no interval, or there are "
            f"fewer than {FEW} questions.",
        }
        if any(line.metric.unit == SECONDS for line in self.lines):
            rules["seconds, not compared"] = (
                "they depend on the hardware and on how many questions run at once."
            )
        if any(line.ours and line.ours.is_simulated for line in self.lines):
            rules["no model"] = f"{MADE_UP}. They are not compared."
        whys = {line.metric.name: line.metric.why for line in self.lines if line.delta}
        rules |= {f"{name}, not compared": why for name, why in whys.items() if why}
        rules["agrees within"] = "the smallest margin with which the values agree."
        rules["prediction"] = (
            "whether our value is inside the 95 % prediction interval of the published one, for as many questions as "
            "ours."
        )
        return Section("How to read the verdicts", (), rules)

    def _remarks(self) -> Iterator[str]:
        """Yield what chance alone does to these verdicts."""
        few = (
            line for line in self.lines if line.delta and line.delta.low is not None and line.ours
        )
        tested = [
            line.delta for line in few if line.delta and line.ours and line.ours.questions >= FEW
        ]
        if tested:
            count, differing = len(tested), sum(delta.verdict == "differs" for delta in tested)
            yield (
                f"Of {pluralize(count, 'compared value')}, up to {ALPHA * count:.1f} would differ by chance. "
                f"{differing:,} {'differs' if differing == 1 else 'differ'} here."
            )
        values = [line.published for line in self.lines if line.delta and line.metric.unit == "%"]
        intervals = [
            wilson_interval(value.number, value.questions)
            for value in values
            if value and value.questions
        ]
        wide = [error for low, high in intervals if (error := (high - low) / 2) >= self.margin]
        if wide:
            yield (
                f"{len(wide):,} of {len(values):,} published percentages cannot agree within {self.margin:g} points. "
                "The paper has so few questions that their own sampling error is up to "
                f"{score_text(max(wide))} points. Set a larger margin= to test them."
            )

    def _by_metric(self) -> Iterator[Plot]:
        """Yield a plot per metric over the columns, or over the metric of the x axis."""
        numeric = all(column.replace(".", "", 1).isdigit() for column in self.columns)
        places = () if self.against or numeric else self.columns
        for metric in dict.fromkeys(
            line.metric for line in self.lines if line.metric.name != self.against
        ):
            series: list[Series] = []
            for colour, row in enumerate(self.rows):
                for name in ("paper", "ours"):
                    points = list(self._points(row, metric, ours=name == "ours", numeric=numeric))
                    if points:
                        series.append(
                            Series(
                                f"{row}, {name}", points, colour, name == "paper", not self.against
                            )
                        )
            x_name, y_name = self.against or self.axis, _metric_text(metric)
            yield Plot(f"{self.place}, {metric.name}", x_name, y_name, series, places)

    def _points(
        self, row: str, metric: PublishedMetric, *, ours: bool, numeric: bool
    ) -> Iterator[Point]:
        """Yield the known points of a row. Columns without numbers have their places as x."""
        lines = {(line.column, line.metric.name): line for line in self.lines if line.row == row}
        for place, column in enumerate(self.columns):
            line, across = lines.get((column, metric.name)), lines.get((column, self.against))
            x: float | None = float(column) if numeric else place
            if self.against:
                x = across.number(ours=ours) if across else None
            y = line.number(ours=ours) if line else None
            if x is not None and y is not None:
                ends = line.ours.ends if line and line.ours and ours else None
                low, high = ends or (None, None)
                yield Point(x, y, low, high, column if self.against else "")


def differing_section(rows: Sequence[tuple[str, str, str]]) -> Section:
    text = "Known deviations from the paper. Compare numbers with these in mind."
    return Section("Settings that differ", ("setting", "paper", "here"), rows, (text,))


def write_reproduction(table: Reproduction, folder: Path) -> Path:
    """Write report.md, .html, .tex and table.json, and return the HTML file."""
    opening = Section("", (), (), (f"`{table.command}`",))
    replace_file(folder / FILES["md"], markdown(table.heading, [opening, *table.sections()]))
    by = f". Ours: {', '.join(table.answered_by)}" if table.answered_by else ""
    warnings = "".join(f". Warning: {text.rstrip('.')}" for text in table.warnings)
    caption = f"{table.heading}{by}{warnings}"
    replace_file(folder / FILES["latex"], latex(caption, table.paper_tables()))
    replace_file(folder / "table.json", json_text(asdict(table)))
    return replace_file(
        folder / FILES["html"], sections_page(table.heading, table.command, table.sections())
    )


def only_ours(table: Reproduction) -> Reproduction:
    """Return the table without the values that we did not measure."""
    return replace(table, lines=[line for line in table.lines if line.ours])


def _line_cells(line: Line) -> tuple[str, str, str, str, str, str, str]:
    unit, ours, value, published = line.metric.unit, line.ours, line.published, MISSING
    if value:
        spread = "" if value.spread is None else f" ± {value.spread:g}"
        published = f"{'~' if value.approximate else ''}{_number(value.number, unit)}{spread}"
    if ours is None:
        return published, MISSING, "", "", line.note, "", ""
    interval = " to ".join(_rounded(end, unit) for end in ours.ends or ())
    mean = f"{_rounded(ours.mean, unit)}{'' if ours.spread is None else f' ± {score_text(ours.spread)}'}"
    mean += f" ({ours.answered_text})" if ours.failed else ""
    if line.delta is None:
        return published, mean, interval, "", "", "", ""
    difference = _format_signed(line.delta.difference, unit)
    if line.delta.low is not None and line.delta.high is not None:
        low, high = (_format_signed(end, unit) for end in (line.delta.low, line.delta.high))
        difference += f" [{low}, {high}]"
    verdict = MarkedCell(line.delta.verdict, line.delta.verdict.replace(" ", "-"))
    margin, predicted = line.delta.agrees_within, line.delta.predicted
    within = "" if margin is None else _round_up(margin, unit)
    place = "" if predicted is None else "inside" if predicted else "outside"
    return published, mean, interval, difference, verdict, within, place


def _metric_text(metric: PublishedMetric) -> str:
    return (
        metric.name
        if metric.unit in ("%", metric.name.lower())
        else f"{metric.name} ({metric.unit})"
    )


def _number(number: float, unit: str) -> str:
    if unit == "%":
        return f"{number:.1f}" if round(10 * number, 6) % 1 == 0 else f"{number:.2f}"
    return (
        f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 100 else f"{number:,.2f}"
    )


def _format_signed(number: float, unit: str) -> str:
    text = _rounded(abs(number), unit)
    sign = "+" if number > 0 else "−"
    # what is rounded to 0 has no sign, see score_text
    return f"{sign}{text}" if text.strip("0.") else text


def _round_up(number: float, unit: str) -> str:
    """Return a margin with the digits of our values, not smaller than it is."""
    return _rounded(ceil(10 * number) / 10 if unit == "%" else number, unit)


def _rounded(number: float, unit: str) -> str:
    """Return a value of ours with the digits that its interval leaves."""
    if unit.startswith("tokens"):
        return f"{number:,.0f}"
    return score_text(number) if unit == "%" else _number(number, unit)

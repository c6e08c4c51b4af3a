"""The published values beside those of the runs that ended so far."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from statistics import fmean, stdev

from kgqa.artifacts.metrics import Cost
from kgqa.report.reproduction import CellLine, Line, Reproduction
from kgqa.reproduce.cells import NEEDING, PlannedCell
from kgqa.reproduce.differences import Experiments, Row, differing
from kgqa.reproduce.protocol import protocol_of
from kgqa.reproduce.published import PublishedTable
from kgqa.reproduce.request import ReproduceRequest
from kgqa.reproduce.stages import Ran
from kgqa.scoring.published_delta import Metric, Ours, closeness, read_measured_value
from kgqa.sweeps.cells import CellResult

Results = Mapping[tuple[str, ...], Ran]  # by the overrides of a cell


def compare_cells(
    request: ReproduceRequest, planned: Sequence[PlannedCell], results: Results, experiments: Experiments
) -> Reproduction:
    table = request.table
    lines = [line for cell in planned if cell.state != "mean" for line in _lines(table, cell, results)]
    means = sorted((cell for cell in planned if cell.state == "mean"), key=lambda cell: len(cell.published.mean_of))
    for cell in means:  # of columns first: a mean of rows may be of their means
        lines += _means(table, cell, lines)
    chosen = [cell for cell in planned if cell.state != "mean"]
    columns = [cell.published.column for cell in planned]
    return Reproduction(
        table.id,
        table.title,
        table.place,
        shlex.join(request.command),
        table.axis,
        table.against,
        tuple(name for name in table.columns if name in columns),
        tuple(dict.fromkeys(cell.published.row for cell in planned)),
        lines,
        [_cell_line(cell, results.get(cell.overrides)) for cell in chosen],
        differences(request, planned, results, experiments),
        _cost(planned, results),
        _choose(chosen, results),
    )


def _lines(table: PublishedTable, cell: PlannedCell, results: Results) -> list[Line]:
    ran = results.get(cell.overrides) if cell.state == "run" else None
    lines = []
    for metric, published in zip(table.metrics, cell.published.values, strict=True):
        ours = _measure(ran, metric) if ran else None
        verdict = closeness(published, ours) if published and ours else ""
        note = "" if ours else metric.why or _state(cell, ran)
        lines.append(Line(cell.published.row, cell.published.column, metric, published, ours, verdict, note))
    return lines


def _measure(ran: Ran, metric: Metric) -> Ours | None:
    """Return the mean over the runs, once all have ended, with their standard deviation; so of the ends of the
    interval.
    """
    found = [read_measured_value(run.figures, metric) if run.figures else None for run in ran.tests]
    known = [ours for ours in found if ours is not None]
    if not known or len(known) < len(found):
        return None
    if len(known) == 1:
        return known[0]
    low = [ours.low for ours in known if ours.low is not None]
    high = [ours.high for ours in known if ours.high is not None]
    whole = len(low) == len(high) == len(known)
    means, questions = [ours.mean for ours in known], min(ours.questions for ours in known)
    return Ours(fmean(means), fmean(low) if whole else None, fmean(high) if whole else None, questions, stdev(means))


def _means(table: PublishedTable, cell: PlannedCell, lines: Sequence[Line]) -> list[Line]:
    """Return the means of a row's other columns, or of the same column in other rows, where all of them are known."""
    row, column, rows = cell.published.row, cell.published.column, cell.published.mean_of
    places = {(other, column) for other in rows} or {(row, name) for name in table.columns if name != table.average}
    means = []
    for metric, published in zip(table.metrics, cell.published.values, strict=True):
        values = [line.ours for line in lines if (line.row, line.column) in places and line.metric == metric]
        known = [ours for ours in values if ours is not None]
        ours = _mean(known) if len(known) == len(places) else None
        verdict = closeness(published, ours) if published and ours else ""
        note = "" if ours else f"not all of its {'rows' if rows else 'columns'} were run"
        means.append(Line(row, column, metric, published, ours, verdict, note))
    return means


def _mean(known: Sequence[Ours]) -> Ours:
    return Ours(fsum(ours.mean for ours in known) / len(known), None, None, min(ours.questions for ours in known))


def _state(cell: PlannedCell, ran: Ran | None) -> str:
    if cell.state != "run":
        return cell.state
    if ran is None:
        return "not run yet"
    worst = _worst(ran)
    return f"{worst.status}: {worst.error}" if worst.error else "not measured by this run"


def _worst(ran: Ran) -> CellResult:
    """Return the first of its runs that did not end well, else the first."""
    return next((result for result in ran.tests if result.error), ran.tests[0])


def _cell_line(cell: PlannedCell, ran: Ran | None) -> CellLine:
    result = _worst(ran) if ran else None
    words = ran.command if ran and ran.command else (*cell.command, *cell.overrides) if cell.overrides else ()
    status = "not run yet" if result is None else "done" if result.status == "skipped" else result.status
    state = status if cell.state == "run" else cell.state
    why = cell.why or (result.error if result and result.error else "")
    runs = " ".join(str(test.run) for test in ran.tests if test.run) if ran else ""
    return CellLine(cell.published.row, cell.published.column, state, why, shlex.join(words), runs)


def _choose(cells: Sequence[PlannedCell], results: Results) -> list[tuple[str, str, str]]:
    """Return what was chosen on dev for each cell, among how many."""
    found = [(cell.name, results[cell.overrides]) for cell in cells if cell.overrides in results]
    return [(name, ran.chosen, f"{len(ran.tried)}") for name, ran in found if ran.chosen]


def differences(
    request: ReproduceRequest, planned: Sequence[PlannedCell], results: Results, experiments: Experiments
) -> list[Row]:
    """Return settings, and how many questions were really asked."""
    rows = [*_protocol(request), *differing(request.table, planned, request.overrides, experiments)]
    if request.protocol:
        decided = {setting.name for setting in request.table.settings if setting.key in request.protocol.decides()}
        rows = [row for row in rows if row[0] not in decided]
    running = [cell.overrides for cell in planned if cell.state == "run"]
    if len(distinct := set(running)) < len(running):
        rows.append(("experiments", f"{len(running)} cells", f"{len(distinct)}: cells with equal settings share a run"))
    counts = sorted({run.figures["questions"] for ran in results.values() for run in ran.tests if run.figures})
    if counts:
        span = " to ".join(dict.fromkeys(f"{count:,}" for count in (counts[0], counts[-1])))
        theirs = next((setting.theirs for setting in request.table.settings if setting.key == "limit"), "not said")
        rows.append(("questions asked", theirs, f"{span} per cell"))
    return rows


def _protocol(request: ReproduceRequest) -> Iterator[Row]:
    """Yield what the paper did beyond a cell's settings, and what is done here."""
    theirs = protocol_of(request.table.id)
    if theirs and request.protocol:
        yield "protocol", theirs.words(), f"{request.protocol.words()}; which questions is drawn by us"
    elif theirs:
        yield "protocol", theirs.words(), f"short: {theirs.short()}; protocol=paper does as the paper"


def _cost(planned: Sequence[PlannedCell], results: Results) -> list[tuple[str, str]]:
    """Return the cost so far, and for the cells that could still run at the mean of those that did."""
    of_cells = {key: [run for run in (*ran.tried, *ran.tests) if run.costs] for key, ran in results.items()}
    ended = {key: runs for key, runs in of_cells.items() if runs}
    if not ended:
        return []
    measured = [run for runs in ended.values() for run in runs]
    costs = [cost for run in measured for cost in run.costs]
    spent = [(cost.calls, cost.prompt_tokens, cost.output_tokens, cost.seconds) for cost in costs]
    totals = [fsum(column) for column in zip(*spent, strict=True)]
    rows = [("so far", _cost_text(len(measured), totals, costs))]
    rows += [
        ("this command", f"{fsum(run.seconds for runs in of_cells.values() for run in runs):,.1f} s for its cells")
    ]
    left = {cell.overrides for cell in planned if cell.state == "run" or cell.state in NEEDING} - ended.keys()
    if left:
        share = len(left) / len(ended)
        runs = round(share * len(measured))
        rows.append(("for the others, at the mean of these", _cost_text(runs, [share * t for t in totals], ())))
    return rows


def _cost_text(cells: int, totals: Sequence[float], costs: Sequence[Cost]) -> str:
    calls, prompt, output, seconds = totals
    dollars = [cost.usd for cost in costs if cost.usd is not None]
    price = f", {fsum(dollars):,.4f} USD" if dollars else ""
    runs = "1 run" if cells == 1 else f"{cells:,} runs"
    return (
        f"{runs}: {calls:,.0f} model calls, {prompt:,.0f} prompt and {output:,.0f} generated tokens, "
        f"{seconds:,.1f} model seconds{price}"
    )

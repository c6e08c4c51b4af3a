"""Put the published values next to those of the runs that have finished so far."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from statistics import fmean, stdev

from kgqa.artifacts.metrics import Cost
from kgqa.experiment.experiment import Experiment
from kgqa.report.reproduction import CellLine, Line, Reproduction
from kgqa.reproduce.cells import NEEDING, PlannedCell
from kgqa.reproduce.differences import Row, list_setting_differences
from kgqa.reproduce.protocol import CellRuns, Protocol, protocol_of
from kgqa.reproduce.tables import PublishedCell, PublishedTable
from kgqa.scoring.published_delta import Metric, Ours, Value, closeness, read_measured_value
from kgqa.sweeps.cells import Cell

Results = Mapping[tuple[str, ...], CellRuns]  # by the overrides of a cell


def compare_cells(
    table: PublishedTable,
    command: Sequence[str],
    planned: Sequence[PlannedCell],
    results: Results,
    differing: Sequence[Row],
) -> Reproduction:
    own = [cell for cell in planned if cell.state != "mean"]
    lines = [line for cell in own for line in _lines(table, cell, results)]
    means = sorted((cell.published for cell in planned if cell.state == "mean"), key=lambda cell: len(cell.mean_of))
    for cell in means:  # of columns first: a mean of rows can need their means
        lines += _means(table, cell, lines)
    columns = {cell.published.column for cell in planned}
    runs = [(cell, results[cell.overrides]) for cell in own if cell.overrides in results]
    return Reproduction(
        id=table.id,
        title=table.title,
        place=table.place,
        command=shlex.join(command),
        axis=table.axis,
        against=table.against,
        columns=tuple(name for name in table.columns if name in columns),
        rows=tuple(dict.fromkeys(cell.published.row for cell in planned)),
        lines=lines,
        cells=[_cell_line(cell, results.get(cell.overrides)) for cell in own],
        differing=differing,
        cost=_cost(planned, results),
        chosen=[(cell.name, each.chosen, f"{len(each.tried)}") for cell, each in runs if each.chosen],
    )


def list_differences(
    table: PublishedTable,
    protocol: Protocol | None,
    overrides: Sequence[str],
    planned: Sequence[PlannedCell],
    results: Results,
    experiments: Mapping[tuple[str, ...], Experiment],
) -> list[Row]:
    """Return the settings that differ from the paper's, and the number of questions that were asked."""
    rows = list_setting_differences(table, planned, overrides, experiments)
    if protocol:
        decided = {setting.name for setting in table.settings if setting.key in protocol.decides()}
        rows = [row for row in rows if row[0] not in decided]
    if theirs := protocol_of(table.id):
        short = f"short: {theirs.short()}; protocol=paper does as the paper"
        here = f"{protocol.describe()}; which questions is drawn by us" if protocol else short
        rows.insert(0, ("protocol", theirs.describe(), here))
    running = [cell.overrides for cell in planned if cell.state == "run"]
    if len(distinct := set(running)) < len(running):
        rows.append(("experiments", f"{len(running)} cells", f"{len(distinct)}: cells with equal settings share a run"))
    counts = sorted({run.figures["questions"] for runs in results.values() for run in runs.tests if run.figures})
    if counts:
        span = " to ".join(dict.fromkeys(f"{count:,}" for count in (counts[0], counts[-1])))
        limit = next((setting.theirs for setting in table.settings if setting.key == "limit"), "not said")
        rows.append(("questions asked", limit, f"{span} per cell"))
    return rows


def _lines(table: PublishedTable, cell: PlannedCell, results: Results) -> Iterator[Line]:
    runs = results.get(cell.overrides) if cell.state == "run" else None
    for metric, published in zip(table.metrics, cell.published.values, strict=True):
        ours = _measure(runs, metric) if runs else None
        yield _line(cell.published, metric, published, ours, metric.why or _explain(cell, runs))


def _line(cell: PublishedCell, metric: Metric, published: Value | None, ours: Ours | None, note: str) -> Line:
    verdict = closeness(published, ours) if published and ours else ""
    return Line(cell.row, cell.column, metric, published, ours, verdict, "" if ours else note)


def _measure(runs: CellRuns, metric: Metric) -> Ours | None:
    """Return the mean over the runs once all have finished, with their standard deviation and mean interval."""
    found = [read_measured_value(run.figures, metric) if run.figures else None for run in runs.tests]
    known = [ours for ours in found if ours is not None]
    if not known or len(known) < len(found):
        return None
    if len(known) == 1:
        return known[0]
    low = [ours.low for ours in known if ours.low is not None]
    high = [ours.high for ours in known if ours.high is not None]
    has_interval = len(low) == len(high) == len(known)
    means, questions = [ours.mean for ours in known], min(ours.questions for ours in known)
    ends = (fmean(low), fmean(high)) if has_interval else (None, None)
    return Ours(fmean(means), ends[0], ends[1], questions, stdev(means))


def _means(table: PublishedTable, cell: PublishedCell, lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the means of a row's other columns, or of the same column in other rows, if all of them are known."""
    places = {(row, cell.column) for row in cell.mean_of}
    places = places or {(cell.row, name) for name in table.columns if name != table.average}
    for metric, published in zip(table.metrics, cell.values, strict=True):
        values = [line.ours for line in lines if (line.row, line.column) in places and line.metric == metric]
        known, ours = [value for value in values if value is not None], None
        if len(known) == len(places):
            mean = fsum(value.mean for value in known) / len(known)
            ours = Ours(mean, None, None, min(value.questions for value in known))
        note = f"not all of its {'rows' if cell.mean_of else 'columns'} were run"
        yield _line(cell, metric, published, ours, note)


def _explain(cell: PlannedCell, runs: CellRuns | None) -> str:
    """Return why there is no value."""
    if cell.state != "run":
        return cell.state
    if runs is None:
        return "not run yet"
    run = _first_failed(runs)
    return f"{run.status}: {run.error}" if run.error else "not measured by this run"


def _first_failed(runs: CellRuns) -> Cell:
    return next((run for run in runs.tests if run.error), runs.tests[0])


def _cell_line(cell: PlannedCell, runs: CellRuns | None) -> CellLine:
    run = _first_failed(runs) if runs else None
    words = runs.command if runs and runs.command else (*cell.command, *cell.overrides) if cell.overrides else ()
    status = "not run yet" if run is None else "done" if run.status == "skipped" else run.status
    folders = " ".join(str(test.run) for test in runs.tests if test.run) if runs else ""
    return CellLine(
        row=cell.published.row,
        column=cell.published.column,
        state=status if cell.state == "run" else cell.state,
        why=cell.why or (run.error if run and run.error else ""),
        command=shlex.join(words),
        run=folders,
    )


def _cost(planned: Sequence[PlannedCell], results: Results) -> list[tuple[str, str]]:
    """Return the cost so far, and for the cells that could still run at the mean of those that did."""
    by_cell = {key: [run for run in (*runs.tried, *runs.tests) if run.costs] for key, runs in results.items()}
    finished = {key: runs for key, runs in by_cell.items() if runs}
    if not finished:
        return []
    measured = [run for runs in finished.values() for run in runs]
    costs = [cost for run in measured for cost in run.costs]
    spent = [(cost.calls, cost.prompt_tokens, cost.output_tokens, cost.seconds) for cost in costs]
    totals = [fsum(column) for column in zip(*spent, strict=True)]
    seconds = fsum(run.seconds for run in measured)
    rows = [("so far", _cost_text(len(measured), totals, costs)), ("this command", f"{seconds:,.1f} s for its cells")]
    left = {cell.overrides for cell in planned if cell.state == "run" or cell.state in NEEDING} - finished.keys()
    if left:
        share = len(left) / len(finished)
        text = _cost_text(round(share * len(measured)), [share * total for total in totals], ())
        rows.append(("for the others, at the mean of these", text))
    return rows


def _cost_text(runs: int, totals: Sequence[float], costs: Sequence[Cost]) -> str:
    calls, prompt, output, seconds = totals
    dollars = [cost.usd for cost in costs if cost.usd is not None]
    price = f", {fsum(dollars):,.4f} USD" if dollars else ""
    return (
        f"{'1 run' if runs == 1 else f'{runs:,} runs'}: {calls:,.0f} model calls, {prompt:,.0f} prompt and "
        f"{output:,.0f} generated tokens, {seconds:,.1f} model seconds{price}"
    )

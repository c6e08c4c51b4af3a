"""Put the published values next to those of the runs that have finished so far."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import fsum
from pathlib import Path
from statistics import fmean, stdev

from kgqa.artifacts.metrics import Cost
from kgqa.config.overrides import override_values
from kgqa.report.reproduction import CellLine, Line, Order, Reproduction
from kgqa.reproduce.cells import NEEDING, PlannedCell
from kgqa.reproduce.differences import Row, list_setting_differences
from kgqa.reproduce.protocol import CellRuns, Protocol, protocol_of
from kgqa.reproduce.question_values import add_interval, compare_rows, pool_values, weight_values
from kgqa.reproduce.tables import PublishedCell, PublishedTable
from kgqa.scoring.published_delta import (
    Metric,
    Ours,
    Value,
    compare_with_published,
    read_measured_value,
    wilson_interval,
)
from kgqa.sweeps.cells import Cell


def compare_cells(
    table: PublishedTable,
    command: Sequence[str],
    planned: Sequence[PlannedCell],
    differing: Sequence[Row],
    margin: float,
) -> Reproduction:
    """Put each published value next to ours. `margin`: the points within which two values agree."""
    own = [cell for cell in planned if cell.state != "mean"]
    lines = [line for cell in own for line in _lines(table, cell, margin)]
    run = [cell for cell in own if cell.runs.tests]
    means = sorted((cell.published for cell in planned if cell.state == "mean"), key=lambda cell: len(cell.mean_of))
    for cell in means:  # of columns first: a mean of rows can need their means
        lines += _means(table, cell, lines, run, margin)
    columns = {cell.published.column for cell in planned}
    return Reproduction(
        id=table.id,
        title=table.title,
        place=table.place,
        command=shlex.join(command),
        axis=table.axis,
        against=table.against,
        columns=tuple(name for name in table.columns if name in columns),
        rows=tuple(dict.fromkeys(cell.published.row for cell in planned)),
        answered_by=tuple(dict.fromkeys(name for cell in run for name in _models(cell.runs))),
        margin=margin,
        lines=lines,
        orders=_orders(table, run),
        cells=[_cell_line(cell) for cell in own],
        differing=differing,
        cost=_cost(planned),
        chosen=[(cell.name, cell.runs.chosen, f"{len(cell.runs.tried)}") for cell in run if cell.runs.chosen],
        second_hand=table.second_hand,
    )


def list_differences(
    table: PublishedTable, protocol: Protocol | None, overrides: Sequence[str], planned: Sequence[PlannedCell]
) -> list[Row]:
    """Return the settings that differ from the paper's, and the number of questions that were asked."""
    rows = list_setting_differences(table, planned, overrides)
    if protocol:
        decided = {setting.name for setting in table.settings if setting.key in protocol.decides()}
        rows = [row for row in rows if row[0] not in decided]
    if theirs := protocol_of(table.id):
        short = f"short: {theirs.short()} (protocol=paper follows the paper)"
        here = f"{protocol.describe()}, and we sampled the questions" if protocol else short
        rows.insert(0, ("protocol", theirs.describe(), here))
    running = [cell.overrides for cell in planned if cell.state == "run"]
    if len(distinct := set(running)) < len(running):
        rows.append(("experiments", f"{len(running)} cells", f"{len(distinct)}: cells with equal settings share a run"))
    counts = sorted({run.figures["questions"] for cell in planned for run in cell.runs.tests if run.figures})
    if counts:
        span = " to ".join(dict.fromkeys(f"{count:,}" for count in (counts[0], counts[-1])))
        limit = next((setting.theirs for setting in table.settings if setting.key == "limit"), "not reported")
        few = protocol is not None and protocol.test is not None and counts[0] < protocol.test
        rows.append(("questions", limit, f"{span} per cell{', the files here have no more' if few else ''}"))
    return rows


def _lines(table: PublishedTable, cell: PlannedCell, margin: float) -> Iterator[Line]:
    for metric, published in zip(table.metrics, cell.published.values, strict=True):
        ours = _measure(cell.runs, metric)
        yield _line(cell.published, metric, published, ours, metric.why or _explain(cell), margin)


def _line(
    cell: PublishedCell, metric: Metric, published: Value | None, ours: Ours | None, note: str, margin: float
) -> Line:
    delta = compare_with_published(published, ours, metric.unit, margin) if published and ours else None
    return Line(cell.row, cell.column, metric, published, ours, delta, "" if ours else note)


def _measure(runs: CellRuns, metric: Metric) -> Ours | None:
    """Return the mean over the runs once all have finished, with their standard deviation and mean interval."""
    found = [_measure_run(run, metric) for run in runs.tests]
    known = [ours for ours in found if ours is not None]
    if not known or len(known) < len(found):
        return None
    if len(known) == 1:
        return known[0]
    ends = _mean_ends(known)  # the runs have the same questions
    means, questions = [ours.mean for ours in known], min(ours.questions for ours in known)
    worst = max(known, key=lambda ours: ours.failed)
    return Ours(fmean(means), *ends, questions, stdev(means), worst.failed, worst.asked)


def _measure_run(run: Cell, metric: Metric) -> Ours | None:
    ours = read_measured_value(run.figures, metric) if run.figures else None
    if ours and run.metrics and run.metrics.failed:
        ours = replace(ours, failed=run.metrics.failed, asked=run.metrics.questions)
    if ours is None or ours.low is not None or run.run is None:
        return ours
    if metric.unit == "%" and (metric.path or "").endswith(" / questions"):  # a share of questions
        low, high = wilson_interval(ours.mean, ours.questions)
        return replace(ours, low=low, high=high)
    return add_interval(ours, run.run, metric)


def _mean_ends(values: Sequence[Ours]) -> tuple[float | None, float | None]:
    """Return the mean ends of the intervals: the interval of a mean of values that move together."""
    low = [ours.low for ours in values if ours.low is not None]
    high = [ours.high for ours in values if ours.high is not None]
    return (fmean(low), fmean(high)) if len(low) == len(high) == len(values) else (None, None)


def _means(
    table: PublishedTable,
    cell: PublishedCell,
    lines: Sequence[Line],
    run: Sequence[PlannedCell],
    margin: float,
) -> Iterator[Line]:
    """Yield the means of a row's other columns, or of the same column in other rows, if all of them are known."""
    cells = {(row, cell.column) for row in cell.mean_of}
    cells = cells or {(cell.row, name) for name in table.columns if name != table.average}
    at_places = [each.runs for each in run if (each.published.row, each.published.column) in cells]
    for metric, published in zip(table.metrics, cell.values, strict=True):
        values = [line.ours for line in lines if (line.row, line.column) in cells and line.metric == metric]
        known, ours = [value for value in values if value is not None], None
        if len(known) == len(cells) and table.pool:
            ours = pool_values(known, [folder for runs in at_places for folder in _folders(runs)], metric)
        elif len(known) == len(cells):
            mean, low, high = weight_values(known, [1] * len(known))
            if cell.mean_of:  # rows answer the same questions, columns are other datasets
                low, high = _mean_ends(known)
            ours = Ours(mean, low, high, min(value.questions for value in known))
        if ours:
            failed, asked = sum(value.failed for value in known), sum(value.asked for value in known)
            ours = replace(ours, failed=failed, asked=asked)
        note = f"not all of its {'rows' if cell.mean_of else 'columns'} were run"
        yield _line(cell, metric, published, ours, note, margin)


def _models(runs: CellRuns) -> Iterator[str]:
    """Yield the models that answered, as in "smollm2_135m@llamacpp"."""
    for run in runs.tests:
        engines = run.metrics.throughput.engines if run.metrics and run.metrics.throughput else ()
        yield from (use.engine for use in engines if "reader" in use.roles)


def _orders(table: PublishedTable, run: Sequence[PlannedCell]) -> list[Order]:
    """Return, for each column and score, how many of the paper's pairwise orders of rows are found here."""
    orders = []
    for column in table.columns:
        here = [cell for cell in run if cell.published.column == column]
        for place, metric in enumerate(table.metrics):
            if not (metric.path or "").startswith("scores."):
                continue
            signs = Counter[int]()
            for first, second in combinations(here, 2):
                if published := _subtract_published(first, second, place):
                    own, others = _folders(first.runs), _folders(second.runs)
                    if own and others and own != others and _is_comparable(first, second):
                        sign = compare_rows(own, others, metric)
                        signs[sign if published > 0 else -sign] += 1
            if signs:
                orders.append(Order(column, metric.name, signs.total(), signs[1], signs[-1], signs[0]))
    return orders


def _subtract_published(first: PlannedCell, second: PlannedCell, metric: int) -> float:
    """Return the difference of two published values; 0 if one is missing."""
    values = first.published.values[metric], second.published.values[metric]
    return values[0].number - values[1].number if values[0] and values[1] else 0.0


def _is_comparable(first: PlannedCell, second: PlannedCell) -> bool:
    """Return False for two rows that the paper answers with two models, and we with one."""
    readers = [
        [_reader(overrides) for overrides in (cell.published.overrides, cell.overrides)] for cell in (first, second)
    ]
    (theirs, ours), (others, our_others) = readers
    return theirs == others or ours != our_others


def _reader(overrides: Sequence[str]) -> tuple[str | None, ...]:
    values = override_values(overrides)
    return values.get("model"), values.get("roles.reader")


def _folders(runs: CellRuns) -> list[Path]:
    """Return the folders of a cell's runs, or [] if not all have finished."""
    folders = [run.run for run in runs.tests if run.run and run.metrics]
    return folders if len(folders) == len(runs.tests) else []


def _explain(cell: PlannedCell) -> str:
    """Return why there is no value."""
    if cell.state != "run":
        return cell.state
    if not cell.runs.tests:
        return "not run yet"
    run = _first_failed(cell.runs)
    return f"{run.status}: {run.error}" if run.error else "not measured by this run"


def _first_failed(runs: CellRuns) -> Cell:
    return next((run for run in runs.tests if run.error), runs.tests[0])


def _cell_line(cell: PlannedCell) -> CellLine:
    runs = cell.runs
    run = _first_failed(runs) if runs.tests else None
    words = runs.command or ((*cell.command, *cell.overrides) if cell.overrides else ())
    status = "not run yet" if run is None else "done" if run.status == "skipped" else run.status
    return CellLine(
        row=cell.published.row,
        column=cell.published.column,
        state=status if cell.state == "run" else cell.state,
        why=cell.why or (run.error if run and run.error else ""),
        command=shlex.join(words),
        run=" ".join(str(test.run) for test in runs.tests if test.run),
    )


def _cost(planned: Sequence[PlannedCell]) -> list[tuple[str, str]]:
    """Return the cost so far, and for the cells that could still run at the mean of those that did."""
    by_cell = {cell.overrides: [*cell.runs.tried, *cell.runs.tests] for cell in planned}
    finished = {key: own for key, runs in by_cell.items() if (own := [run for run in runs if run.costs])}
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

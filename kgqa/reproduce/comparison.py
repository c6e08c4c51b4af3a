"""Put the published values next to those of the runs that have finished so far."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import fsum
from pathlib import Path
from statistics import fmean, stdev

from kgqa.artifacts.metrics import Cost, Metrics
from kgqa.artifacts.run import MADE_UP, SCRIPTED
from kgqa.artifacts.sweep import Cell
from kgqa.config.overrides import override_values
from kgqa.report.columns import describe_costs, join_names
from kgqa.report.reproduction import CellLine, Line, Order, Reproduction
from kgqa.report.warnings import name_doubts
from kgqa.reproduce.cells import NEEDING, PlannedCell
from kgqa.reproduce.differences import Row
from kgqa.reproduce.question_values import add_interval, compare_rows, pool_values, weight_values
from kgqa.reproduce.scorers import describe_scorer
from kgqa.reproduce.tables import PublishedTable
from kgqa.scoring.published_delta import (
    LEAST_DIFFERENCE,
    Ours,
    PublishedMetric,
    compare_metric,
    read_measured_value,
    wilson_interval,
)

NOT_RUN = "not run yet"


def compare_cells(
    table: PublishedTable,
    command: Sequence[str],
    planned: Sequence[PlannedCell],
    differing: Sequence[Row],
    margin: float,
) -> Reproduction:
    """Put each published value next to ours. `margin`: the points within which two values agree."""
    own = [cell for cell in planned if cell.state != "mean"]
    columns = {cell.published.column for cell in planned}
    runs = {cell.overrides: cell.runs for cell in own if cell.runs}
    return Reproduction(
        id=table.id,
        title=table.title,
        place=table.place,
        command=shlex.join(command),
        axis=table.axis,
        against=table.against,
        columns=tuple(name for name in table.columns if name in columns),
        rows=tuple(dict.fromkeys(cell.published.row for cell in planned)),
        answered_by=tuple(
            dict.fromkeys(name for each in runs.values() for name in _models(each.tests))
        ),
        margin=margin,
        lines=_lines(table, planned, margin),
        orders=_orders(table, own),
        cells=[_cell_line(cell) for cell in own],
        differing=differing,
        scorer=describe_scorer(table),
        cost=_cost(own),
        chosen=[
            (c.name, c.runs.chosen, f"{len(c.runs.tried)}") for c in own if c.runs and c.runs.chosen
        ],
        second_hand=table.second_hand,
        corrected=list(_correct(own)),
        warnings=[*_warn_of_simulation(own), *name_doubts(_name_metrics(own))],
        cost_notes=describe_costs(_name_metrics(own)),
    )


def _name_metrics(cells: Sequence[PlannedCell]) -> Iterator[tuple[str, Metrics]]:
    """Yield the metrics of each run with the name of its cell."""
    for cell in cells:
        for run in cell.tests:
            if run.metrics:
                yield cell.name, run.metrics


def _is_simulated(run: Cell) -> bool:
    """Return whether a run has finished without a model."""
    return bool(run.finished and run.finished.simulation_note)


def _warn_of_simulation(cells: Sequence[PlannedCell]) -> list[str]:
    """Return a warning if no model was called, with the cells if others called one."""
    finished = {cell.name: any(map(_is_simulated, cell.tests)) for cell in cells if cell.tests}
    simulated = [(name, f"{MADE_UP}.") for name, is_simulated in finished.items() if is_simulated]
    if simulated and len(simulated) == len(finished):
        return [f"{MADE_UP}."]
    return join_names(simulated)


def _correct(cells: Sequence[PlannedCell]) -> Iterator[tuple[str, str, str]]:
    """Yield the cells with labels: the accuracy by the judge of `kgqa evaluate`, and the corrected one."""
    for cell in cells:
        for run in cell.tests:
            judge = run.finished.metrics.judge if run.finished else None
            if judge and judge.corrected:
                yield (
                    f"{cell.published.row} · {cell.published.column}",
                    str(judge.accuracy),
                    str(judge.corrected),
                )


def _lines(table: PublishedTable, planned: Sequence[PlannedCell], margin: float) -> list[Line]:
    """Return the values of the cells, then the means: of columns first, as a mean of rows can need their means."""
    lines, values = list[Line](), dict[tuple[str, str, str], Ours]()
    for cell in sorted(
        planned, key=lambda cell: (cell.state == "mean", len(cell.published.mean_of))
    ):
        row, column = cell.published.row, cell.published.column
        for metric, published in zip(table.metrics, cell.published.values, strict=True):
            if cell.state == "mean":
                ours, note = _mean(table, cell, metric, planned, values)
            else:
                ours, note = _measure(cell.tests, metric), metric.why or _explain(cell)
            if ours:
                values[row, column, metric.name] = ours
            delta = compare_metric(metric, published, ours, margin) if published and ours else None
            lines.append(Line(row, column, metric, published, ours, delta, "" if ours else note))
    return lines


def _measure(tests: Sequence[Cell], metric: PublishedMetric) -> Ours | None:
    """Return the mean over the runs once all have finished, with their standard deviation and mean interval."""
    values = [ours for run in tests if (ours := _measure_run(run, metric))]
    if not values or len(values) < len(tests):
        return None
    if len(values) == 1:
        return values[0]
    # the runs have the same questions
    ends = _mean_ends(values)
    means, questions = [ours.mean for ours in values], min(ours.questions for ours in values)
    worst = max(values, key=lambda ours: ours.failed)
    return Ours(
        fmean(means),
        *ends,
        questions,
        stdev(means),
        worst.failed,
        worst.asked,
        is_simulated=any(ours.is_simulated for ours in values),
    )


def _measure_run(run: Cell, metric: PublishedMetric) -> Ours | None:
    ours = read_measured_value(run.figures, metric) if run.figures else None
    if ours and _is_simulated(run):
        ours = replace(ours, is_simulated=True)
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
    ends = [ours.ends for ours in values if ours.ends]
    if len(ends) < len(values):
        return None, None
    low, high = zip(*ends, strict=True)
    return fmean(low), fmean(high)


def _mean(
    table: PublishedTable,
    mean: PlannedCell,
    metric: PublishedMetric,
    planned: Sequence[PlannedCell],
    values: Mapping[tuple[str, str, str], Ours],
) -> tuple[Ours | None, str]:
    """Return the mean of a row's other columns, or of the column in other rows, or why it is not known."""
    row, column, rows = mean.published.row, mean.published.column, mean.published.mean_of
    places = {(name, column) for name in rows} or {
        (row, name) for name in table.columns if name != table.average
    }
    cells = [cell for cell in planned if (cell.published.row, cell.published.column) in places]
    keys = ((cell.published.row, cell.published.column, metric.name) for cell in cells)
    numbers = [values[key] for key in keys if key in values]
    if len(numbers) < len(places):
        return None, f"not all of its {'rows' if rows else 'columns'} were run"
    if table.pool:
        ours = pool_values(numbers, [folder for cell in cells for folder in _folders(cell)], metric)
    else:
        value, low, high = weight_values(numbers, [1] * len(numbers))
        # rows answer the same questions, columns are other datasets
        if rows:
            low, high = _mean_ends(numbers)
        ours = Ours(value, low, high, min(value.questions for value in numbers))
    ours = replace(
        ours,
        failed=sum(each.failed for each in numbers),
        asked=sum(each.asked for each in numbers),
        is_simulated=any(each.is_simulated for each in numbers),
    )
    return ours, ""


def _models(tests: Sequence[Cell]) -> Iterator[str]:
    """Yield the models that answered, as in "smollm2_135m@llamacpp". engine=scripted calls none."""
    for run in tests:
        engines = run.metrics.throughput.engines if run.metrics and run.metrics.throughput else ()
        readers = (use.engine for use in engines if "reader" in use.roles)
        yield from (name for name in readers if not name.endswith(f"@{SCRIPTED}"))


def _orders(table: PublishedTable, cells: Sequence[PlannedCell]) -> list[Order]:
    """Return, for each column and score, how many of the paper's pairwise orders of rows are found here."""
    scores = [
        (n, metric)
        for n, metric in enumerate(table.metrics)
        if (metric.path or "").startswith("scores.")
    ]
    orders = []
    for column in table.columns:
        signs = {metric.name: Counter[int]() for _, metric in scores}
        here = [
            cell
            for cell in cells
            if cell.published.column == column
            and _folders(cell)
            and not any(map(_is_simulated, cell.tests))
        ]
        for first, second in combinations(here, 2):
            own, others = _folders(first), _folders(second)
            for n, metric in scores if own != others and _is_comparable(first, second) else ():
                higher, lower = first.published.values[n], second.published.values[n]
                if higher and lower and _differ(higher.number, lower.number):
                    sign = compare_rows(own, others, metric)
                    signs[metric.name][sign if higher.number > lower.number else -sign] += 1
        for name, counts in signs.items():
            if counts:
                orders.append(Order(column, name, counts.total(), counts[1], counts[-1], counts[0]))
    return orders


def _differ(first: float, second: float) -> bool:
    # 33.3 - 33.2 is a little less than 0.1
    return round(abs(first - second), 6) >= LEAST_DIFFERENCE


def _is_comparable(first: PlannedCell, second: PlannedCell) -> bool:
    """Return False for two rows that the paper answers with two models, and we with one."""
    is_one_model = _reader(first.overrides) == _reader(second.overrides)
    return not is_one_model or _reader(first.published.overrides) == _reader(
        second.published.overrides
    )


def _reader(overrides: Sequence[str]) -> tuple[str | None, ...]:
    values = override_values(overrides)
    return values.get("model"), values.get("roles.reader")


def _folders(cell: PlannedCell) -> list[Path]:
    """Return the folders of a cell's runs, or [] if not all have finished."""
    folders = [run.run for run in cell.tests if run.run and run.metrics]
    return folders if len(folders) == len(cell.tests) else []


def _status(cell: PlannedCell) -> tuple[str, str]:
    """Return the state of a cell, and the error of the first of its runs that has one."""
    if cell.state != "run":
        return cell.state, ""
    run = next((run for run in cell.tests if run.error), next(iter(cell.tests), None))
    if run is None or run.status == "waiting":
        return NOT_RUN, ""
    return "done" if run.status == "skipped" else run.status, run.error or ""


def _explain(cell: PlannedCell) -> str:
    """Return why there is no value."""
    status, error = _status(cell)
    if cell.state != "run" or status == NOT_RUN:
        return status
    return f"{status}: {error}" if error else "not measured by this run"


def _cell_line(cell: PlannedCell) -> CellLine:
    status, error = _status(cell)
    return CellLine(
        row=cell.published.row,
        column=cell.published.column,
        state=status,
        why=cell.why or error,
        command=shlex.join(cell.command),
        run=" ".join(str(test.run) for test in cell.tests if test.run),
    )


def _cost(cells: Sequence[PlannedCell]) -> list[tuple[str, str]]:
    """Return the cost so far, and for the cells that could still run at the mean of those that did."""
    distinct = {cell.overrides: cell.runs for cell in cells if cell.runs}.values()
    by_cell = [[run for run in (*each.tried, *each.tests) if run.costs] for each in distinct]
    measured = [run for runs in by_cell for run in runs]
    if not measured:
        return []
    costs = [cost for run in measured for cost in run.costs]
    dollars = [cost.usd for cost in costs if cost.usd is not None]
    price = f", {fsum(dollars):,.4f} USD" if dollars else ""
    rows = [
        ("so far", _cost_text(len(measured), costs) + price),
        ("this command", f"{fsum(run.seconds for run in measured):,.1f} s for its cells"),
    ]
    finished = sum(1 for runs in by_cell if runs)
    if (
        left := len({cell.overrides for cell in cells if cell.state in ("run", *NEEDING)})
        - finished
    ):
        share = left / finished
        text = _cost_text(round(share * len(measured)), costs, share)
        rows.append(("for the others, at the mean of these", text))
    return rows


def _cost_text(runs: int, costs: Sequence[Cost], share: float = 1.0) -> str:
    """Return the sum of costs, times `share`."""
    calls, prompt, output, seconds = (
        share * fsum(getattr(cost, key) for cost in costs)
        for key in ("calls", "prompt_tokens", "output_tokens", "seconds")
    )
    return (
        f"{'1 run' if runs == 1 else f'{runs:,} runs'}: {calls:,.0f} model calls, {prompt:,.0f} prompt and "
        f"{output:,.0f} generated tokens, {seconds:,.1f} model seconds"
    )

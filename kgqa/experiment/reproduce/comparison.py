"""The published values beside those of the runs that ended so far."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from math import fsum

from kgqa.artefacts.metrics import Cost
from kgqa.experiment.reproduce.cells import PlannedCell
from kgqa.experiment.reproduce.differences import Experiments, Row, differing
from kgqa.experiment.reproduce.published import PublishedTable
from kgqa.experiment.reproduce.request import ReproduceRequest
from kgqa.experiment.sweep.cells import CellResult
from kgqa.report.reproduction import CellLine, Line, Reproduction
from kgqa.scoring.closeness import Ours, closeness, measured_value

Results = Mapping[tuple[str, ...], CellResult]  # by the overrides of a cell


def compared(
    request: ReproduceRequest, planned: Sequence[PlannedCell], results: Results, experiments: Experiments
) -> Reproduction:
    table = request.table
    lines = [line for cell in planned if cell.state != "mean" for line in _lines(table, cell, results)]
    lines += [line for cell in planned if cell.state == "mean" for line in _means(table, cell, lines)]
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
        _differing(request, planned, results, experiments),
        _cost(planned, results),
    )


def _lines(table: PublishedTable, cell: PlannedCell, results: Results) -> list[Line]:
    result = results.get(cell.overrides) if cell.state == "run" else None
    lines = []
    for metric, published in zip(table.metrics, cell.published.values, strict=True):
        ours = measured_value(result.metrics.json(), metric) if result and result.metrics else None
        verdict = closeness(published, ours) if published and ours else ""
        note = "" if ours else metric.why or _state(cell, result)
        lines.append(Line(cell.published.row, cell.published.column, metric, published, ours, verdict, note))
    return lines


def _means(table: PublishedTable, cell: PlannedCell, lines: Sequence[Line]) -> list[Line]:
    """Of a row's other columns, where all of them are known."""
    others = [name for name in table.columns if name != table.average]
    means = []
    for metric, published in zip(table.metrics, cell.published.values, strict=True):
        of_row = [line.ours for line in lines if line.row == cell.published.row and line.metric == metric]
        known = [ours for ours in of_row if ours is not None]
        ours = _mean(known) if len(known) == len(others) else None
        verdict = closeness(published, ours) if published and ours else ""
        note = "" if ours else "not all of its columns were run"
        means.append(Line(cell.published.row, cell.published.column, metric, published, ours, verdict, note))
    return means


def _mean(known: Sequence[Ours]) -> Ours:
    return Ours(fsum(ours.mean for ours in known) / len(known), None, None, min(ours.questions for ours in known))


def _state(cell: PlannedCell, result: CellResult | None) -> str:
    if cell.state != "run":
        return cell.state
    if result is None:
        return "not run yet"
    return f"{result.status}: {result.error}" if result.error else "not measured by this run"


def _cell_line(cell: PlannedCell, result: CellResult | None) -> CellLine:
    command = shlex.join(["kgqa", "run", *cell.overrides]) if cell.overrides else ""
    status = "not run yet" if result is None else "done" if result.status == "skipped" else result.status
    state = status if cell.state == "run" else cell.state
    why = cell.why or (result.error if result and result.error else "")
    return CellLine(
        cell.published.row, cell.published.column, state, why, command, str(result.run) if result and result.run else ""
    )


def _differing(
    request: ReproduceRequest, planned: Sequence[PlannedCell], results: Results, experiments: Experiments
) -> list[Row]:
    """Settings, and how many questions were really asked."""
    rows = differing(request.table, planned, request.overrides, experiments)
    running = [cell.overrides for cell in planned if cell.state == "run"]
    if len(distinct := set(running)) < len(running):
        rows.append(("experiments", f"{len(running)} cells", f"{len(distinct)}: cells with equal settings share a run"))
    counts = sorted({r.metrics.questions for r in results.values() if r.metrics})
    if counts:
        span = " to ".join(dict.fromkeys(f"{count:,}" for count in (counts[0], counts[-1])))
        theirs = next((setting.theirs for setting in request.table.settings if setting.key == "limit"), "not said")
        rows.append(("questions asked", theirs, f"{span} per cell"))
    return rows


def _cost(planned: Sequence[PlannedCell], results: Results) -> list[tuple[str, str]]:
    """So far, and for the cells that could still run at the mean of those that did."""
    ended = {key: r.metrics for key, r in results.items() if r.metrics}
    if not ended:
        return []
    costs = [metrics.cost.method for metrics in ended.values()]
    costs += [metrics.judge.cost.method for metrics in ended.values() if metrics.judge]
    spent = [(cost.calls, cost.prompt_tokens, cost.output_tokens, cost.seconds) for cost in costs]
    totals = [fsum(column) for column in zip(*spent, strict=True)]
    rows = [("so far", _cost_text(len(ended), totals, costs))]
    rows += [("this command", f"{fsum(r.seconds for r in results.values()):,.1f} s for its cells")]
    left = {cell.overrides for cell in planned if cell.state in ("run", "needs weights", "needs data")} - ended.keys()
    if left:
        share = len(left) / len(ended)
        rows.append(("for the others, at the mean of these", _cost_text(len(left), [share * t for t in totals], ())))
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

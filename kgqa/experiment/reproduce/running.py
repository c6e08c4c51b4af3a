"""`kgqa reproduce`: a paper's table or figure run again, the published values beside ours."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.composing import compose
from kgqa.experiment.config.overrides import override_key
from kgqa.experiment.reproduce.cells import PlannedCell, counted, differing, planned_cells
from kgqa.experiment.reproduce.published import Table, load_table, table_ids
from kgqa.experiment.run.executing import yaml_text
from kgqa.experiment.sweep.budget import SweepBudget
from kgqa.experiment.sweep.launching import check_launcher, run_all
from kgqa.experiment.sweep.running import Cell, CellResult, frozen_cells
from kgqa.report.evaluation import print_sections
from kgqa.report.reproduction import CellLine, Line, Reproduction, compared_sections
from kgqa.report.reproduction_writing import write_reproduction
from kgqa.report.sweep_progress import board
from kgqa.runtime.sweep_folder import SweepFolder, sweep_name
from kgqa.scoring.closeness import Ours, measured, verdict
from kgqa.storage import outputs
from kgqa.types import Json

if TYPE_CHECKING:
    from rich.console import Console

OWN = ("only", "budget", "name", "dry_run")
Results = Mapping[tuple[str, ...], CellResult]  # by the overrides of a cell


@dataclass(frozen=True)
class Asked:
    """A command line taken apart."""

    table: Table
    overrides: tuple[str, ...]  # of every cell
    hydra: tuple[str, ...]  # of a launcher
    only: str | None
    name: str | None
    budget: SweepBudget | None
    dry_run: bool
    command: tuple[str, ...]

    @classmethod
    def of(cls, table_id: str, given: Sequence[str]) -> Asked:
        """Raises ConfigError: an unknown table, key or value."""
        table = load_table(table_id)
        own = {override_key(each): each.partition("=")[2] for each in given if override_key(each) in OWN}
        hydra = tuple(each for each in given if each.startswith(("hydra/", "hydra.")))
        overrides = tuple(each for each in given if override_key(each) not in OWN and each not in hydra)
        for override in overrides:
            if override_key(override) == "out":
                raise ConfigError(f"{override}: every cell has a run's folder of its own; give name= for the report's")
        if own.get("dry_run", "false").lower() not in ("true", "false"):
            raise ConfigError(f"dry_run={own['dry_run']}: true or false")
        if "name" in own and (not own["name"] or Path(own["name"]).name != own["name"] or own["name"].startswith(".")):
            raise ConfigError(f"name={own['name']}: must be a plain folder name, without slashes or a leading dot")
        budget = SweepBudget.of(own["budget"]) if "budget" in own else None
        if unread := next((each for each in hydra if not each.startswith(("hydra/launcher=", "hydra.launcher."))), ""):
            raise ConfigError(f"{unread}: nothing reads it; a table names its cells itself, hydra/launcher= runs them")
        check_launcher(hydra, budget)
        dry_run = own.get("dry_run", "false").lower() == "true"
        command = ("kgqa", "reproduce", table_id, *given)
        return cls(table, overrides, hydra, own.get("only"), own.get("name"), budget, dry_run, command)


def reproduce(table_id: str, overrides: Sequence[str]) -> int:
    """Run what can run here and write the comparison; its folder is the last line. 2 if a cell failed or was left."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160)
    asked = Asked.of(table_id, overrides)
    planned = planned_cells(asked.table, asked.overrides, asked.only)
    cells = _frozen(planned, asked)
    _announce(asked, planned, console)
    if asked.dry_run:
        from kgqa.experiment.sweep.estimates import plan_cells

        return plan_cells(cells, console, asked.budget) if cells else 0
    frozen = [yaml_text(cell.config) for cell in cells]
    path = outputs() / "reproduce" / asked.table.id / (asked.name or sweep_name([*frozen, asked.only or ""]))
    listed = [
        {"number": cell.number, "name": cell.name, "overrides": list(cell.overrides), "run": None} for cell in cells
    ]
    results: dict[tuple[str, ...], CellResult] = {}

    def ended(cell: Cell, result: CellResult | None) -> None:
        if result is not None:  # the report is there at any time
            results[cell.overrides] = result
            write_reproduction(_reproduction(asked, planned, results), path)

    with _claimed(path, {"command": list(asked.command), "axes": {}, "cells": listed}, frozen) as folder:
        with board(path, console):
            left = run_all(cells, folder, asked.hydra, changed=ended, budget=asked.budget)
        results |= {result.cell.overrides: result for result in left}
        found = _reproduction(asked, planned, results)
        written = write_reproduction(found, path)
    if results:
        ours = replace(found, lines=[line for line in found.lines if line.ours])
        print_sections(console, found.heading, compared_sections(ours))
    for result in left:
        if result.error:
            said = f"{result.status}: {result.cell.name}: {result.error}"
            console.print(said, style="red", highlight=False, markup=False, soft_wrap=True)
    console.print(f"report: {written}", highlight=False, markup=False, soft_wrap=True)
    sys.stdout.write(f"{path}\n")  # plain, so that scripts can take it
    sys.stdout.flush()
    return 2 if any(result.status in ("failed", "not run") for result in left) else 0


def list_tables(beginning: str) -> int:
    """One line each: id, what it shows, and its cells by what they need here."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160)
    known = table_ids()
    found = [each for each in known if each.startswith(beginning)]
    if not found:
        raise ConfigError(f"kgqa reproduce --list {beginning}: no id begins so; {nearest(beginning, known)}")
    for each in found:
        table = load_table(each)
        states = [cell.state for cell in planned_cells(table, (), None) if cell.state != "mean"]
        said = ", ".join(f"{count} {state}" for state, count in counted(states))
        console.print(
            f"{each:<17}  {table.title} ({said})", highlight=False, markup=False, soft_wrap=True, no_wrap=True
        )
    return 0


def _frozen(planned: Sequence[PlannedCell], asked: Asked) -> list[Cell]:
    """Each experiment once, however many cells show it. Composed even where nothing runs, to refuse unknown keys."""
    distinct: dict[tuple[str, ...], str] = {}
    for cell in planned:
        if cell.state == "run":
            distinct.setdefault(cell.overrides, cell.name)
    if not distinct:
        compose(next((cell.overrides for cell in planned if cell.overrides), asked.overrides))
    return frozen_cells([(name, overrides) for overrides, name in distinct.items()])


def _claimed(path: Path, plan: Mapping[str, Json], frozen: Sequence[str]) -> SweepFolder:
    """A sweep's folder, in the words of this command."""
    try:
        return SweepFolder(path, plan, frozen)
    except ConfigError as error:
        raise ConfigError(str(error).replace("sweep.name=", "name=")) from error


def _announce(asked: Asked, planned: Sequence[PlannedCell], console: Console) -> None:
    """What cannot run, by reason."""
    states = [cell.state for cell in planned if cell.state != "mean"]
    said = ", ".join(f"{count} {state}" for state, count in counted(states))
    console.print(f"{asked.table.id}: {len(states)} cells: {said}", highlight=False, markup=False, soft_wrap=True)
    reasons: dict[str, list[str]] = {}
    for cell in planned:
        for reason in cell.reasons:
            reasons.setdefault(f"{cell.state}: {reason}", []).append(cell.name)
    for reason, names in reasons.items():
        which = ", ".join(names) if len(names) <= 2 else f"{len(names)} cells, {names[0]} the first"
        console.print(f"not run, {reason} ({which})", highlight=False, markup=False, soft_wrap=True)


def _reproduction(asked: Asked, planned: Sequence[PlannedCell], results: Results) -> Reproduction:
    table = asked.table
    lines = [line for cell in planned if cell.state != "mean" for line in _lines(table, cell, results)]
    lines += [line for cell in planned if cell.state == "mean" for line in _means(table, cell, lines)]
    chosen = [cell for cell in planned if cell.state != "mean"]
    columns = [cell.published.column for cell in planned]
    return Reproduction(
        table.id,
        table.title,
        table.place,
        shlex.join(asked.command),
        table.axis,
        table.against,
        tuple(name for name in table.columns if name in columns),
        tuple(dict.fromkeys(cell.published.row for cell in planned)),
        lines,
        [_cell_line(cell, results.get(cell.overrides)) for cell in chosen],
        _differing(asked, planned, results),
        _cost(planned, results),
    )


def _lines(table: Table, cell: PlannedCell, results: Results) -> list[Line]:
    result = results.get(cell.overrides) if cell.state == "run" else None
    found = []
    for metric, published in zip(table.metrics, cell.published.values, strict=True):
        ours = measured(result.metrics, metric) if result and result.metrics else None
        said = verdict(published, ours) if published and ours else ""
        note = "" if ours else metric.why or _state(cell, result)
        found.append(Line(cell.published.row, cell.published.column, metric, published, ours, said, note))
    return found


def _means(table: Table, cell: PlannedCell, lines: Sequence[Line]) -> list[Line]:
    """Of a row's other columns, where all of them are known."""
    others = [name for name in table.columns if name != table.average]
    found = []
    for metric, published in zip(table.metrics, cell.published.values, strict=True):
        of_row = [line.ours for line in lines if line.row == cell.published.row and line.metric == metric]
        known = [ours for ours in of_row if ours is not None]
        ours = _mean(known) if len(known) == len(others) else None
        said = verdict(published, ours) if published and ours else ""
        note = "" if ours else "not all of its columns were run"
        found.append(Line(cell.published.row, cell.published.column, metric, published, ours, said, note))
    return found


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


def _differing(asked: Asked, planned: Sequence[PlannedCell], results: Results) -> list[tuple[str, str, str]]:
    """Settings, and how many questions were really asked."""
    configs = {overrides: result.cell.config for overrides, result in results.items()}
    found = differing(asked.table, planned, asked.overrides, configs)
    running = [cell.overrides for cell in planned if cell.state == "run"]
    if len(distinct := set(running)) < len(running):
        found.append(
            ("experiments", f"{len(running)} cells", f"{len(distinct)}: cells with equal settings share a run")
        )
    counts = sorted({r.metrics["questions"] for r in results.values() if r.metrics})
    if counts:
        said = " to ".join(dict.fromkeys(f"{count:,}" for count in (counts[0], counts[-1])))
        theirs = next((setting.theirs for setting in asked.table.settings if setting.key == "limit"), "not said")
        found.append(("questions asked", theirs, f"{said} per cell"))
    return found


def _cost(planned: Sequence[PlannedCell], results: Results) -> list[tuple[str, str]]:
    """So far, and for the cells that could still run at the mean of those that did."""
    ended = {key: r.metrics for key, r in results.items() if r.metrics}
    if not ended:
        return []
    costs = [metrics["cost"]["method"] for metrics in ended.values()]
    costs += [metrics["judge"]["cost"]["method"] for metrics in ended.values() if "judge" in metrics]
    totals = [fsum(cost[key] or 0 for cost in costs) for key in ("calls", "prompt_tokens", "output_tokens", "seconds")]
    rows = [("so far", _cost_text(len(ended), totals, costs))]
    rows += [("this command", f"{fsum(r.seconds for r in results.values()):,.1f} s for its cells")]
    left = {cell.overrides for cell in planned if cell.state in ("run", "needs weights", "needs data")} - ended.keys()
    if left:
        share = len(left) / len(ended)
        rows.append(("for the others, at the mean of these", _cost_text(len(left), [share * t for t in totals], ())))
    return rows


def _cost_text(cells: int, totals: Sequence[float], costs: Sequence[Mapping[str, Json]]) -> str:
    calls, prompt, output, seconds = totals
    dollars = [cost["usd"] for cost in costs if cost["usd"] is not None]
    said = f", {fsum(dollars):,.4f} USD" if dollars else ""
    runs = "1 run" if cells == 1 else f"{cells:,} runs"
    return (
        f"{runs}: {calls:,.0f} model calls, {prompt:,.0f} prompt and {output:,.0f} generated tokens, "
        f"{seconds:,.1f} model seconds{said}"
    )

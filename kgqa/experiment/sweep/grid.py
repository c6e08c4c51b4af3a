"""`kgqa run -m`: one experiment for every combination of values."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.axes import axes, grid
from kgqa.experiment.config.overrides import override_key
from kgqa.experiment.sweep.budget import SweepBudget
from kgqa.experiment.sweep.launching import check_launcher, run_all
from kgqa.experiment.sweep.running import Cell, CellResult, frozen_cells, open_sweep
from kgqa.report.sweep_progress import board
from kgqa.report.sweep_writing import print_sweep, write_sweep_report
from kgqa.report.sweeps import SweepReport
from kgqa.types import Json

if TYPE_CHECKING:
    from rich.console import Console

OWN = ("sweep.name", "sweep.metric", "budget")


@dataclass(frozen=True)
class Asked:
    """A sweep's command line taken apart."""

    overrides: tuple[str, ...]  # of the experiment
    hydra: tuple[str, ...]  # of launcher and sweeper
    name: str | None
    metric: str | None  # that hydra/sweeper=optuna is to raise
    budget: SweepBudget | None
    command: tuple[str, ...]

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Asked:
        """Raises ConfigError for an unknown key of the sweep's own."""
        own: dict[str, str] = {}
        overrides, hydra = [], []
        for each in arguments:
            key, _, value = each.partition("=")
            if key.startswith("sweep.") and key not in OWN:
                raise ConfigError(f"{each}: unknown key {key!r}; {nearest(key, OWN)}")
            if key in OWN:
                own[key] = value
            elif key.startswith(("hydra/", "hydra.")):
                hydra.append(each)
            else:
                overrides.append(each)
        budget = SweepBudget.of(own["budget"]) if "budget" in own else None
        return cls(
            tuple(overrides),
            tuple(hydra),
            own.get("sweep.name"),
            own.get("sweep.metric"),
            budget,
            ("kgqa", "run", "-m", *arguments),
        )


def sweep(arguments: Sequence[str]) -> int:
    """Freeze the cells, run those that are not finished, write the sweep's report; the folder is the last line.

    Gives 2 if a cell failed or was not run.
    """
    from rich.console import Console

    asked = Asked.of(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    if (sweeper := _sweeper(asked.hydra)) == "optuna":
        from kgqa.experiment.sweep.search import search

        return search(asked, console)
    if sweeper != "basic":
        raise ConfigError(f"hydra/sweeper={sweeper}: no such sweeper; {nearest(sweeper, ['basic', 'optuna'])}")
    _refuse_unread(asked)
    found = axes(asked.overrides)
    cells = frozen_cells(grid(found))
    if any(cell.config["dry_run"] for cell in cells):
        from kgqa.experiment.sweep.estimates import plan_cells

        return plan_cells(cells, console, asked.budget)
    swept: dict[str, Json] = {override_key(axis.key): list(axis.values) for axis in found if axis.swept}
    return run_sweep(cells, asked, swept, console)


def run_sweep(cells: Sequence[Cell], asked: Asked, swept: Mapping[str, Json], console: Console) -> int:
    with open_sweep(cells, asked.command, swept, asked.name) as folder:
        console.print(
            f"{len(cells)} cell{'s' if len(cells) != 1 else ''} in {folder.path}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        with board(folder.path, console):
            results = run_all(cells, folder, asked.hydra, budget=asked.budget)
        return close_sweep(folder.path, results, console)


def close_sweep(path: Path, results: Sequence[CellResult], console: Console) -> int:
    """Write and show the sweep's report."""
    written = [write_sweep_report(path, form) for form in ("md", "html")]
    print_sweep(SweepReport.read(path), console)
    counts = Counter(result.status for result in results)
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    console.print(f"cells: {said}", highlight=False)
    console.print(f"report: {written[-1]}", highlight=False, markup=False, soft_wrap=True)
    sys.stdout.write(f"{path}\n")  # plain, so that scripts can take it
    sys.stdout.flush()
    return 2 if counts["failed"] or counts["not run"] else 0


def _refuse_unread(asked: Asked) -> None:
    """Raises ConfigError: a key of a launcher or sweeper that was not chosen, which would change nothing."""
    if asked.metric is not None:
        raise ConfigError(f"sweep.metric={asked.metric}: only hydra/sweeper=optuna raises a score; add it")
    for each in asked.hydra:
        if each.partition("=")[0] not in ("hydra/launcher", "hydra/sweeper") and not each.startswith("hydra.launcher."):
            raise ConfigError(f"{each}: nothing reads it; hydra.sweeper.… goes with hydra/sweeper=optuna")
    check_launcher(asked.hydra, asked.budget)


def _sweeper(hydra: Sequence[str]) -> str:
    given = [each.partition("=")[2] for each in hydra if each.partition("=")[0] == "hydra/sweeper"]
    return given[-1] if given else "basic"

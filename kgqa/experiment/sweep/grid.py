"""One experiment for every combination of values."""

from __future__ import annotations

from dataclasses import dataclass

from kgqa.counting import counted
from kgqa.experiment.config.axes import axes, grid
from kgqa.experiment.config.overrides import override_key
from kgqa.experiment.sweep.cells import Cell, frozen_cells
from kgqa.experiment.sweep.launching import run_all
from kgqa.experiment.sweep.request import SweepRequest
from kgqa.experiment.sweep.running import Swept, open_sweep, write_reports
from kgqa.runtime.display import Display
from kgqa.runtime.watch import watched
from kgqa.types import Json


@dataclass(frozen=True)
class Grid:
    cells: list[Cell]
    swept: dict[str, list[Json]]  # the values of each key that has several

    @classmethod
    def of(cls, request: SweepRequest) -> Grid:
        """Freeze the cells.

        Raises:
            ConfigError: values that cannot be read or listed, or overrides that cannot be composed.
        """
        given = axes(request.overrides)
        swept: dict[str, list[Json]] = {override_key(axis.key): list(axis.values) for axis in given if axis.swept}
        return cls(frozen_cells(grid(given)), swept)

    @property
    def dry_run(self) -> bool:
        return any(cell.experiment.settings.dry_run for cell in self.cells)


def run_sweep(planned: Grid, request: SweepRequest, display: Display) -> Swept:
    """Run the cells that are not finished and write the sweep's report.

    Raises:
        ConfigError: two cells would write one run's folder, or the sweep's is another's or in use.
    """
    cells = planned.cells
    with open_sweep(cells, request.command, planned.swept, request.name) as folder:
        display.line(f"{counted(len(cells), 'cell')} in {folder.path}")
        with watched(display, "sweep", folder.path) as told, told.cells(folder.path):
            results = run_all(cells, folder, request.hydra, budget=request.budget)
        write_reports(folder.path)
    return Swept(folder.path, results)

"""One experiment for every combination of values."""

from __future__ import annotations

from dataclasses import dataclass

from kgqa.config.axes import expand_grid, parse_axes
from kgqa.config.overrides import override_key
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.sweeps.cells import Cell, freeze_cells
from kgqa.sweeps.launching import run_all
from kgqa.sweeps.request import SweepRequest
from kgqa.sweeps.running import Swept, open_sweep, write_reports
from kgqa.types import Json
from kgqa.util.text import pluralize


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
        given = parse_axes(request.overrides)
        swept: dict[str, list[Json]] = {override_key(axis.key): list(axis.values) for axis in given if axis.swept}
        return cls(freeze_cells(expand_grid(given)), swept)

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
        display.line(f"{pluralize(len(cells), 'cell')} in {folder.path}")
        with monitor_work(display, "sweep", folder.path) as told, told.cells(folder.path):
            results = run_all(cells, folder, request.hydra, budget=request.budget)
        write_reports(folder.path)
    return Swept(folder.path, results)

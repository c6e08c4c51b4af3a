"""Run cells in separate processes through Hydra's launchers: joblib, submitit (Slurm), ray."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from kgqa.artifacts.sweep import Cell, Sweep, cell_file
from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError, EngineDied, KgqaError, nearest
from kgqa.experiment.engines import Pool
from kgqa.experiment.session import Session
from kgqa.report.sweeps import SweepReport
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display, PlainLines
from kgqa.runtime.monitor import log_event, monitor_work
from kgqa.scoring.questions import METRICS
from kgqa.sweeps.cells import (
    check_data,
    check_own_prompts,
    check_settings,
    experiment_of,
    group_by_models,
    load_cell,
    place_cells,
    skip_if_finished,
)
from kgqa.sweeps.running import open_sweep, run_cell, sweep_path, write_reports
from kgqa.types import Json
from kgqa.util.optional_deps import install_command
from kgqa.util.text import pluralize

# the extra that installs each launcher
LAUNCHERS = {
    "joblib": "joblib",
    "submitit_local": "submitit",
    "submitit_slurm": "submitit",
    "ray": "ray-launcher",
}
_JOB = "kgqa_cell"
# Hydra's own folders and log files stay away: a cell has a run's folder and a log already
_QUIET = (
    "hydra.output_subdir=null",
    "hydra/job_logging=none",
    "hydra/hydra_logging=none",
    "hydra.sweep.subdir=.",
)


def launcher_of(overrides: Sequence[str]) -> str:
    """Return the name of the launcher. Raises ConfigError for an unknown one."""
    name = override_values(overrides).get("hydra/launcher", "basic")
    if name != "basic" and name not in LAUNCHERS:
        raise ConfigError(
            f"hydra/launcher={name}: no such launcher. {nearest(name, ['basic', *LAUNCHERS])}"
        )
    return name


def check_launcher(overrides: Sequence[str], budget: Budget | None) -> None:
    """Raise ConfigError for an unknown launcher, one that cannot keep a budget, or a key of one that is not chosen."""
    name = launcher_of(overrides)
    if budget and name != "basic":
        raise ConfigError(
            f"budget={budget}: processes of hydra/launcher={name} do not see each other's cost. Set engine.budget_usd"
        )
    for override in overrides:
        if override.startswith("hydra.launcher.") and name == "basic":
            raise ConfigError(
                f"{override}: this key needs hydra/launcher=joblib, submitit_local, submitit_slurm or ray"
            )


def run_all(
    cells: Sequence[Cell],
    sweep: Path,
    overrides: Sequence[str],
    display: Display,
    *,
    budget: Budget | None = None,
    on_end: Callable[[Cell], None] = lambda _: None,
) -> None:
    """Run cells one after the other in this process, or through the launcher of `overrides`.

    Cells with the same models run next to each other and share the loaded models. Finished cells are skipped, and a
    failed cell does not stop the others. If the budget is spent, the remaining cells are not run. `on_end` is called
    after each cell, or with a launcher at the end.

    Raises:
        ServerLost: a server does not answer. The remaining cells are not run.
    """
    if launcher_of(overrides) != "basic":
        _run_elsewhere(cells, sweep, overrides)
        for cell in cells:
            on_end(cell)
        return
    with display.counting("cells") as advance:
        advance("", 0, len(cells))
        for group in group_by_models(cells):
            with closing(Pool()) as pool:
                allowance = budget.left() if budget else None
                for cell in group:
                    if budget and budget.spent():
                        cell.status, cell.error = (
                            "not run",
                            f"the budget is spent: {budget.so_far()}",
                        )
                        cell.write_state(sweep)
                        display.line(cell.end)
                    else:
                        paid = run_cell(cell, sweep, pool, allowance, display)
                        if budget:
                            budget.pay(paid, exhausted=cell.status == "not run")
                            log_event("budget", budget.so_far())
                    advance("", 1, len(cells))
                    on_end(cell)


def _run_elsewhere(cells: Sequence[Cell], sweep: Path, overrides: Sequence[str]) -> None:
    """Run the cells that are not finished through a launcher, and read how they ended."""
    for cell in cells:
        # running the cell raises the error again
        with suppress(KgqaError), Session(experiment_of(cell)) as session:
            if skip_if_finished(cell, session):
                cell.write_state(sweep)
    left = [cell for cell in cells if not cell.is_finished]
    if left:
        launch(sweep, [cell.number for cell in left], overrides)
    for cell in left:
        _read_end(cell, sweep)


def _read_end(cell: Cell, sweep: Path) -> None:
    """Read how a cell ended that another process ran."""
    cell.read_state(sweep)
    if cell.status in ("waiting", "running"):
        log = cell_file(sweep, cell.number, "log")
        cell.status, cell.error = "not run", f"its process ended early. See {log}"
        cell.write_state(sweep)
    elif cell.status == "done":
        cell.read_result()


def run_in_folder(
    cells: Sequence[Cell],
    name: str | None,
    axes: Mapping[str, tuple[Json, ...]],
    command: tuple[str, ...],
    display: Display,
    *,
    hydra: Sequence[str] = (),
    budget: Budget | None = None,
    key: str = "sweep.name",
) -> SweepReport:
    """Run the cells that are not finished, write the sweep's report, and return it.

    key: sets the folder's name, for messages.

    Raises:
        ConfigError: a metric of the user is invalid, a cell has a wrong value, two cells would write one run's folder,
            or the sweep's is another's or in use.
        DataError: data of a cell is missing on this machine.
    """
    with display.stage("checking the cells", None, None):
        # reads those of the user, which the sweep's report needs on this machine with any launcher
        list(METRICS)
        check_settings(cells)
        if launcher_of(hydra) == "basic":
            # jobs of a launcher can run on machines with other files
            check_data(cells)
            check_own_prompts(cells)
        place_cells(cells)
    sweep = Sweep(path=sweep_path(name, cells, key), command=command, axes=axes, cells=[])
    with open_sweep(sweep, cells, key):
        display.line(f"{pluralize(len(cells), 'cell')} in {sweep.path}")
        with monitor_work(display, "sweep", sweep.path) as monitor:
            run_all(cells, sweep.path, hydra, monitor, budget=budget)
        with display.stage("writing the report", None, None):
            return write_reports(sweep)


def launch(sweep: Path, numbers: Sequence[int], hydra_overrides: Sequence[str]) -> None:
    """Run these cells of a sweep's folder as jobs, and return when no process works on them any more.

    A job runs the frozen configuration. If a worker of joblib is killed, its other cells are not run either.

    Raises:
        ConfigError: the launcher is not installed, or one of its keys is wrong.
        EngineDied: a job of submitit or Ray was killed; others may still be running.
    """
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from kgqa.config.composing import hydra_ready

    logs = sweep / "launcher"
    # what the imported launchers raise for a job that was killed
    named = (("submitit.core.utils", "UncompletedJobError"), ("ray.exceptions", "RayError"))
    values = {"sweep": sweep, "home": Path.cwd(), "hydra.sweep.dir": logs.resolve()}
    places, cells = (
        [f"{key}='{place}'" for key, place in values.items()],
        ",".join(map(str, numbers)),
    )
    logging.getLogger("submitit").addFilter(_is_useful)
    ConfigStore.instance().store(name=_JOB, node={"sweep": "???", "home": "???", "cell": "???"})
    try:
        with hydra_ready():
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            hydra.multirun(
                config_name=_JOB,
                task_function=run_launched,
                overrides=[*places, *_QUIET, *hydra_overrides, f"cell={cells}"],
            )
    except (HydraException, OmegaConfBaseException) as error:
        raise _explain(error, hydra_overrides) from error
    except BrokenExecutor:
        return
    except tuple(
        getattr(sys.modules[module], name) for module, name in named if module in sys.modules
    ) as error:
        name, first = launcher_of(hydra_overrides), str(error).strip().splitlines()[0]
        raise EngineDied(f"hydra/launcher={name}: a job crashed: {first}. See {logs}") from error


def _is_useful(record: logging.LogRecord) -> bool:
    """Return whether submitit's line helps. Without Slurm's accounting it repeats one several times a minute."""
    return "Bypassing sacct error" not in record.getMessage()


def run_launched(job: Any) -> None:
    """Run one cell in the launcher's process. `job`: a configuration with the keys home, sweep and cell."""
    from hydra.core.global_hydra import GlobalHydra

    # the launcher's state prevents composing another configuration
    GlobalHydra.instance().clear()
    os.chdir(job.home)  # Ray starts its workers elsewhere
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    sweep = Path(job.sweep)
    cell = load_cell(sweep, job.cell)
    with closing(Pool()) as pool:
        run_cell(cell, sweep, pool, sweep_display=PlainLines(sys.stdout))


def _explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    name = launcher_of(overrides)
    first = str(error).strip().splitlines()[0]
    if f"hydra/launcher/{name}" in str(error):
        return ConfigError(
            f"hydra/launcher={name} is not installed. Run: {install_command(LAUNCHERS[name])}"
        )
    return ConfigError(f"{' '.join(overrides)}: {first}")

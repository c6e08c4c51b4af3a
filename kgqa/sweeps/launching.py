"""Cells in processes of their own, through Hydra's launchers: joblib, submitit (Slurm), ray."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from kgqa.artifacts.sweep import CellState, SweepPlan
from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError, EngineDied, KgqaError, nearest
from kgqa.experiment.session.budget import Budget
from kgqa.experiment.session.engines import Pool
from kgqa.runtime.sweep_folder import SweepFolder
from kgqa.sweeps.cells import Cell, CellResult, read_cell
from kgqa.sweeps.running import Ended, result_of, run_cell, run_cells, skip_finished

LAUNCHERS = {
    "joblib": "kgqa[joblib]",
    "submitit_local": "kgqa[submitit]",
    "submitit_slurm": "kgqa[submitit]",
    "ray": "kgqa[ray-launcher]",
}
LOOK = 2.0  # seconds between two looks for cells that ended
_JOB = "kgqa_cell"
# Hydra's own folders and log files stay away: a cell has a run's folder and a log already
_QUIET = ("hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.sweep.subdir=.")


class Job(Protocol):
    """The input of a launched job: the command's folder, the job's number, and its paths."""

    home: str
    cell: int

    def __getattr__(self, place: str) -> str: ...


def launcher_of(overrides: Sequence[str]) -> str:
    """Return what `hydra/launcher=` says. Raises ConfigError for an unknown one."""
    name = override_values(overrides).get("hydra/launcher", "basic")
    if name != "basic" and name not in LAUNCHERS:
        raise ConfigError(f"hydra/launcher={name}: no such launcher; {nearest(name, ['basic', *LAUNCHERS])}")
    return name


def check_launcher(overrides: Sequence[str], budget: Budget | None) -> None:
    """Of the `hydra/…` and `hydra.…` overrides of a command those that choose and set a launcher.

    Raises:
        ConfigError: an unknown launcher, one that can keep no budget, or a key of one that was not chosen.
    """
    name = launcher_of(overrides)
    if budget and name != "basic":
        raise ConfigError(
            f"budget={budget}: processes of hydra/launcher={name} do not see each other's cost; set engine.budget_usd"
        )
    for override in overrides:
        if override.startswith("hydra.launcher.") and name == "basic":
            raise ConfigError(
                f"{override}: nothing reads it without hydra/launcher=joblib, submitit_local, submitit_slurm or ray"
            )


def run_all(
    cells: Sequence[Cell],
    folder: SweepFolder,
    overrides: Sequence[str],
    *,
    ended: Ended | None = None,
    budget: Budget | None = None,
) -> list[CellResult]:
    """Run cells as `run_cells` does, or through the launcher of `overrides`, which calls `ended` from another
    thread.
    """
    if launcher_of(overrides) == "basic":
        return run_cells(cells, folder, ended=ended, budget=budget)
    results = skip_finished(cells, folder.path)
    if left := [cell for cell in cells if cell.number not in results]:
        with _watch(left, folder.path, ended) if ended else nullcontext():
            launch(folder.path, [cell.number for cell in left], overrides)
        results |= {cell.number: result_of(cell, folder.path) for cell in left}
    return [results[cell.number] for cell in cells]


@contextmanager
def _watch(cells: Sequence[Cell], sweep: Path, ended: Ended) -> Iterator[None]:
    """Tell of each cell once its process has written how it ended."""
    over = threading.Event()

    def watch() -> None:
        waiting = list(cells)
        while waiting and not over.wait(LOOK):
            for cell in [cell for cell in waiting if _has_ended(sweep, cell.number)]:
                waiting.remove(cell)
                try:
                    ended(result_of(cell, sweep))
                except KgqaError:
                    return  # a full disk, say: the command meets it again at its end

    watcher = threading.Thread(target=watch, name="cells", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _has_ended(sweep: Path, number: int) -> bool:
    state = CellState.read(sweep, number)
    return state is not None and state.status != "running"


def launch(sweep: Path, numbers: Sequence[int], hydra_overrides: Sequence[str]) -> None:
    """Run these cells of a sweep's folder; returns when no process works on them any more.

    Every job is told the folder and a number, and runs what was frozen there: nothing is composed again. A
    worker of joblib that is killed takes the others along; what their cells were is left to the caller.

    Raises:
        As `run_jobs`.
    """
    run_jobs(run_launched, {"sweep": sweep}, numbers, hydra_overrides, sweep / "launcher")


def run_jobs(
    task: Callable[[Job], object],
    places: Mapping[str, Path],
    numbers: Sequence[int],
    hydra_overrides: Sequence[str],
    logs: Path,
) -> dict[int, object]:
    """Return `task` once for each number, in whatever processes the launcher has; what each gave that came to an end.

    A job is told `places`, `home` (the folder of this process) and its number, `cell`.

    Raises:
        ConfigError: the launcher is not installed, or one of its keys is wrong.
        EngineDied: a job of submitit or Ray was killed; others may still be running.
    """
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from kgqa.config.search_path import hydra_ready

    told = {**places, "home": Path.cwd(), "hydra.sweep.dir": logs.resolve()}
    node = {**dict.fromkeys([*places, "home"], "???"), "cell": "???"}
    ConfigStore.instance().store(name=_JOB, node=node)
    cells = ",".join(map(str, numbers))
    try:
        with hydra_ready():
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            batches = hydra.multirun(
                config_name=_JOB,
                task_function=task,
                overrides=[
                    *(f"{key}='{place}'" for key, place in told.items()),
                    *_QUIET,
                    *hydra_overrides,
                    f"cell={cells}",
                ],
            )
    except (HydraException, OmegaConfBaseException) as error:
        raise _explain(error, hydra_overrides) from error
    except BrokenExecutor:
        return {}
    except _deaths() as error:
        name, first = launcher_of(hydra_overrides), str(error).strip().splitlines()[0]
        raise EngineDied(f"hydra/launcher={name}: a job died: {first}; see {logs}") from error
    ended = [job for batch in batches for job in batch]
    return {number: job.return_value for number, job in zip(numbers, ended, strict=True)}


def _deaths() -> tuple[type[Exception], ...]:
    """Return what launchers raise for a job that was killed, of those that were used."""
    named = (("submitit.core.utils", "UncompletedJobError"), ("ray.exceptions", "RayError"))
    return tuple(getattr(sys.modules[module], name) for module, name in named if module in sys.modules)


def begin_job(job: Job) -> None:
    """What every job does first."""
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()  # what the launcher left there refuses to compose the preset of a role
    os.chdir(job.home)  # Ray starts its workers elsewhere
    os.environ.setdefault("GOMP_SPINCOUNT", "0")


def run_launched(job: Job) -> str:
    """Return one cell, in whatever process the launcher runs it; gives its status."""
    begin_job(job)
    path = Path(job.sweep)
    listed = SweepPlan.read(path).cells[job.cell]
    with closing(Pool()) as pool:
        return run_cell(read_cell(path, listed), path, pool).status


def _explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    name = launcher_of(overrides)
    first = str(error).strip().splitlines()[0]
    if f"hydra/launcher/{name}" in str(error):
        return ConfigError(f"hydra/launcher={name} is not installed; pip install '{LAUNCHERS[name]}'")
    return ConfigError(f"{' '.join(overrides)}: {first}")

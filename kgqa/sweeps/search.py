"""`hydra/sweeper=optuna`: cells proposed one after the other by Optuna, to raise a named score.

Optuna is asked here directly: Hydra's plugin for it (hydra-optuna-sweeper 1.3) wants Optuna below 3. Proposals depend
on nothing but the seed and the scores so far, so the same command proposes the same cells and goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from kgqa.artifacts.sweep import sweep_name
from kgqa.config.axes import Span, search_space
from kgqa.config.files import format_yaml
from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.session.experiment import Experiment
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.runtime.sweep_folder import SweepFolder
from kgqa.sweeps.cells import Cell, CellResult, freeze_cells, list_plan
from kgqa.sweeps.metric import refuse_unknown_metric, score_of
from kgqa.sweeps.request import SweepRequest
from kgqa.sweeps.running import Swept, freeze_texts, open_sweep, run_cell, write_reports
from kgqa.types import Json

Optuna = Any  # what is of optuna, which may not be installed
KEYS = ("hydra/sweeper", "hydra.sweeper.n_trials", "hydra.sweeper.seed")


def run_search(request: SweepRequest, display: Display) -> Swept:
    """Run the trials; the report and the folder are those of any sweep.

    Raises:
        ConfigError: optuna is missing, nothing is searched, or no number of trials is given.
    """
    trials, seed = _settings(request.hydra)
    space = _space(request)
    study, name = _study(seed), request.name or f"optuna-{space.digest}"
    with open_sweep([], request.command, space.axes, name, space.digest) as folder:
        with monitor_work(display, "sweep", folder.path) as told, told.cells(folder.path):
            results = _try(study, space, request, trials, folder)
        write_reports(folder.path)
    ended = Swept(folder.path, results, trials - len(results))
    _tell(ended, request, display)
    return ended


def _try(study: Optuna, space: _Space, request: SweepRequest, trials: int, folder: SweepFolder) -> list[CellResult]:
    """Run trials and return their results: fewer than `trials` if the budget was spent."""
    budget = request.budget
    cells: list[Cell] = []
    results: list[CellResult] = []
    with closing(Pool()) as pool:
        for number in range(trials):
            if budget and budget.spent():
                break
            trial = study.ask(space.distributions)
            chosen = [f"{key}={value}" for key, value in trial.params.items()]
            (cell,) = freeze_cells([(" ".join(chosen), [*space.base.overrides, *chosen])])
            cells.append(replace(cell, number=number))
            folder.grow(list_plan(cells, request.command, space.axes, space.digest), freeze_texts(cells))
            result = run_cell(cells[-1], folder.path, pool, budget.left() if budget else None)
            results.append(result)
            if budget:
                budget.pay(result.paid)
            if result.status == "not run":
                break  # the budget was spent within it
            score = _score(result, request)
            study.tell(trial, score, state=_fail() if score is None else None)
    return results


@dataclass(frozen=True)
class _Space:
    """The overrides of every cell, and the distribution of each searched key."""

    base: Experiment
    distributions: Mapping[str, Optuna]
    digest: str  # of all that decides which cells are proposed

    @property
    def axes(self) -> dict[str, list[Json]]:
        """Return the axes as a sweep's plan stores them. A search has no list of values."""
        return {key: [] for key in self.distributions}


def _space(request: SweepRequest) -> _Space:
    refuse_unknown_metric("sweep.metric", request.metric or "")
    fixed, keys = search_space(request.overrides)
    if not keys:
        raise ConfigError("nothing to search: give a key several values, e.g. method.candidates='range(10,40)'")
    distributions = {key: _distribution(among) for key, among in keys.items()}
    base = Experiment.of(fixed)
    if base.settings.dry_run:
        raise ConfigError("dry_run=true: the cells of a search are not known ahead; plan one with kgqa run and no -m")
    return _Space(base, distributions, _digest(request, format_yaml(base.config)))


def _tell(ended: Swept, request: SweepRequest, display: Display) -> None:
    """The best cell, and how many were not tried."""
    scores = [(score, result.cell) for result in ended.results if (score := _score(result, request)) is not None]
    if scores:
        best, cell = max(scores, key=lambda scored: scored[0])
        display.line(f"best {request.metric}: {best:.1f} in cell {cell.number}: {cell.name}")
    if ended.untried:
        trials = len(ended.results) + ended.untried
        display.line(f"{ended.untried} of {trials} cells were not tried: the budget is spent", alarm=True)


def _settings(hydra: Sequence[str]) -> tuple[int, int]:
    """Return how many trials, and the seed. Raises ConfigError for another key: cells run in this process, one by
    one.
    """
    given = override_values(hydra)
    for key, value in given.items():
        if key not in KEYS:
            raise ConfigError(f"{key}={value}: not a key of hydra/sweeper=optuna; {nearest(key, KEYS)}")
    numbers = []
    for key, default in (("hydra.sweeper.n_trials", ""), ("hydra.sweeper.seed", "0")):
        value = given.get(key, default)
        if not value.isdecimal() or (not default and int(value) < 1):
            raise ConfigError(f"{key}={value}: how many cells may be tried? e.g. hydra.sweeper.n_trials=20")
        numbers.append(int(value))
    return numbers[0], numbers[1]


def _study(seed: int) -> Optuna:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("hydra/sweeper=optuna needs optuna; pip install 'kgqa[optuna]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))


def _distribution(among: Span | tuple[str, ...]) -> Optuna:
    _study(0)
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(among, Span):
        return CategoricalDistribution(list(among))
    if isinstance(among.low, int) and isinstance(among.high, int):
        return IntDistribution(among.low, among.high, step=among.step, log=among.log)
    return FloatDistribution(float(among.low), float(among.high), log=among.log)


def _fail() -> Optuna:
    from optuna.trial import TrialState

    return TrialState.FAIL


def _score(result: CellResult, request: SweepRequest) -> float | None:
    score = score_of(result, str(request.metric), "sweep.metric")
    return score.mean if score else None


def _digest(request: SweepRequest, base: str) -> str:
    return sweep_name([base, *sorted(request.overrides), *sorted(request.hydra), str(request.metric)])

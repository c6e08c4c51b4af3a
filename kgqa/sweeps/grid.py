"""Run `kgqa run -m`: one experiment per combination of values, or those that a search proposes.

A search (`hydra/sweeper=optuna`) calls Optuna directly, because Hydra's plugin (hydra-optuna-sweeper 1.3) requires
Optuna below 3. Proposals depend only on the seed and the scores so far. So the same command proposes the same cells and
resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kgqa.artifacts.sweep import REPEAT, Cell, Sweep, sweep_name
from kgqa.config.building import check_value, read_keys
from kgqa.config.composing import Axis, expand_grid, parse_axes
from kgqa.config.files import format_yaml
from kgqa.config.overrides import HYDRA, override_key, override_values, split_overrides
from kgqa.config.settings import list_reported_settings
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.engines import Pool
from kgqa.experiment.experiment import Experiment
from kgqa.report.sweeps import SweepReport
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import log_event, monitor_work
from kgqa.sweeps.cells import (
    check_metric,
    freeze,
    freeze_cells,
    is_lower_better,
    note_equal_repeats,
    place_cells,
    repeat_cells,
)
from kgqa.sweeps.launching import check_launcher, run_in_folder
from kgqa.sweeps.running import add_cells, open_sweep, run_cell, sweep_path, write_reports
from kgqa.util.optional_deps import install_command
from kgqa.util.text import score_text
from kgqa.util.validators import Count, Natural

# an object of optuna, which is optional
Optuna = Any
SWEEPERS = ("basic", "optuna")  # every combination, or a search
REPEATS = "repeats="
SEARCH_KEYS = ("hydra/sweeper", "hydra.sweeper.n_trials", "hydra.sweeper.seed")


@dataclass(frozen=True)
class SweepKeys:
    """The keys under `sweep.`: the name of the folder, and the score by which a search chooses."""

    name: str | None = None
    metric: str | None = None


@dataclass(frozen=True)
class SweepRequest:
    """The parsed command line of a sweep."""

    overrides: tuple[str, ...]  # of the experiment
    hydra: tuple[str, ...]  # of launcher and sweeper
    keys: SweepKeys
    budget: Budget | None
    command: tuple[str, ...]
    # runs of each cell, None: one, which is not called a repeat
    repeats: int | None = None

    @classmethod
    def of(cls, arguments: Sequence[str]) -> SweepRequest:
        """Parse arguments. Raises ConfigError for an unknown key of the sweep, and for one that has no effect."""
        own, budgets, repeats, hydra, overrides = split_overrides(
            arguments, "sweep.", "budget=", REPEATS, HYDRA
        )
        keys = read_keys(SweepKeys, own, "sweep.")
        count = (
            check_value("repeats", override_values(repeats)["repeats"], Count) if repeats else None
        )
        if (own_repeat := override_values(overrides).get(REPEAT)) and repeats:
            raise ConfigError(
                f"{REPEAT}={own_repeat}: repeats={count} sets this key in each run. Remove one of both"
            )
        request = cls(
            overrides, hydra, keys, Budget.last(budgets), ("kgqa", "run", "-m", *arguments), count
        )
        if request.sweeper not in SWEEPERS:
            raise ConfigError(
                f"hydra/sweeper={request.sweeper}: no such sweeper. {nearest(request.sweeper, SWEEPERS)}"
            )
        if request.sweeper == "basic":
            request._refuse_keys_without_effect()
        return request

    @property
    def sweeper(self) -> str:
        return override_values(self.hydra).get("hydra/sweeper", "basic")

    @cached_property
    def axes(self) -> list[Axis]:
        """Return the values by key. Raises ConfigError for values that cannot be read or listed."""
        return parse_axes(self.overrides)

    @cached_property
    def cells(self) -> list[Cell]:
        """Freeze the cells of the grid. Raises ConfigError for overrides that cannot be composed."""
        named = expand_grid(self.axes)
        return freeze_cells(named) if self.repeats is None else repeat_cells(named, self.repeats)

    @property
    def dry_run(self) -> bool:
        return any(cell.config["dry_run"] for cell in self.cells)

    def _refuse_keys_without_effect(self) -> None:
        if self.keys.metric is not None:
            raise ConfigError(
                f"sweep.metric={self.keys.metric}: only hydra/sweeper=optuna searches by a score. Add it"
            )
        for override in self.hydra:
            if not override.startswith(("hydra/launcher=", "hydra/sweeper=", "hydra.launcher.")):
                raise ConfigError(
                    f"{override}: this key has no effect. hydra.sweeper.… needs hydra/sweeper=optuna"
                )
        check_launcher(self.hydra, self.budget)


def run_sweep(request: SweepRequest, display: Display) -> SweepReport:
    """Run the cells that are not finished, write the sweep's report, and return it. Raises as `run_in_folder`."""
    axes = {override_key(axis.key): axis.values for axis in request.axes if axis.swept}
    if request.repeats is not None:
        axes[REPEAT] = tuple(map(str, range(1, request.repeats + 1)))
        if note := note_equal_repeats(request.cells, request.repeats):
            display.line(note)
    return run_in_folder(
        request.cells,
        request.keys.name,
        axes,
        request.command,
        display,
        hydra=request.hydra,
        budget=request.budget,
    )


def run_search(request: SweepRequest, display: Display) -> SweepReport:
    """Run the trials of a search, write the sweep's report, and return it.

    Raises ConfigError if optuna is missing, nothing is searched, or no number of trials is given.
    """
    if request.repeats is not None:
        raise ConfigError(
            f"repeats={request.repeats}: a search has no repeats. Repeat the best cell without -m"
        )
    trials, seed = _trials_and_seed(request.hydra)
    check_metric("sweep.metric", request.keys.metric or "")
    searched = {axis.key: axis for axis in request.axes if axis.swept}
    if not searched:
        raise ConfigError(
            "no values to search: set several values for a key, e.g. method.candidates='range(10,40)'"
        )
    study = _create_study(seed, str(request.keys.metric))
    base = compose_experiment([axis.override for axis in request.axes if not axis.swept])
    if base.settings.dry_run:
        raise ConfigError(
            "dry_run=true: the cells of a search are not known in advance. Plan one run without -m"
        )
    settings = format_yaml(list_reported_settings(base.config))
    ranges = sorted(axis.override for axis in searched.values())
    # everything that decides the proposals
    digest = sweep_name([settings, *ranges, *sorted(request.hydra), str(request.keys.metric)])
    path = sweep_path(request.keys.name or f"optuna-{digest}", [])
    sweep = Sweep(
        path=path,
        search=digest,
        command=request.command,
        axes=dict.fromkeys(searched, ()),
        cells=[],
    )
    with open_sweep(sweep, []):
        with monitor_work(display, "sweep", path) as monitor:
            _run_trials(study, searched, base, request, trials, sweep, monitor)
        report = write_reports(sweep)
    if any(trial.value is not None for trial in study.trials):
        best = study.best_trial
        name = sweep.cells[best.number].name
        display.line(
            f"best {request.keys.metric}: {score_text(best.value)} in cell {best.number}: {name}"
        )
    sweep.untried = trials - len(sweep.cells)
    if sweep.untried:
        display.line(
            f"{sweep.untried} of {trials} cells were not tried: the budget is spent", alarm=True
        )
    return report


def _run_trials(
    study: Optuna,
    searched: Mapping[str, Axis],
    base: Experiment,
    request: SweepRequest,
    trials: int,
    sweep: Sweep,
    display: Display,
) -> None:
    """Run trials one after the other until the budget is spent."""
    from optuna.trial import TrialState

    budget = request.budget
    distributions = {key: _distribution(axis) for key, axis in searched.items()}
    with closing(Pool()) as pool, display.counting("cells") as advance:
        advance("", 0, trials)
        for number in range(trials):
            if budget and budget.spent():
                break
            trial = study.ask(distributions)
            values = [f"{key}={value}" for key, value in trial.params.items()]
            cell = freeze(number, " ".join(values), compose_experiment([*base.overrides, *values]))
            place_cells([cell])
            add_cells(sweep, [cell])
            paid = run_cell(cell, sweep.path, pool, budget.left() if budget else None, display)
            if budget:
                budget.pay(paid, exhausted=cell.status == "not run")
                log_event("budget", budget.so_far())
            advance("", 1, trials)
            if cell.status == "not run":
                # the budget was spent within the cell
                break
            mean = cell.mean(str(request.keys.metric), "sweep.metric")
            study.tell(trial, mean, state=TrialState.FAIL if mean is None else None)


def _trials_and_seed(hydra: Sequence[str]) -> tuple[int, int]:
    """Return the number of trials and the seed. Raises ConfigError for another key of Hydra."""
    values = override_values(hydra)
    for key, value in values.items():
        if key not in SEARCH_KEYS:
            raise ConfigError(
                f"{key}={value}: not a key of hydra/sweeper=optuna. {nearest(key, SEARCH_KEYS)}"
            )
    trials = check_value("hydra.sweeper.n_trials", values.get("hydra.sweeper.n_trials", ""), Count)
    return trials, check_value("hydra.sweeper.seed", values.get("hydra.sweeper.seed", "0"), Natural)


def _create_study(seed: int, metric: str) -> Optuna:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            f"hydra/sweeper=optuna needs optuna. Install it: {install_command('optuna')}"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        direction="minimize" if is_lower_better(metric) else "maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
    )


def _distribution(axis: Axis) -> Optuna:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    span = axis.span
    if span is None:
        return CategoricalDistribution(list(axis.values))
    if isinstance(span.low, int) and isinstance(span.high, int):
        return IntDistribution(span.low, span.high, step=span.step, log=span.log)
    return FloatDistribution(float(span.low), float(span.high), log=span.log)

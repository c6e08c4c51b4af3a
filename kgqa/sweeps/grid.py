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

from kgqa.artifacts.sweep import SweepPlan, sweep_name
from kgqa.config.building import check_value
from kgqa.config.composing import Axis, Span, expand_grid, parse_axes, search_space
from kgqa.config.files import format_yaml
from kgqa.config.overrides import override_group, override_key, override_values, parse_override
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.engines import Pool
from kgqa.experiment.experiment import Experiment
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.sweeps.cells import Cell, check_metric, freeze_cells, place_cells
from kgqa.sweeps.launching import check_launcher, run_in_folder
from kgqa.sweeps.running import SweepFolder, count_cost, open_sweep, run_cell, show_end, sweep_path, write_reports
from kgqa.util.optional_deps import install_command
from kgqa.util.validators import Count, Natural

Optuna = Any  # an object of optuna, which is optional
OWN = ("sweep.name", "sweep.metric", "budget")
SWEEPERS = ("basic", "optuna")  # every combination, or a search
SEARCH_KEYS = ("hydra/sweeper", "hydra.sweeper.n_trials", "hydra.sweeper.seed")


@dataclass(frozen=True)
class SweepRequest:
    """The parsed command line of a sweep."""

    overrides: tuple[str, ...]  # of the experiment
    hydra: tuple[str, ...]  # of launcher and sweeper
    name: str | None
    metric: str | None  # that a search maximizes
    budget: Budget | None
    command: tuple[str, ...]

    @classmethod
    def of(cls, arguments: Sequence[str]) -> SweepRequest:
        """Parse arguments. Raises ConfigError for an unknown key of the sweep, and for one that has no effect."""
        own: dict[str, str] = {}
        overrides, hydra = [], []
        for argument in arguments:
            parsed = parse_override(argument)
            if parsed.key.startswith("sweep.") and parsed.key not in OWN:
                raise ConfigError(f"{argument}: unknown key {parsed.key!r}. {nearest(parsed.key, OWN)}")
            if parsed.key in OWN:
                own[parsed.key] = parsed.value
            elif override_group(argument) == "verify":
                raise ConfigError(f"{argument}: not part of a run. Use kgqa data verify")
            elif parsed.key.startswith(("hydra/", "hydra.")):
                hydra.append(argument)
            else:
                overrides.append(argument)
        budget = Budget.of(own["budget"]) if "budget" in own else None
        names, command = (own.get("sweep.name"), own.get("sweep.metric")), ("kgqa", "run", "-m", *arguments)
        request = cls(tuple(overrides), tuple(hydra), *names, budget, command)
        if request.sweeper not in SWEEPERS:
            raise ConfigError(f"hydra/sweeper={request.sweeper}: no such sweeper. {nearest(request.sweeper, SWEEPERS)}")
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
        return freeze_cells(expand_grid(self.axes))

    @property
    def dry_run(self) -> bool:
        return any(cell.experiment.settings.dry_run for cell in self.cells)

    def _refuse_keys_without_effect(self) -> None:
        if self.metric is not None:
            raise ConfigError(f"sweep.metric={self.metric}: only hydra/sweeper=optuna maximizes a score. Add it")
        for override in self.hydra:
            if not override.startswith(("hydra/launcher=", "hydra/sweeper=", "hydra.launcher.")):
                raise ConfigError(f"{override}: this key has no effect. hydra.sweeper.… needs hydra/sweeper=optuna")
        check_launcher(self.hydra, self.budget)


def run_sweep(request: SweepRequest, display: Display) -> SweepFolder:
    """Run the cells that are not finished and write the sweep's report. Raises as `run_in_folder`."""
    axes = {override_key(axis.key): axis.values for axis in request.axes if axis.swept}
    return run_in_folder(
        request.cells, request.name, axes, request.command, display, hydra=request.hydra, budget=request.budget
    )


def run_search(request: SweepRequest, display: Display) -> SweepFolder:
    """Run the trials of a search and write the sweep's report.

    Raises ConfigError if optuna is missing, nothing is searched, or no number of trials is given.
    """
    trials, seed = _trials_and_seed(request.hydra)
    check_metric("sweep.metric", request.metric or "")
    fixed, space = search_space(request.overrides)
    if not space:
        raise ConfigError("no values to search: set several values for a key, e.g. method.candidates='range(10,40)'")
    study = _create_study(seed)
    base = Experiment.of(fixed)
    if base.settings.dry_run:
        raise ConfigError("dry_run=true: the cells of a search are not known in advance. Plan one run without -m")
    texts = [format_yaml(base.config), *sorted(request.overrides), *sorted(request.hydra), str(request.metric)]
    digest = sweep_name(texts)  # of everything that decides the proposals
    plan = SweepPlan(search=digest, command=request.command, axes=dict.fromkeys(space, ()), cells=())
    with open_sweep(sweep_path(request.name or f"optuna-{digest}", []), plan, []) as folder:
        with monitor_work(display, "sweep", folder.path) as monitor:
            _run_trials(study, space, base, request, trials, folder, monitor)
        write_reports(folder.path)
    scores = [(score, cell) for cell in folder.cells if (score := _score(cell, request)) is not None]
    if scores:
        best, chosen = max(scores, key=lambda scored: scored[0])
        display.line(f"best {request.metric}: {best:.1f} in cell {chosen.number}: {chosen.name}")
    folder.untried = trials - len(folder.cells)
    if folder.untried:
        display.line(f"{folder.untried} of {trials} cells were not tried: the budget is spent", alarm=True)
    return folder


def _run_trials(
    study: Optuna,
    space: Mapping[str, Span | tuple[str, ...]],
    base: Experiment,
    request: SweepRequest,
    trials: int,
    folder: SweepFolder,
    display: Display,
) -> None:
    """Run trials one after the other until the budget is spent."""
    from optuna.trial import TrialState

    budget = request.budget
    distributions = {key: _distribution(values) for key, values in space.items()}
    with closing(Pool()) as pool, display.counting("cells") as advance:
        advance("", 0, trials)
        for number in range(trials):
            if budget and budget.spent():
                break
            trial = study.ask(distributions)
            values = [f"{key}={value}" for key, value in trial.params.items()]
            cell = Cell(number, " ".join(values), Experiment.of([*base.overrides, *values]))
            place_cells([cell])
            folder.add([cell])
            run_cell(cell, folder.path, pool, budget.left() if budget else None, display)
            count_cost(cell, budget)
            show_end(cell, display)
            advance("", 1, trials)
            if cell.status == "not run":
                break  # the budget was spent within the cell
            score = _score(cell, request)
            study.tell(trial, score, state=TrialState.FAIL if score is None else None)


def _trials_and_seed(hydra: Sequence[str]) -> tuple[int, int]:
    """Return the number of trials and the seed. Raises ConfigError for another key of Hydra."""
    values = override_values(hydra)
    for key, value in values.items():
        if key not in SEARCH_KEYS:
            raise ConfigError(f"{key}={value}: not a key of hydra/sweeper=optuna. {nearest(key, SEARCH_KEYS)}")
    trials = check_value("hydra.sweeper.n_trials", values.get("hydra.sweeper.n_trials", ""), Count)
    return trials, check_value("hydra.sweeper.seed", values.get("hydra.sweeper.seed", "0"), Natural)


def _create_study(seed: int) -> Optuna:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(f"hydra/sweeper=optuna needs optuna. Install it: {install_command('optuna')}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))


def _distribution(values: Span | tuple[str, ...]) -> Optuna:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(values, Span):
        return CategoricalDistribution(list(values))
    if isinstance(values.low, int) and isinstance(values.high, int):
        return IntDistribution(values.low, values.high, step=values.step, log=values.log)
    return FloatDistribution(float(values.low), float(values.high), log=values.log)


def _score(cell: Cell, request: SweepRequest) -> float | None:
    score = cell.score(str(request.metric), "sweep.metric")
    return float(score.mean) if score and score.mean is not None else None

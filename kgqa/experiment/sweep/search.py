"""`hydra/sweeper=optuna`: cells proposed one after the other by Optuna, to raise a named score.

Optuna is asked here directly: Hydra's plugin for it (hydra-optuna-sweeper 1.3) wants Optuna below 3. Proposals depend
on nothing but the seed and the scores so far, so the same command proposes the same cells and goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.axes import parsed
from kgqa.experiment.config.composing import yaml_text
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.sweep.parts import refuse_unknown_metric
from kgqa.experiment.sweep.running import Cell, CellResult, frozen_cells, listed_plan, open_sweep, run_cell
from kgqa.experiment.sweep.tuning import measured
from kgqa.report.sweep_progress import board
from kgqa.runtime.sweep_folder import sweep_name
from kgqa.types import Json

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from rich.console import Console

    from kgqa.experiment.sweep.grid import Asked

KEYS = ("hydra/sweeper", "hydra.sweeper.n_trials", "hydra.sweeper.seed")


def search(asked: Asked, console: Console) -> int:
    """Run the trials; the report and the folder are those of any sweep.

    Raises:
        ConfigError: optuna is missing, nothing is searched, or no number of trials is given.
    """
    from kgqa.experiment.sweep.grid import close_sweep

    trials, seed = _settings(asked.hydra)
    refuse_unknown_metric("sweep.metric", asked.metric or "")
    overrides = parsed(asked.overrides)
    spaces = {each.get_key_element(): _distribution(each) for each in overrides if each.is_sweep_override()}
    if not spaces:
        raise ConfigError("nothing to search: give a key several values, e.g. method.candidates='range(10,40)'")
    fixed = [given for given, each in zip(asked.overrides, overrides, strict=True) if not each.is_sweep_override()]
    (base,) = frozen_cells([("", fixed)])
    if base.config["dry_run"]:
        raise ConfigError("dry_run=true: the cells of a search are not known ahead; plan one with kgqa run and no -m")
    study = _study(seed)
    digest = _digest(asked, yaml_text(base.config))
    name = asked.name or f"optuna-{digest}"
    swept: dict[str, Json] = {key: [] for key in spaces}
    cells: list[Cell] = []
    results: list[CellResult] = []
    with (
        open_sweep([], asked.command, swept, name, digest) as folder,
        board(folder.path, console),
        closing(Pool()) as pool,
    ):
        for number in range(trials):
            if asked.budget and asked.budget.spent():
                break
            trial = study.ask(spaces)
            chosen = [f"{key}={value}" for key, value in trial.params.items()]
            (cell,) = frozen_cells([(" ".join(chosen), [*fixed, *chosen])])
            cells.append(Cell(number, cell.name, cell.overrides, cell.config))
            folder.grow(listed_plan(cells, asked.command, swept), [yaml_text(each.config) for each in cells])
            result = run_cell(cells[-1], folder.path, pool, asked.budget.left() if asked.budget else None)
            results.append(result)
            if asked.budget:
                asked.budget.pay(result.paid)
            if result.status == "not run":
                break  # the budget was spent within it
            score = measured(result, str(asked.metric), "sweep.metric")
            study.tell(trial, score["mean"] if score else None, state=None if score else _failed())
    best = max((r for r in results if measured(r, str(asked.metric))), key=lambda r: _mean(r, asked), default=None)
    if best is not None:
        said = f"best {asked.metric}: {_mean(best, asked):.1f} in cell {best.cell.number}: {best.cell.name}"
        console.print(said, highlight=False, markup=False, soft_wrap=True)
    if untried := trials - len(results):
        said = f"{untried} of {trials} cells were not tried: the budget is spent"
        console.print(said, style="red", highlight=False, markup=False, soft_wrap=True)
    return close_sweep(folder.path, results, console) or (2 if untried else 0)


def _settings(hydra: Sequence[str]) -> tuple[int, int]:
    """How many trials, and the seed. Raises ConfigError for another key: cells run in this process, one by one."""
    given = {key: value for key, _, value in (each.partition("=") for each in hydra)}
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


def _study(seed: int) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("hydra/sweeper=optuna needs optuna; pip install 'kgqa[optuna]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))


def _distribution(override: Override) -> Any:
    """`a,b`, `choice` and `glob` are unordered; `range` and `interval` are quantities, `tag(log, …)` on a log scale."""
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep

    _study(0)
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    swept = override.value()
    if isinstance(swept, IntervalSweep):
        low, high, log = swept.start, swept.end, "log" in swept.tags
        if isinstance(low, int) and isinstance(high, int):
            return IntDistribution(low, high, log=log)
        return FloatDistribution(float(low or 0.0), float(high or 0.0), log=log)
    values = list(override.sweep_iterator())
    whole = [each for each in values if isinstance(each, int)]
    if isinstance(swept, RangeSweep) and whole and len(whole) == len(values):
        return IntDistribution(min(whole), max(whole), step=abs(int(swept.step)))
    return CategoricalDistribution(list(override.sweep_string_iterator()))


def _failed() -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL


def _mean(result: CellResult, asked: Asked) -> float:
    score = measured(result, str(asked.metric))
    return float(score["mean"]) if score else float("-inf")


def _digest(asked: Asked, base: str) -> str:
    """Of all that decides which cells are proposed."""
    return sweep_name([base, *sorted(asked.overrides), *sorted(asked.hydra), str(asked.metric)])

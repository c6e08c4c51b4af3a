"""Make the cells of a sweep or of a paper's table, group them by their models, and estimate their calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from kgqa.artifacts.sweep import REPEAT, SET, Cell, Sweep, cell_file
from kgqa.cache.store import CallCache
from kgqa.config import building as parts
from kgqa.config.building import UNKNOWN_KEY
from kgqa.config.composing import ONLY_CELL
from kgqa.config.files import flatten, format_yaml, load_yaml
from kgqa.config.overrides import override_values
from kgqa.config.settings import read_settings
from kgqa.errors import (
    ConfigError,
    DataError,
    KgqaError,
    MissingWeights,
    PromptError,
    UsageError,
    nearest,
)
from kgqa.experiment.check import check, try_own_prompts
from kgqa.experiment.composing import choose_nodes, compose_experiment
from kgqa.experiment.dry_run import Shared, plan_calls
from kgqa.experiment.engines import Pool
from kgqa.experiment.estimates import Estimated, Estimator, Range, list_call_settings
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.gpu_plan import plan_gpus
from kgqa.experiment.identity import find_run_folder
from kgqa.experiment.run import find_finished_run
from kgqa.experiment.session import Session
from kgqa.identity.component import corpus_identity_of
from kgqa.report.columns import group_texts
from kgqa.report.sweeps import join_numbers
from kgqa.runtime.costs import Budget, limited
from kgqa.scoring.questions import METRICS
from kgqa.types import Json
from kgqa.util.places import call_cache, check_prompts

# of a cell that needs no calls
FINISHED = Estimated(0, 0, Range(), Range(), None)
# the groups that decide which engines a cell needs
MODELS = ("model", "engine", "roles", "judge")
# groups with keys of the run next to those of their class. `check_data` reads the data, and a method its triples
MIXED = {"dataset", "collection", "kg"}
# methods that run a program of the user
OUTSIDE = ("command", "function")
# keys that decide which prompts a cell renders
PROMPTING = ("method", "kg", "judge", "prompts")
# keys that select questions
SELECTING = ("sample", "sample_by", "ids", "shard", "limit", "seed")


def freeze(number: int, name: str, experiment: Experiment) -> Cell:
    """Return an experiment as a cell."""
    return Cell(
        number=number,
        name=name,
        overrides=experiment.overrides,
        run=None,
        config=experiment.config,
        frozen=format_yaml(experiment.config),
        remarks=experiment.remarks,
    )


def freeze_cells(named: Iterable[tuple[str, Sequence[str]]]) -> list[Cell]:
    """Compose cells from names and overrides.

    Raises ConfigError for overrides that cannot be composed, or a key of a wrong value.
    """
    cells = [
        freeze(number, name, experiment)
        for number, (name, experiment) in enumerate(_compose_cells([*named]))
    ]
    return _note_groups(cells)


def _compose_cells(named: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[str, Experiment]]:
    try:
        return [(name, compose_experiment(overrides)) for name, overrides in named]
    except ConfigError as error:
        raise _name_choices_without_key(error, named) from error


def _name_choices_without_key(
    error: ConfigError, named: Sequence[tuple[str, Sequence[str]]]
) -> ConfigError:
    """Return an error with all methods of the sweep that lack the unknown key, if others have it.

    The same for datasets and other groups. Any other error is returned unchanged.
    """
    key = str(error).partition("=")[0]
    group, _, name = key.partition(".")
    # the first cell of each method
    cells: dict[str, Sequence[str]] = {}
    for _, overrides in named:
        cells.setdefault(override_values(overrides).get(group, ""), overrides)
    if not name or UNKNOWN_KEY not in str(error) or len(cells) == 1:
        return error
    lacks = [choice for choice, overrides in cells.items() if _has_no_key(key, overrides)]
    others = ",".join(choice for choice in cells if choice not in lacks)
    if not others:
        return error
    return ConfigError(
        f"{key}: {group}={','.join(lacks)} {'has' if len(lacks) == 1 else 'have'} no such setting. "
        f"To sweep it for the others only: kgqa run -m {group}={others} {key}=VALUE. "
        "To compare all in one sweep, write a variant with this value: "
        f"conf/{group}/NAME.yaml, see docs/OWN_CODE.md"
    )


def _has_no_key(key: str, overrides: Sequence[str]) -> bool:
    try:
        compose_experiment(overrides)
    except ConfigError as error:
        return str(error).startswith(f"{key}=") and UNKNOWN_KEY in str(error)
    return False


def _note_groups(cells: list[Cell]) -> list[Cell]:
    """Note in each cell which groups some cell uses: a key without effect in one cell is for the others."""
    groups = frozenset[str]()
    for cell in cells:
        # a cell with an error reports it when it runs
        with suppress(KgqaError):
            groups |= experiment_of(cell).choices.keys()
    for cell in cells:
        cell.sweep_groups = groups
    return cells


def repeat_cells(named: Iterable[tuple[str, Sequence[str]]], count: int) -> list[Cell]:
    """Compose `count` repeats of each cell: with other seeds of sampled calls, and other sets of few-shot examples.

    A cell that chooses the set keeps it. Raises as `freeze_cells`.
    """
    cells = list[Cell]()
    for name, first in _compose_cells([*named]):
        prefix = "" if name == ONLY_CELL else f"{name} "
        start = first.config["method"].get("demonstration_set")
        has_sets = start is not None and SET not in override_values(first.overrides)
        for repeat in range(1, count + 1):
            changes = [f"{REPEAT}={repeat}", *([f"{SET}={start + repeat - 1}"] if has_sets else [])]
            experiment = compose_experiment([*first.overrides, *changes])
            cells.append(freeze(len(cells), f"{prefix}{REPEAT}={repeat}", experiment))
    return _note_groups(cells)


def note_equal_repeats(cells: Sequence[Cell], count: int) -> str | None:
    """Return a line if all repeats of a cell send the same prompts and sample no reply, otherwise None.

    cells: with `count` repeats of each one after the other.
    """
    if count == 1:
        return None
    equal = [
        first
        for first, second in zip(cells[::count], cells[1::count], strict=True)
        if first.values.get(SET) == second.values.get(SET) and not _can_sample(first)
    ]
    if not equal:
        return None
    methods = ", ".join(dict.fromkeys(str(cell.config["choices"]["method"]) for cell in equal))
    numbers = [first.number + repeat for first in equal for repeat in range(count)]
    return (
        f"note: repeats={count} has no effect on {methods} (cell {join_numbers(numbers)}): no reply is sampled, and no "
        "few-shot set is random. All repeats have the same scores, unless the server varies its replies"
    )


def _can_sample(cell: Cell) -> bool:
    """Return whether the method samples replies, or can do so because it is not a method of kgqa."""
    node = cell.config["method"]
    is_own = not node["_target_"].startswith("kgqa.") or cell.config["choices"]["method"] in OUTSIDE
    temperatures = (
        value for key, value in flatten(node).items() if key.endswith("temperature") and value
    )
    return is_own or any(float(value) > 0 for value in temperatures)


def load_cell(sweep: Path, number: int) -> Cell:
    """Return a cell that another process froze."""
    cell = Sweep.read(sweep).cells[number]
    cell.config = load_yaml(cell_file(sweep, number, "yaml"))
    return cell


def experiment_of(cell: Cell, allowance: Budget | None = None) -> Experiment:
    """Make a cell's experiment. It is not kept, because cells are many and the questions that a run reads are large."""
    config = limited(cell.config, allowance)
    return Experiment(
        cell.overrides,
        config,
        read_settings(config),
        choose_nodes,
        plan_gpus,
        remarks=cell.remarks,
        sweep_groups=cell.sweep_groups,
    )


def skip_if_finished(cell: Cell, session: Session) -> bool:
    """Take the result of a run that is finished with this configuration and these questions."""
    cell.finished = find_finished_run(session)
    if cell.finished is None:
        return False
    cell.status = "skipped"
    return True


def check_metric(key: str, metric: str) -> None:
    """Raise ConfigError if there is no such score."""
    choices = [*METRICS, "judge", "recall@K"]
    if metric in choices[:-1] or re.fullmatch(r"recall@[1-9]\d*", metric):
        return
    problem = f"{key}={metric}" if metric else f"{key}= is missing"
    hint = nearest(metric, choices)
    if hint.startswith("Did"):
        raise ConfigError(f"{problem}: no such score. {hint}")
    raise ConfigError(f"{problem}: choose from {', '.join(choices)}")


def is_lower_better(metric: str) -> bool:
    """Return whether the lowest value of a score of `check_metric` is the best."""
    return metric in METRICS and METRICS[metric].lower_is_better


def place_cells(cells: Sequence[Cell]) -> None:
    """Set where each cell's run is or will be, if nothing is missing that decides its name.

    Raises ConfigError if two cells with different settings would write one folder.
    """
    owners: dict[Path, Cell] = {}
    for cell in cells:
        with suppress(KgqaError):
            cell.run = find_run_folder(experiment_of(cell))
        if cell.run is None:
            continue
        owner = owners.setdefault(cell.run, cell)
        if owner.frozen != cell.frozen:
            raise ConfigError(
                f"cells {owner.number} ({owner.name}) and {cell.number} ({cell.name}) would write to the same run, "
                f"{cell.run}: {_explain_same_run(owner, cell)}"
            )


def _explain_same_run(first: Cell, second: Cell) -> str:
    """Return why two cells with different settings have one run, and how to fix it."""
    if "run_name" in second.values:
        return "run_name= is equal. Make two sweeps, or remove run_name="
    pairs = second.values.items()
    keys = " and ".join(f"{key}=" for key, value in pairs if first.values.get(key) != value)
    return (
        f"these values of {keys} do not change the answers of method={second.config['choices']['method']}. "
        f"Make two sweeps, or choose one value of {keys}"
    )


def check_settings(cells: Sequence[Cell]) -> None:
    """Raise ConfigError with every cell that has a wrong value, before the first cell runs."""
    problems, results = dict[str, str](), list[tuple[int, str]]()
    for cell in cells:
        # many cells share settings
        groups = {
            group: cell.config.get(group) for group in (*cell.config["choices"], "roles", "prompts")
        }
        key = json.dumps(groups, sort_keys=True)
        if key not in problems:
            problems[key] = _find_wrong_setting(experiment_of(cell))
        results.append((cell.number, problems[key]))
    _refuse_cells(results, ConfigError)


def check_own_prompts(cells: Sequence[Cell]) -> None:
    """Raise ConfigError with every cell of which a prompt of the user is invalid, before the first cell runs."""
    problems, results = dict[str, str](), list[tuple[int, str]]()
    for cell in cells:
        # cells with other data or models render the same prompts
        key = json.dumps([cell.config.get(key) for key in PROMPTING], sort_keys=True)
        if key not in problems:
            problems[key] = _find_invalid_prompt(experiment_of(cell))
        results.append((cell.number, problems[key]))
    _refuse_cells(results, ConfigError)


def _find_invalid_prompt(experiment: Experiment) -> str:
    """Return the error of a prompt of the user, or ""."""
    try:
        with Session(experiment) as session:
            try_own_prompts(session)
    except PromptError as error:
        return str(error)
    except KgqaError:
        # the cell reports it when it runs
        return ""
    return ""


def _find_wrong_setting(experiment: Experiment) -> str:
    """Return the error of the first wrong setting, or ""."""
    try:
        check_prompts(experiment.settings.prompts)
        # these check more than single values
        _ = experiment.method, experiment.judge
        for group in experiment.choices.keys() - MIXED:
            # an experiment has settings of other groups, and no node
            node = experiment.config.get(group)
            if isinstance(node, dict) and "_target_" in node:
                parts.read_node(node, group, parts.BUILT.get(group, ()))
    except MissingWeights:
        # other cells need none
        return ""
    except ConfigError as error:
        return str(error)
    return ""


def _refuse_cells(results: Iterable[tuple[int, str]], kind: type[UsageError]) -> None:
    """Raise an error that names the cells of each problem. A cell without a problem has the text ""."""
    groups = group_texts((number, text) for number, text in results if text)
    if groups:
        listed = (f"cell {join_numbers(numbers)}: {text}" for text, numbers in groups.items())
        raise kind(f"no cell was run. {'. '.join(listed)}")


def check_data(cells: Sequence[Cell]) -> None:
    """Raise DataError with every cell for which questions or a corpus are missing or invalid, or too few questions."""
    problems, results = dict[str, str](), list[tuple[int, str]]()
    for cell in cells:
        experiment = experiment_of(cell)
        # the cell reports what is missing for its models when it runs
        with suppress(ConfigError):
            searches = "search" in experiment.method.uses
            # hashing a large file takes a second, and cells share data
            data = [experiment.config.get("dataset"), experiment.config.get("collection"), searches]
            selected = _list_selecting(experiment)
            key = json.dumps([*data, *selected], sort_keys=True)
            if key not in problems:
                problems[key] = _find_missing_data(
                    experiment, searches=searches, selects=bool(selected)
                )
            results.append((cell.number, problems[key]))
    _refuse_cells(results, DataError)


def _list_selecting(experiment: Experiment) -> list[Json]:
    """Return the values of the keys that select questions, or none if no selection can fail."""
    settings = experiment.settings
    if settings.sample is None and settings.ids is None and settings.shard is None:
        return []
    return [experiment.config.get(key) for key in SELECTING]


def _find_missing_data(experiment: Experiment, *, searches: bool, selects: bool) -> str:
    """Return why the questions or the corpus cannot be read or the questions not be selected, or ""."""
    try:
        experiment.data.identity()
        # reading a large file takes seconds
        if selects:
            _ = experiment.data.questions
        if searches:
            corpus_identity_of(experiment.data.corpus)
    except (ConfigError, DataError) as error:
        return str(error)
    return ""


def group_by_models(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group cells by the models they need, in the order in which the models first occur."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        key = json.dumps([cell.config.get(key) for key in MODELS], sort_keys=True)
        groups.setdefault(key, []).append(cell)
    return list(groups.values())


def differing_settings(cells: Sequence[Cell]) -> dict[str, tuple[Json, ...]]:
    """Return the values by cell of each key that all cells have with different values. Groups have their choices."""
    rows = [
        {
            **cell.config["choices"],
            **flatten({key: node for key, node in cell.config.items() if key != "choices"}),
        }
        for cell in cells
    ]
    keys = (
        [key for key in rows[0] if not key.endswith("_target_") and all(key in row for row in rows)]
        if rows
        else []
    )
    columns = {key: tuple(row[key] for row in rows) for key in keys}
    return {
        key: values
        for key, values in columns.items()
        if any(value != values[0] for value in values)
    }


def estimate_cells(cells: Sequence[Cell], first: int | None = None) -> list[Estimated | str]:
    """Return the estimate of each cell, or the reason why it cannot run. Makes no model calls and writes no files.

    first: estimate from the first N questions of each cell only, which takes seconds where all questions take hours.
    """
    shared, estimates = Shared(), dict[int, Estimated | str]()
    with closing(CallCache(call_cache())) as cache:
        estimator = Estimator(cache)
        for group in group_by_models(cells):
            with closing(Pool()) as pool:
                for cell in group:
                    estimates[id(cell)] = _estimate(cell.replace(), pool, shared, estimator, first)
    return [estimates[id(cell)] for cell in cells]


def _estimate(
    cell: Cell, pool: Pool, shared: Shared, estimator: Estimator, first: int | None
) -> Estimated | str:
    experiment = experiment_of(cell)
    try:
        with Session(experiment, pool) as session:
            if skip_if_finished(cell, session):
                return FINISHED
            check(session)
            plan = plan_calls(session, shared, first)
            share = max(1.0, len(experiment.data.questions) / first) if first else 1.0
            settings = list_call_settings(experiment)
            return estimator.estimate(plan, experiment.choices["method"], settings).scaled(share)
    except KgqaError as error:
        return " ".join(str(error).split())

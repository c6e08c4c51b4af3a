"""Choose hyperparameters on dev by a score, then run test with the choice: `kgqa tune`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean, stdev

from kgqa.artifacts.sweep import TUNE, TunedCell, TunedPart, TuneRecord, sweep_name
from kgqa.config.building import read_keys
from kgqa.config.composing import Axis, expand_grid, parse_axes
from kgqa.config.overrides import override_values, parse_override
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.experiment import Experiment
from kgqa.report.evaluation import tuning_sections
from kgqa.report.section import markdown
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.sweeps.cells import Cell, check_metric, freeze_cells, result_folder
from kgqa.sweeps.launching import run_in_folder
from kgqa.types import Question
from kgqa.util.fs import json_text, outputs, replace_file, text_digest
from kgqa.util.validators import Count, Natural

NOT_TUNED = ("dataset", "collection", "judge", "limit", "sample", "ids", "seed", "scoring")  # keys or groups


@dataclass(frozen=True)
class TuneKeys:
    """The keys under `tune.`. `dev`, `test`: numbers of questions; None: all. `dev_path`, `dev_split`: dev's own file.

    metric: see `check_metric`. sets: of few-shot examples, with commas; each has a test run.
    """

    metric: str = ""
    dev: Count | None = None
    test: Count | None = None
    dev_path: Path | None = None
    dev_split: str | None = None
    seed: Natural = 0  # of the random choice of questions
    sets: str = ""
    name: str | None = None


@dataclass
class Tuning:
    """A request of `kgqa tune`."""

    keys: TuneKeys
    axes: list[Axis]
    budget: Budget | None
    command: tuple[str, ...]

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Tuning:
        """Parse arguments. Raises ConfigError for an invalid key under `tune.`, and if there is nothing to choose."""
        own = [argument.removeprefix("tune.") for argument in arguments if argument.startswith("tune.")]
        keys = read_keys(TuneKeys, override_values(own), "tune.")
        check_metric("tune.metric", keys.metric)
        if keys.dev_path and keys.dev_split:
            raise ConfigError("tune.dev_path and tune.dev_split: set only one of them. Each selects the dev questions")
        budget = next((Budget.of(parse_override(a).value) for a in arguments if a.startswith("budget=")), None)
        axes = parse_axes([a for a in arguments if not a.startswith(("tune.", "budget="))])
        swept = [axis.key for axis in axes if axis.swept]
        if not swept:
            raise ConfigError("no values to choose from: set several values for a key, e.g. method.beam=3,5")
        for key in swept:
            if key.partition(".")[0] in NOT_TUNED or key == "roles.judge":
                raise ConfigError(f"{key}: not a hyperparameter. Tune with one value at a time")
        return cls(keys, axes, budget, ("kgqa", "tune", *arguments))

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(filter(None, self.keys.sets.split(",")))

    @cached_property
    def cells(self) -> list[Cell]:
        """Freeze the cells to choose from. Raises ConfigError for a key without effect, or a score no run will have."""
        cells = freeze_cells(expand_grid(self.axes))
        experiment = cells[0].experiment
        settings = experiment.settings
        if settings.output_dir or settings.run_name:
            raise ConfigError("output_dir= and run_name=: dev and test runs have their own folders. Set tune.name=")
        if any(value is not None for value in (settings.limit, settings.sample, settings.ids)):
            raise ConfigError("limit=, sample=, ids=: tune.dev= and tune.test= select the questions")
        if self.keys.metric == "judge" and experiment.judge is None:
            raise ConfigError("tune.metric=judge: the runs have no such score. Set judge=NAME")
        return cells

    @cached_property
    def parts(self) -> tuple[TunedPart, TunedPart]:
        """Return the questions of dev and test. Raises as `split_questions`."""
        keys = self.keys
        return split_questions(self.cells[0].experiment, keys.dev, keys.test, keys.seed, keys.dev_path, keys.dev_split)

    @property
    def dry_run(self) -> bool:
        return self.cells[0].experiment.settings.dry_run

    @cached_property
    def on_dev(self) -> list[Cell]:
        """Return the cells over the dev questions."""
        return [on_part(cell, self.parts[0], "dev") for cell in self.cells]

    def on_test(self, chosen: Cell) -> list[Cell]:
        """Return the chosen cell over the test questions, once per set of few-shot examples if there are any."""
        overrides = chosen.experiment.overrides
        keys = [f"method.demonstration_set={name}" for name in self.sets]
        cells = freeze_cells([(key, [*overrides, key]) for key in keys] or [(chosen.name, overrides)])
        return [on_part(cell, self.parts[1], "test") for cell in cells]


def split_questions(
    experiment: Experiment,
    dev_count: int | None,
    test_count: int | None,
    seed: int,
    dev_path: Path | None = None,
    dev_split: str | None = None,
) -> tuple[TunedPart, TunedPart]:
    """Return dev and test, which share neither an id nor a text.

    They are sampled by a seeded shuffle of the file's ids, so the same seed gives the same dev questions for any size
    of test.

    Raises:
        ConfigError: too few questions, or the size of dev is missing.
        DataError: dev and test overlap.
    """
    own = list(experiment.all_questions())
    if dev_split is not None:
        dev_path = Experiment.of([*experiment.overrides, f"dataset.split={dev_split}"]).whole.file
    if dev_path is not None:
        other = Experiment.of([*experiment.overrides, f"dataset.path='{dev_path}'"])
        questions, sha256 = list(other.all_questions()), other.data_sha256
    elif dev_count is None:
        raise ConfigError("tune.dev: set the number of dev questions, or their file: tune.dev_path=FILE")
    else:
        questions, sha256 = own, experiment.data_sha256
    dev = _part(dev_path, sha256, questions, _sample(questions, dev_count, seed, "tune.dev"))
    ids = set(dev.ids)
    texts = {question.text for question in questions if question.id in ids}
    rest = own if dev_path is not None else [question for question in own if question.id not in ids]
    shared = {question.id for question in rest if question.id in ids or question.text in texts}
    if dev_path is not None and shared:
        raise DataError(f"tune.dev_path={dev_path}: {len(shared):,} questions are also in dev, e.g. {min(shared)}")
    rest = [question for question in rest if question.id not in shared]
    return dev, _part(None, experiment.data_sha256, own, _sample(rest, test_count, seed, "tune.test"))


def _sample(questions: Sequence[Question], count: int | None, seed: int, key: str) -> set[str]:
    ids = [question.id for question in questions]
    if not ids or (count is not None and count > len(ids)):
        raise ConfigError(f"{key}={count}: only {len(ids):,} questions are left for it")
    random.Random(seed).shuffle(ids)  # noqa: S311 - a choice to be repeated, no secret
    return set(ids[:count])


def _part(path: Path | None, sha256: str, questions: Sequence[Question], sampled: set[str]) -> TunedPart:
    ids = tuple(question.id for question in questions if question.id in sampled)
    return TunedPart(file=str(path) if path else None, sha256=sha256, questions=len(ids), ids=ids)


def on_part(cell: Cell, part: TunedPart, name: str) -> Cell:
    """Return the cell over these questions, with its own run folder, as a run's name does not depend on them."""
    frozen, overrides = cell.experiment.config, cell.experiment.overrides
    path = {"path": part.file} if part.file else {}
    config = {**frozen, "dataset": {**frozen["dataset"], **path}, "limit": None, "sample": None}
    folder = result_folder(Experiment.of(overrides, config))
    run = f"{folder.name}-{name}-{text_digest(' '.join(part.ids), 8)}"
    words = [f"dataset.path='{part.file}'"] if part.file else []
    words += ["limit=null", f"run_name={run}", f"ids=[{','.join(part.ids)}]"]
    return replace(
        cell, experiment=Experiment.of([*overrides, *words], {**config, "run_name": run, "ids": list(part.ids)})
    )


@dataclass(frozen=True)
class TuneResult:
    file: Path  # tune.json
    record: TuneRecord
    tried: Sequence[Cell]  # on dev
    tests: Sequence[Cell]

    @property
    def is_complete(self) -> bool:
        """Return whether every cell finished."""
        return all(cell.is_finished for cell in (*self.tried, *self.tests))


def run_tuning(tuning: Tuning, display: Display) -> TuneResult:
    """Try the cells on dev, run test with the best, and store both in `tune.json`.

    Raises:
        ConfigError: the folder holds another choice, or the runs have no such score.
        DataError: no cell on dev has a score.
    """
    dev_cells, (dev, test) = tuning.on_dev, tuning.parts
    texts = [*(cell.frozen for cell in dev_cells), tuning.keys.metric, *test.ids, *tuning.sets]
    name = tuning.keys.name or f"tune-{sweep_name(texts)}"
    folder = outputs() / "sweeps" / name
    axes = {axis.key: axis.values for axis in tuning.axes if axis.swept}
    run = partial(run_in_folder, command=tuning.command, display=display, budget=tuning.budget, key="tune.name")
    run(dev_cells, name, axes)
    record = TuneRecord(
        command=tuning.command,
        metric=tuning.keys.metric,
        sets=tuning.sets,
        dev=dev,
        test=test,
        tried=tuple(_record(cell, tuning.keys.metric) for cell in dev_cells),
    )
    replace_file(folder / TUNE, json_text(record.json()))  # before the test, which can fail
    best = _best(dev_cells, record)
    test_cells = tuning.on_test(tuning.cells[best.number])
    run(test_cells, f"{name}-test", {"method.demonstration_set": tuning.sets} if tuning.sets else {})
    tested = tuple(_record(cell, tuning.keys.metric) for cell in test_cells)
    means = [float(run.score.mean) for run in tested if run.score and run.score.mean is not None]
    record = record.replace(chosen=best.number, tested=tested)
    if len(means) == len(tested):
        record = record.replace(mean=fmean(means), std=stdev(means) if len(means) > 1 else None)
    replace_file(folder / "tune.md", markdown("Tuning", tuning_sections(record)))
    file = replace_file(folder / TUNE, json_text(record.json()))
    return TuneResult(file, record, dev_cells, test_cells)


def _record(cell: Cell, metric: str) -> TunedCell:
    return TunedCell(
        cell=cell.number,
        settings=cell.name,
        run=str(cell.run) if cell.run else None,
        status="done" if cell.status == "skipped" else cell.status,
        error=cell.error,
        score=cell.score(metric, "tune.metric"),
    )


def _best(cells: Sequence[Cell], record: TuneRecord) -> Cell:
    """Return the first of the cells with the highest mean."""
    scored = [
        (float(tried.score.mean), cell)
        for tried, cell in zip(record.tried, cells, strict=True)
        if tried.score and tried.score.mean is not None
    ]
    if not scored:
        raise DataError(f"no dev cell of {len(cells)} has a score, the first: {cells[0].error}")
    return max(scored, key=lambda pair: pair[0])[1]

"""Choose hyperparameters on dev by a score, then run test with the choice: `kgqa tune`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean, stdev

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.sweep import Cell, sweep_name
from kgqa.config.building import read_keys
from kgqa.config.composing import Axis, expand_grid, parse_axes
from kgqa.config.overrides import split_overrides
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.identity import find_run_folder
from kgqa.report.section import Section, Value, markdown
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.scoring.questions import METRICS
from kgqa.sweeps.cells import check_metric, experiment_of, freeze, freeze_cells, is_lower_better
from kgqa.sweeps.launching import run_in_folder
from kgqa.types import Json, Question
from kgqa.util.digests import text_digest
from kgqa.util.fs import json_text, replace_file
from kgqa.util.places import outputs
from kgqa.util.text import score_text
from kgqa.util.validators import Count, Natural

NOT_TUNED = (
    "dataset",
    "collection",
    "judge",
    "limit",
    "sample",
    "ids",
    "seed",
    "scoring",
)  # keys or groups


@dataclass(frozen=True)
class QuestionSplit:
    """Some questions of one data file, in its order."""

    file: str | None  # None: the dataset's own file
    sha256: str
    questions: int
    ids: tuple[str, ...]


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
    # of the random choice of questions
    seed: Natural = 0
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
        """Parse arguments. Raises ConfigError for an invalid key under `tune.`, or values that cannot be tuned."""
        own, budgets, others = split_overrides(arguments, "tune.", "budget=")
        keys, axes = read_keys(TuneKeys, own, "tune."), parse_axes(others)
        check_metric("tune.metric", keys.metric)
        if keys.dev_path and keys.dev_split:
            raise ConfigError(
                "tune.dev_path and tune.dev_split: set only one of them. Each selects the dev questions"
            )
        for key in (axis.key for axis in axes if axis.swept):
            if key.partition(".")[0] in NOT_TUNED or key == "roles.judge":
                raise ConfigError(f"{key}: not a hyperparameter. Tune with one value at a time")
        return cls(keys, axes, Budget.last(budgets), ("kgqa", "tune", *arguments))

    @property
    def metric(self) -> tuple[str, str]:
        """Return the score to choose by, and its key for messages."""
        return self.keys.metric, "tune.metric"

    @property
    def label(self) -> str:
        """Return the name of the score in tables."""
        name = self.keys.metric
        return METRICS[name].title if name in METRICS else name

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(filter(None, self.keys.sets.split(",")))

    @property
    def swept(self) -> dict[str, tuple[str, ...]]:
        """Return the values to choose from, by key."""
        return {axis.key: axis.values for axis in self.axes if axis.swept}

    @cached_property
    def cells(self) -> list[Cell]:
        """Freeze the cells to choose from. Raises ConfigError for a key without effect, or a score no run will have."""
        cells = freeze_cells(expand_grid(self.axes))
        config = cells[0].config
        if config["output_dir"] or config["run_name"]:
            raise ConfigError(
                "output_dir= and run_name=: dev and test runs have their own folders. Set tune.name="
            )
        if any(config[key] is not None for key in ("limit", "sample", "ids")):
            raise ConfigError(
                "limit=, sample=, ids=: tune.dev= and tune.test= select the questions"
            )
        if self.keys.metric == "judge" and config.get("judge") is None:
            raise ConfigError("tune.metric=judge: the runs have no such score. Set judge=NAME")
        return cells

    @cached_property
    def parts(self) -> tuple[QuestionSplit, QuestionSplit]:
        """Return the questions of dev and test. Raises as `split_questions`."""
        return split_questions(experiment_of(self.cells[0]), self.keys)

    @property
    def dry_run(self) -> bool:
        return bool(self.cells[0].config["dry_run"])

    @cached_property
    def on_dev(self) -> list[Cell]:
        """Return the cells over the dev questions. Raises ConfigError if there is nothing to choose."""
        if not self.swept:
            raise ConfigError(
                "no values to choose from: set several values for a key, e.g. method.beam=3,5"
            )
        return [on_part(cell, self.parts[0], "dev") for cell in self.cells]

    def on_test(self, best: Cell) -> list[Cell]:
        """Return the chosen cell over the test questions, once per set of few-shot examples if there are any."""
        keys = [f"method.demonstration_set={name}" for name in self.sets]
        cells = freeze_cells(
            [(key, [*best.overrides, key]) for key in keys] or [(best.name, best.overrides)]
        )
        return [on_part(cell, self.parts[1], "test") for cell in cells]

    def run(self, display: Display) -> Tuned:
        """Try the cells on dev, run test with the best, and store both in `tune.json`.

        Raises:
            ConfigError: the folder holds another choice, or the runs have no such score.
            DataError: no cell on dev has a score.
        """
        dev_cells, (_, test) = self.on_dev, self.parts
        texts = [*(cell.frozen for cell in dev_cells), self.keys.metric, *test.ids, *self.sets]
        name = self.keys.name or f"tune-{sweep_name(texts)}"
        run = partial(
            run_in_folder,
            command=self.command,
            display=display,
            budget=self.budget,
            key="tune.name",
        )
        run(dev_cells, name, self.swept)
        tuned = Tuned(self, outputs() / "sweeps" / name, dev_cells)
        # before the test, which can fail
        tuned.write()
        scored = [
            (mean, cell.number)
            for cell in dev_cells
            if (mean := cell.mean(*self.metric)) is not None
        ]
        if not scored:
            raise DataError(
                f"no dev cell of {len(dev_cells)} has a score, the first: {dev_cells[0].error}"
            )
        choose = min if is_lower_better(self.keys.metric) else max
        best = choose(scored, key=lambda pair: pair[0])[1]  # the first of equal ones
        test_cells = self.on_test(self.cells[best])
        run(
            test_cells, f"{name}-test", {"method.demonstration_set": self.sets} if self.sets else {}
        )
        tuned.chosen, tuned.tests = best, test_cells
        replace_file(tuned.folder / "tune.md", markdown("Tuning", tuned.sections()))
        tuned.write()
        return tuned


def split_questions(experiment: Experiment, keys: TuneKeys) -> tuple[QuestionSplit, QuestionSplit]:
    """Return dev and test, which share neither an id nor a text.

    They are sampled by a seeded shuffle of the file's ids, so the same seed gives the same dev questions for any size
    of test.

    Raises:
        ConfigError: too few questions, or the size of dev is missing.
        DataError: dev and test overlap.
    """
    own, dev_path = list(experiment.data.all_questions()), keys.dev_path
    if keys.dev_split is not None:
        dev_path = compose_experiment(
            [*experiment.overrides, f"dataset.split={keys.dev_split}"]
        ).data.whole.file
    if dev_path is not None:
        other = compose_experiment([*experiment.overrides, f"dataset.path='{dev_path}'"])
        questions, sha256 = list(other.data.all_questions()), other.data.sha256
    elif keys.dev is None:
        raise ConfigError(
            "tune.dev: set the number of dev questions, or their file: tune.dev_path=FILE"
        )
    else:
        questions, sha256 = own, experiment.data.sha256
    dev = _sample(dev_path, sha256, questions, keys.dev, keys.seed, "tune.dev")
    ids = set(dev.ids)
    texts = {question.text for question in questions if question.id in ids}
    shared = {question.id for question in own if question.id in ids or question.text in texts}
    if dev_path is not None and shared:
        raise DataError(
            f"tune.dev_path={dev_path}: {len(shared):,} questions are also in dev, e.g. {min(shared)}"
        )
    rest = [question for question in own if question.id not in shared]
    return dev, _sample(None, experiment.data.sha256, rest, keys.test, keys.seed, "tune.test")


def _sample(
    path: Path | None,
    sha256: str,
    questions: Sequence[Question],
    count: int | None,
    seed: int,
    key: str,
) -> QuestionSplit:
    """Return some questions of a file. `key`: the key that sets their number, for messages."""
    ids = [question.id for question in questions]
    if not ids or (count is not None and count > len(ids)):
        raise ConfigError(f"{key}={count}: only {len(ids):,} questions are left for it")
    random.Random(seed).shuffle(ids)  # noqa: S311 - a choice to be repeated, no secret
    some = set(ids[:count])
    sampled = tuple(question.id for question in questions if question.id in some)
    return QuestionSplit(str(path) if path else None, sha256, len(sampled), sampled)


def on_part(cell: Cell, part: QuestionSplit, name: str) -> Cell:
    """Return the cell over these questions, with its own run folder, as a run's name does not depend on them."""
    path = {"path": part.file} if part.file else {}
    config = {
        **cell.config,
        "dataset": {**cell.config["dataset"], **path},
        "limit": None,
        "sample": None,
    }
    folder = find_run_folder(compose_experiment(cell.overrides, config))
    run = f"{folder.name}-{name}-{text_digest(' '.join(part.ids), 8)}"
    words = [f"dataset.path='{part.file}'"] if part.file else []
    words += ["limit=null", f"run_name={run}", f"ids=[{','.join(part.ids)}]"]
    config |= {"run_name": run, "ids": list(part.ids)}
    return freeze(cell.number, cell.name, compose_experiment([*cell.overrides, *words], config))


@dataclass
class Tuned:
    """The choice of `kgqa tune` with the scores of its cells, as `tune.json` contains them."""

    tuning: Tuning
    folder: Path
    tried: Sequence[Cell]  # on dev
    chosen: int | None = None  # the best of them
    # one per set of few-shot examples
    tests: Sequence[Cell] = ()

    @property
    def file(self) -> Path:
        return self.folder / "tune.json"

    @property
    def is_complete(self) -> bool:
        """Return whether every cell finished."""
        return all(cell.is_finished for cell in (*self.tried, *self.tests))

    @property
    def mean_and_deviation(self) -> tuple[float | None, float | None]:
        """Return mean and standard deviation of the scores on test. None: a score is missing, or there is only one."""
        means = [
            mean for cell in self.tests if (mean := cell.mean(*self.tuning.metric)) is not None
        ]
        if not means or len(means) < len(self.tests):
            return None, None
        return fmean(means), stdev(means) if len(means) > 1 else None

    def write(self) -> None:
        """Store the choice."""
        tuning, (dev, test), (mean, deviation) = (
            self.tuning,
            self.tuning.parts,
            self.mean_and_deviation,
        )
        record = {
            "command": tuning.command,
            "metric": tuning.keys.metric,
            "sets": tuning.sets,
            "dev": asdict(dev),
            "test": asdict(test),
            "tried": [self._record(cell) for cell in self.tried],
            "chosen": self.chosen,
            "tested": [self._record(cell) for cell in self.tests],
            "mean": mean,
            "std": deviation,
        }
        replace_file(self.file, json_text(record))

    def _record(self, cell: Cell) -> dict[str, Json]:
        return {
            "cell": cell.number,
            "settings": cell.name,
            "run": str(cell.run) if cell.run else None,
            "status": "done" if cell.is_finished else cell.status,
            "error": cell.error,
            "score": as_json(cell.score(*self.tuning.metric)),
        }

    def sections(self) -> list[Section]:
        """Return the candidates on dev, and the choice on test if it is finished."""
        (dev, test), (mean, deviation) = self.tuning.parts, self.mean_and_deviation
        text = f"{dev.questions:,} dev and {test.questions:,} test questions, none in both. Their ids are in tune.json."
        header = ("settings", self.tuning.label)
        tried = [
            (f"{cell.name}{' (chosen)' if cell.number == self.chosen else ''}", self._score(cell))
            for cell in self.tried
        ]
        tests: list[tuple[str, Value]] = [(cell.name, self._score(cell)) for cell in self.tests]
        tests += (
            [("mean ± standard deviation", f"{score_text(mean)} ± {score_text(deviation)}")]
            if deviation is not None
            else []
        )
        sections = [
            Section("Tried on dev", header, tried, (text, *self._warnings())),
            Section("On test, with the choice", header, tests),
        ]
        return [section for section in sections if section.rows]

    def _warnings(self) -> Iterator[str]:
        """Yield what makes the choice worthless: equal scores, or replies of no model."""
        means = [cell.mean(*self.tuning.metric) for cell in self.tried]
        if self.chosen is not None and means.count(means[self.chosen]) > 1:
            yield f"{means.count(means[self.chosen])} settings have the best score. The first of them was chosen."
        finished = [cell.run for cell in self.tried if cell.run and cell.is_finished]
        notes = {FinishedRun.read(run).simulation_note for run in finished}
        yield from sorted(notes - {""})

    def _score(self, cell: Cell) -> Value:
        return cell.score(*self.tuning.metric) or f"{cell.status}: {cell.error}"

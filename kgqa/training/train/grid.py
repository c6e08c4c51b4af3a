"""Several trainings (`kgqa train -m`), and trainings as jobs of Hydra's launchers (Slurm by submitit, joblib, Ray)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.schema import read_json
from kgqa.artifacts.trained import Trained, prefer
from kgqa.config.composing import expand_grid, parse_axes
from kgqa.config.overrides import override_group
from kgqa.errors import ConfigError, DataError, KgqaError
from kgqa.runtime.display import Display, PlainLines
from kgqa.sweeps.launching import Job, begin_job, check_launcher, launcher_of, run_jobs
from kgqa.training.train.examples import prepare_examples
from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.train.run import check_packages, is_finished, train
from kgqa.util.fs import json_text, outputs, replace_file, text_digest
from kgqa.util.redaction import redact

PLAN = "trainings.json"
# keys that change what the held-out loss measures, so that its lowest value would choose nothing
COMPARABLE_ONLY = (
    "base", "collect", "eval_fraction", "seed", "max_length", "truncation", "loss_on", "max_input", "max_output",
    "max_question", "max_follow_up", "max_passage",
)  # fmt: skip


@dataclass(frozen=True)
class TrainCell:
    """One of several trainings. `values`: those that differ, as KEY=VALUE."""

    values: str
    request: TrainRequest
    examples: ExampleSplit

    @property
    def folder(self) -> Path:
        return self.request.folder(self.examples)


@dataclass(frozen=True)
class CellOutcome:
    """`loss`: on the held-out examples after training. None: the training failed, with `error`."""

    cell: TrainCell
    loss: float | None = None
    error: str | None = None


def split_launcher(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides that choose and set a launcher of Hydra, and the others.

    Raises:
        ConfigError: there is no such launcher, or an override of Hydra has no effect here.
    """
    own = [word for word in overrides if word.startswith(("hydra/", "hydra."))]
    for word in own:
        if not word.startswith(("hydra/launcher=", "hydra.launcher.")):
            raise ConfigError(f"{word}: has no effect; kgqa train accepts hydra/launcher= and hydra.launcher.KEY=")
    check_launcher(own, None)
    return ([] if launcher_of(own) == "basic" else own), [word for word in overrides if word not in own]


def training_grid(recipe: str, overrides: Sequence[str], display: Display) -> list[TrainCell]:
    """Return a training for each combination of values. The last key varies fastest.

    Raises:
        ConfigError: there is nothing to choose from, or held-out losses cannot be compared over a key.
    """
    others = [word for word in overrides if override_group(word) != "train"]
    axes = parse_axes([word for word in overrides if override_group(word) == "train"])
    swept = [axis.key for axis in axes if axis.swept]
    if not swept:
        raise ConfigError("nothing to choose from: set several values for a key, e.g. train.learning_rate=1e-5,5e-5")
    for key in swept:
        if key.removeprefix("train.") in COMPARABLE_ONLY:
            raise ConfigError(f"{key}: held-out losses cannot be compared over it; train one value at a time")
    splits: dict[object, ExampleSplit] = {}
    cells = []
    for values, words in expand_grid(axes):
        request = TrainRequest.of(recipe, [*words, *others])
        if request.training.examples not in splits:
            splits[request.training.examples] = prepare_examples(request, display)
        cells.append(TrainCell(values, request, splits[request.training.examples]))
        if not cells[-1].examples.held_out:
            raise ConfigError("train.eval_fraction=0: no held-out examples to choose by; set a fraction")
    return cells


def train_grid(cells: Sequence[TrainCell], launcher: Sequence[str], display: Display) -> list[CellOutcome]:
    """Train each cell, and return the outcomes with the lowest held-out loss first.

    A failed training does not stop the others. Afterwards the name of the trainings means the first one.

    Raises:
        DataError: no training has a held-out loss.
    """
    outcomes = []
    errors = train_jobs(cells, launcher, display) if launcher else [_try(cell, display) for cell in cells]
    for cell, error in zip(cells, errors, strict=True):
        loss = None if error else Trained.read(cell.folder).losses.held_out_after
        outcomes.append(CellOutcome(cell, None if loss is None else float(loss), error))
    outcomes.sort(key=lambda outcome: float("inf") if outcome.loss is None else outcome.loss)
    if outcomes[0].loss is None:
        raise DataError(f"none of the {len(cells)} trainings has a held-out loss, the first: {outcomes[0].error}")
    prefer(outcomes[0].cell.folder)
    return outcomes


def _try(cell: TrainCell, display: Display) -> str | None:
    display.line(f"training with {cell.values}")
    try:
        train(cell.request, cell.examples, display)
    except KgqaError as failure:
        error = " ".join(redact(failure).split())
        display.line(error, alarm=True)
        return error
    return None


def train_jobs(cells: Sequence[TrainCell], launcher: Sequence[str], display: Display) -> list[str | None]:
    """Train the cells as jobs, and return the error of each, None if it is finished.

    Raises:
        ConfigError: the launcher or a library is not installed, or one of its keys is wrong.
        EngineDied: a job was killed. Others may still run.
    """
    planned = [(cell.request.recipe, cell.request.overrides, str(cell.folder)) for cell in cells]
    name = text_digest("\n".join(folder for _, _, folder in planned), 8)
    place = outputs() / "sweeps" / f"train-{cells[0].request.recipe}-{name}"
    left = [number for number, cell in enumerate(cells) if not is_finished(cell.folder)]
    results: dict[int, object] = {}
    if left:
        for number in left:
            check_packages(cells[number].request)
        replace_file(place / PLAN, json_text(planned))
        display.line(f"{len(left)} to train, by {launcher[0]}; output of the jobs: {place / 'launcher'}")
        results = run_jobs(train_job, {"place": place}, left, launcher, place / "launcher")
    missing = f"its job ended without a message; see {place / 'launcher'}"
    return [
        None if is_finished(cell.folder) else str(results.get(number) or missing) for number, cell in enumerate(cells)
    ]


def train_job(job: Job) -> str | None:
    """Run one training in the launcher's process, and return its error."""
    begin_job(job)
    recipe, overrides, folder = read_json(Path(job.place) / PLAN)[job.cell]
    display = PlainLines(sys.stdout)
    try:
        request = TrainRequest.of(recipe, overrides)
        examples = prepare_examples(request, display)
        if str(request.folder(examples)) != folder:
            raise ConfigError(f"{folder}: examples or base have changed since this was planned; start again")
        train(request, examples, display)
    except KgqaError as failure:
        return " ".join(redact(failure).split())
    return None

"""Trainings as jobs of Hydra's launchers (Slurm through submitit, joblib, Ray): processes of their own, all at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.form import as_json, read
from kgqa.errors import ConfigError, KgqaError, UsageError
from kgqa.experiment.sweep.launching import Job, begin_job, check_launcher, launcher_of, run_jobs
from kgqa.experiment.train.examples import Parted
from kgqa.experiment.train.preparing import prepared
from kgqa.experiment.train.request import TrainRequest
from kgqa.experiment.train.running import check, finished, heard, train
from kgqa.redaction import without_secrets
from kgqa.runtime.display import Display, PlainLines
from kgqa.storage import json_text, outputs, replace_file, text_digest
from kgqa.training.progress import Listener

LOOK = 1.0  # seconds between two looks at what trainers say
PLAN = "trainings.json"
_NO_WORD = "its job ended without a word"


@dataclass(frozen=True)
class Launcher:
    """`words`: those of a command that choose and set a launcher of Hydra's."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, overrides: Sequence[str]) -> tuple[Launcher | None, list[str]]:
        """None where trainings run here, one after the other; and the other words.

        Raises:
            ConfigError: an unknown launcher, or a word of Hydra's that nothing reads.
        """
        words = tuple(word for word in overrides if word.startswith(("hydra/", "hydra.")))
        others = [word for word in overrides if word not in words]
        for word in words:
            if not word.startswith(("hydra/launcher=", "hydra.launcher.")):
                raise ConfigError(f"{word}: nothing reads it; kgqa train takes hydra/launcher= and hydra.launcher.KEY=")
        check_launcher(words, None)
        return (None if launcher_of(words) == "basic" else cls(words)), others


@dataclass(frozen=True)
class Training:
    """One of the plan that jobs read; `folder`: where its weights are to be, by the examples that the command had."""

    recipe: str
    overrides: tuple[str, ...]
    folder: str


@dataclass(frozen=True)
class Trainings:
    trainings: tuple[Training, ...]


def train_launched(
    named: Sequence[tuple[str, TrainRequest]],
    examples: Sequence[Parted],
    launcher: Launcher,
    display: Display,
) -> list[str | None]:
    """Returns when no job trains any more: for each why it did not come to its end, None if it did.

    The same command again begins no training that is finished.

    Raises:
        ConfigError: the launcher or a library is not installed, or one of its keys is wrong.
        EngineDied: a job was killed; others may still be running.
    """
    requests = [request for _, request in named]
    folders = [request.folder(own) for request, own in zip(requests, examples, strict=True)]
    place = place_of(requests[0].recipe, [str(folder) for folder in folders])
    left = [number for number, folder in enumerate(folders) if finished(folder) is None]
    ended: dict[int, object] = {}
    if left:
        for number in left:
            check(requests[number])
        listed = [
            Training(request.recipe, request.overrides, str(folder))
            for request, folder in zip(requests, folders, strict=True)
        ]
        replace_file(place / PLAN, json_text(as_json(Trainings(tuple(listed)))))
        display.line(f"{len(left)} to train, through {launcher.words[0]}; what its jobs say: {place / 'launcher'}")
        with _followed([(named[number][0], folders[number]) for number in left], display):
            ended = run_jobs(train_job, {"place": place}, left, launcher.words, place / "launcher")
    return [
        None if finished(folder) else str(ended.get(number) or f"{_NO_WORD}; see {place / 'launcher'}")
        for number, folder in enumerate(folders)
    ]


def train_one(request: TrainRequest, examples: Parted, display: Display, launcher: Launcher | None) -> Path:
    """The folder of what is trained, here or as a job.

    Raises:
        UsageError: the job's training did not come to its end; further as `train` and `train_launched`.
    """
    if launcher is None:
        return train(request, examples, ["train", request.recipe, *request.overrides], display)
    [error] = train_launched([(request.name, request)], [examples], launcher, display)
    if error:
        raise UsageError(error)
    return request.folder(examples)


def place_of(recipe: str, folders: Sequence[str]) -> Path:
    """What is kept of several trainings, or of jobs that train."""
    listed = "\n".join(folders)
    return outputs() / "sweeps" / f"train-{recipe}-{text_digest(listed, 8)}"


def train_job(job: Job) -> str | None:
    """One training, in whatever process the launcher runs it; why it did not come to its end."""
    begin_job(job)
    plan = read(Trainings, Path(job.place) / PLAN)
    listed = plan.trainings[job.cell]
    display = PlainLines(sys.stdout)
    try:
        request = TrainRequest.of(listed.recipe, listed.overrides)
        examples = prepared(request, display)
        if (folder := str(request.folder(examples))) != listed.folder:
            raise ConfigError(
                f"{folder}: examples or base are other ones than when {listed.folder} was planned; start again"
            )
        train(request, examples, ["train", request.recipe, *request.overrides], display)
    except KgqaError as failure:
        return " ".join(without_secrets(failure).split())
    return None


@contextmanager
def _followed(named: Sequence[tuple[str, Path]], display: Display) -> Iterator[None]:
    """Shows what the trainers of these folders say, whichever machine they are on."""
    over = threading.Event()
    listeners = [(name, Listener(folder)) for name, folder in named]

    def follow() -> None:
        with display.counting("steps") as advance:
            hearing = [(listener, heard(advance, display, name)) for name, listener in listeners]
            while True:
                last = over.wait(LOOK)
                for listener, hear in hearing:
                    for said in listener.heard():
                        hear(said)
                if last:
                    return

    follower = threading.Thread(target=follow, name="trainers", daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()

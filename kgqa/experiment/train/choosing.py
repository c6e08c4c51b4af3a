"""`kgqa train -m`: trainings that differ in some values, of which the one with the lowest held-out loss is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kgqa.artefacts.choosing import CHOICE, TrainingChoice, TriedTraining
from kgqa.artefacts.trained import Trained, prefer
from kgqa.errors import ConfigError, DataError, KgqaError
from kgqa.experiment.config.axes import axes, grid
from kgqa.experiment.config.overrides import override_group
from kgqa.experiment.train.examples import Parted
from kgqa.experiment.train.launching import Launcher, place_of, train_launched
from kgqa.experiment.train.preparing import prepared
from kgqa.experiment.train.request import TrainRequest
from kgqa.experiment.train.running import train
from kgqa.redaction import without_secrets
from kgqa.report.markdown import document
from kgqa.report.training import choice_sections
from kgqa.runtime.display import Display
from kgqa.scoring.intervals import interval
from kgqa.storage import digest, json_text, replace_file
from kgqa.training.job import Outcome

# what makes the held-out loss another measure, so that its lowest value would choose nothing
MEASURE = (
    "base", "collect", "held_out", "seed", "max_length", "too_long", "loss_on", "max_input", "max_output",
    "max_question", "max_follow_up", "max_passage",
)  # fmt: skip


@dataclass(frozen=True)
class Trainings:
    """`cells`: the values that differ, and the training with them; the last key given varies fastest."""

    recipe: str
    command: tuple[str, ...]
    cells: tuple[tuple[str, TrainRequest], ...]

    @classmethod
    def of(cls, recipe: str, overrides: Sequence[str]) -> Trainings:
        """Only keys of the training are swept: `dataset=A,B` says what is collected, as without -m.

        Raises:
            ConfigError: nothing to choose from, or a key by which held-out losses cannot be compared.
        """
        own = [word for word in overrides if override_group(word) == "train"]
        others = [word for word in overrides if override_group(word) != "train"]
        given = axes(own)
        swept = [axis.key for axis in given if axis.swept]
        if not swept:
            raise ConfigError("nothing to choose from: give a key several values, e.g. train.learning_rate=1e-5,5e-5")
        for key in swept:
            if key.removeprefix("train.") in MEASURE:
                raise ConfigError(f"{key}: held-out losses cannot be compared over it; train for one value at a time")
        cells = tuple((name, TrainRequest.of(recipe, [*words, *others])) for name, words in grid(given))
        return cls(recipe, ("kgqa", "train", "-m", recipe, *overrides), cells)

    @property
    def dry_run(self) -> bool:
        return bool(self.cells[0][1].config["dry_run"])

    def examples(self, display: Display) -> list[Parted]:
        """By cell; made once for those that take as many, since nothing else that is swept changes them.

        Raises:
            ConfigError: two cells are one training, or nothing is held out.
        """
        made: dict[object, Parted] = {}
        listed = []
        for _, request in self.cells:
            wanted = request.training.examples
            if wanted not in made:
                made[wanted] = prepared(request, display)
            listed.append(made[wanted])
        if not listed[0].held_out:
            raise ConfigError("train.held_out=0: nothing is held out to choose by; give a share")
        self._refuse_equal(listed)
        return listed

    def _refuse_equal(self, listed: Sequence[Parted]) -> None:
        seen: dict[str, str] = {}
        for (name, request), examples in zip(self.cells, listed, strict=True):
            if (other := seen.setdefault(digest([request.values, examples.sha256]), name)) != name:
                raise ConfigError(f"{name}: the same training as {other}, so there is nothing to choose; leave one out")


@dataclass(frozen=True)
class Chosen:
    record: TrainingChoice
    file: Path  # choice.md
    folder: Path  # of the chosen training

    @cached_property
    def whole(self) -> bool:
        """Every training came to its end."""
        return all(tried.error is None for tried in self.record.tried)


def choose(
    trainings: Trainings, examples: Sequence[Parted], display: Display, launcher: Launcher | None = None
) -> Chosen:
    """Train each, one after the other or as the launcher does; a failed one stops no other. What is finished is left.

    The chosen one counts as the last of its name from then on, so that the name alone means it.

    Raises:
        DataError: none has a held-out loss.
        ConfigError, EngineDied: as `train_launched`, where there is a launcher.
    """
    if launcher is None:
        tried = list(_one_after_the_other(trainings, examples, display))
    else:
        folders = [str(request.folder(own)) for (_, request), own in zip(trainings.cells, examples, strict=True)]
        errors = train_launched(trainings.cells, examples, launcher, display)
        names = [name for name, _ in trainings.cells]
        tried = [_ended(*each) for each in zip(names, folders, errors, strict=True)]
        for each in tried:
            if each.error:
                display.line(f"{each.settings}: {each.error}", alarm=True)
    losses = [(each.loss, place) for place, each in enumerate(tried) if each.loss is not None]
    if not losses:
        raise DataError(f"none of the {len(tried)} trainings has a held-out loss, the first: {tried[0].error}")
    best = min(losses)[1]
    folder = Path(tried[best].folder)
    trained = Trained.read(folder)
    record = TrainingChoice(
        command=trainings.command,
        recipe=trainings.recipe,
        held_out=trained.examples.held_out_count,
        untrained=trained.losses.held_out_before,
        tried=tuple(_compared(each, tried[best], trained.seed) for each in tried),
        chosen=best,
    )
    prefer(folder)
    return Chosen(record, _keep(record), folder)


def _one_after_the_other(trainings: Trainings, examples: Sequence[Parted], display: Display) -> Iterator[TriedTraining]:
    for place, ((name, request), own) in enumerate(zip(trainings.cells, examples, strict=True)):
        display.line(f"training {place + 1} of {len(examples)}: {name}")
        error = None
        try:
            train(request, own, ["train", request.recipe, *request.overrides], display)
        except KgqaError as failure:
            error = " ".join(without_secrets(failure).split())
            display.line(error, alarm=True)
        yield _ended(name, str(request.folder(own)), error)


def _ended(name: str, folder: str, error: str | None) -> TriedTraining:
    if error:
        return TriedTraining(settings=name, folder=folder, error=error)
    return TriedTraining(settings=name, folder=folder, loss=Trained.read(Path(folder)).losses.held_out_after)


def _compared(tried: TriedTraining, chosen: TriedTraining, seed: int) -> TriedTraining:
    """With the difference to the chosen one, where each held-out example has a loss."""
    if tried is chosen or tried.loss is None:
        return tried
    own, best = (Outcome.read(Path(each.folder)).measured.get("loss", ((), ()))[1] for each in (tried, chosen))
    more = [float(a) - float(b) for a, b in zip(own, best, strict=True) if a is not None and b is not None]
    if not more:
        return tried
    return replace(tried, above=(sum(more) / len(more), *interval(more, seed=seed)))


def _keep(record: TrainingChoice) -> Path:
    folder = place_of(record.recipe, [each.folder for each in record.tried])
    replace_file(folder / CHOICE, json_text(record.json()))
    return replace_file(folder / "choice.md", document("What was trained", choice_sections(record)))

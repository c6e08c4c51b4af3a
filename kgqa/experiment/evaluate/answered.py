"""Answers to score: of a finished run, from its folder alone, or of others, from a file beside a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS, Prediction
from kgqa.artifacts.run import IDENTITY, MADE_UP, SCRIPTED_TARGET, SETTINGS, Chosen
from kgqa.artifacts.schema import read
from kgqa.artifacts.trace import TRACE, read_questions
from kgqa.config import factories as parts
from kgqa.config.files import Config, load_yaml
from kgqa.datasets.predictions import match_predictions, read_predictions
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.run.judge_roles import reader_preset
from kgqa.experiment.session.experiment import Experiment
from kgqa.scoring.questions import ScoredQuestion, score_question
from kgqa.types import Json, Question


@dataclass(frozen=True)
class AnsweredQuestions:
    """Questions in order, each with what was answered."""

    name: str
    questions: tuple[Question, ...]
    predictions: Mapping[str, Prediction]
    profile: str
    config: Config | None  # the run's; None: not answered by a run of ours

    @property
    def reader(self) -> str:
        """Return the preset that answered, "" where that is not known."""
        return reader_preset(self.config) if self.config else ""

    @property
    def method(self) -> str:
        """ "" where that is not known."""
        settings = Path(self.name) / SETTINGS
        return read(Chosen, settings).choices.get("method", "") if self.config and settings.is_file() else ""

    @property
    def simulation_note(self) -> str:
        """Return what a list of runs adds to the name of one that no model answered."""
        scripted = self.config is not None and self.config["engine"].get("_target_") == SCRIPTED_TARGET
        return f" ({MADE_UP})" if scripted else ""

    def rows(self) -> list[ScoredQuestion]:
        """Return the scored questions. The support is not scored if the file does not contain the passages used."""
        return [score_question(question, self.predictions[question.id], self.profile) for question in self.questions]


def open_run(folder: Path, profile: str | None = None) -> AnsweredQuestions:
    """Return a finished run; the data set's file is asked only where the folder has no trace.

    Raises:
        DataError: not a run's folder, one of a run that has not ended, or one whose files do not fit together.
    """
    file = folder / PREDICTIONS
    if not file.is_file():
        if (folder / IDENTITY).is_file():
            raise DataError(f"{folder}: the run has not ended (no {PREDICTIONS}); run its command again to finish it")
        raise DataError(f"{folder}: not the folder of a run (no {PREDICTIONS}); give the folder that kgqa run printed")
    config = _config(folder / "config.yaml")
    _refuse_without_answers(folder)
    predictions = {prediction.question_id: prediction for prediction in read_predictions(file)}
    return AnsweredQuestions(
        str(folder),
        tuple(_questions(folder, config, predictions)),
        predictions,
        profile or config.get("profile") or config["dataset"]["profile"],
        config,
    )


def open_predictions(file: Path, experiment: Experiment, *, subset: bool) -> AnsweredQuestions:
    """Return predictions of others for the experiment's questions; `subset`: for those of them the file answers.

    Raises:
        DataError: the file is in no known format, or not for these questions.
    """
    predictions = read_predictions(file)
    answered = {prediction.question_id for prediction in predictions}
    everything = experiment.questions
    known = {question.id for question in experiment.source.questions()}
    questions = tuple(question for question in everything if question.id in answered or not subset)
    if not questions:
        raise DataError(f"{file}: none of its predictions is for a question of dataset={experiment.name('dataset')}")
    by_id = match_predictions(predictions, questions, file, known=known)
    return AnsweredQuestions(str(file), questions, by_id, experiment.profile, None)


def share_questions(runs: list[AnsweredQuestions], *, common: bool) -> list[AnsweredQuestions]:
    """Return the runs over the same questions, in the first one's order; `common`: over those that all of them have.

    Raises:
        ConfigError: the questions differ, naming some, or there is none that all of them have.
        DataError: a question has another text or other gold answers in another run.
    """
    first, *others = runs
    by_run = [{question.id: question for question in run.questions} for run in runs]
    shared = set(by_run[0]).intersection(*by_run[1:])
    for run, mine in zip(others, by_run[1:], strict=True):
        if not common and mine.keys() != by_run[0].keys():
            raise ConfigError(_differing(first.name, by_run[0], run.name, mine, len(shared)))
        for key in sorted(shared):
            if (mine[key].text, mine[key].answers) != (by_run[0][key].text, by_run[0][key].answers):
                raise DataError(f"question {key}: other words or gold answers in {run.name} than in {first.name}")
    if not shared:
        raise ConfigError("these runs have no question in common; compare runs over the same data set")
    kept = [question for question in first.questions if question.id in shared]
    return [
        replace(run, questions=tuple(mine[question.id] for question in kept))
        for run, mine in zip(runs, by_run, strict=True)
    ]


def _differing(
    first: str, mine: Mapping[str, Question], second: str, theirs: Mapping[str, Question], shared: int
) -> str:
    only = [(first, sorted(mine.keys() - theirs.keys())), (second, sorted(theirs.keys() - mine.keys()))]
    differences = [
        f"{len(ids):,} only in {name}: {', '.join(ids[:3])}{' …' if len(ids) > 3 else ''}" for name, ids in only if ids
    ]
    return f"different questions, {'; '.join(differences)}; give --common to compare the {shared:,} they share"


def _questions(folder: Path, config: Config, predictions: Mapping[str, Prediction]) -> list[Question]:
    """Return the questions in the order of the predictions."""
    traced = (folder / TRACE).is_file()
    listed = read_questions(folder) if traced else parts.dataset(config["dataset"]).questions()
    questions = {question.id: question for question in listed}
    without = [key for key in predictions if key not in questions]
    unanswered = [key for key in questions if key not in predictions] if traced else []
    for ids, what in ((without, "no question for this prediction"), (unanswered, "no prediction for this question")):
        if ids:
            raise DataError(
                f"{folder / PREDICTIONS}: question {ids[0]}: {what} ({len(ids):,} in all) in "
                f"{TRACE if traced else config['dataset']['name']}; run the run's command again to rewrite both"
            )
    return [questions[key] for key in predictions]


def _config(file: Path) -> Config:
    config: Json = load_yaml(file)
    if not isinstance(config, Mapping) or not {"dataset", "model", "engine", "roles"} <= config.keys():
        raise DataError(f"{file}: not the configuration of a run; run the run's command again to rewrite it")
    return config


def _refuse_without_answers(folder: Path) -> None:
    if not (folder / METRICS).is_file() or (metrics := Metrics.read(folder)).scores.em.n:
        return
    if metrics.failed == metrics.questions:
        raise DataError(f"{folder}: every question of this run failed; run the run's command again")
    raise DataError(f"{folder}: this run retrieved and answered nothing; its scores are in {METRICS}")

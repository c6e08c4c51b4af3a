"""Score answers that exist: of a finished run, or of another program. Judge them, and measure how far judges agree."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.manifest import check_hash
from kgqa.artifacts.metrics import METRICS, Evaluation, Metrics
from kgqa.artifacts.predictions import PREDICTIONS, Prediction
from kgqa.artifacts.run import IDENTITY, MADE_UP, SCRIPTED_TARGET
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.trace import TRACE, read_questions
from kgqa.artifacts.verdicts import RIGHT, VERDICTS, WRONG, Judgement, judge_of, read_verdicts
from kgqa.config.files import Config
from kgqa.config.overrides import override_group
from kgqa.config.short_forms import SERVER
from kgqa.config.targets import load_run_config
from kgqa.datasets.predictions import match_predictions, name_twins, read_predictions
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.check import refusal
from kgqa.experiment.engines import reader_preset
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.judging import Judged, judge_answers
from kgqa.experiment.session import Session
from kgqa.judge import ROLE
from kgqa.report.evaluation import evaluation_sections
from kgqa.report.run_report import agreement_section
from kgqa.report.section import Section, markdown, unquote_formula
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.scoring.comparison import agreement
from kgqa.scoring.questions import ScoredQuestion, score_questions
from kgqa.scoring.summary import summarise
from kgqa.types import Question
from kgqa.util.fs import OUT_ELSEWHERE, ensure_dir, explain_storage_errors, json_text, jsonl_text, replace_file
from kgqa.util.text import pluralize

HUMAN = {**dict.fromkeys(("1", "true", "yes", RIGHT), RIGHT), **dict.fromkeys(("0", "false", "no", WRONG), WRONG)}
Labels = Mapping[str, str | None]  # right or wrong by question
Evaluated = tuple[Evaluation, Path | None]  # with its file; None: of another program, without `output_dir=`


@dataclass(frozen=True)
class AnsweredQuestions:
    """Questions in order, with their answers."""

    name: str
    questions: tuple[Question, ...]
    predictions: Mapping[str, Prediction]
    profile: str
    config: Config | None = None  # of the run; None: another program answered
    missing_golds: str | None = None  # what the gold answers lack

    @property
    def reader(self) -> str:
        """Return the preset that answered, "" if unknown."""
        return reader_preset(self.config) if self.config else ""

    @property
    def simulation_note(self) -> str:
        """Return what a list of runs adds to the name of a run without a model."""
        scripted = self.config is not None and self.config["engine"].get("_target_") == SCRIPTED_TARGET
        return f" ({MADE_UP})" if scripted else ""

    @cached_property
    def scored(self) -> list[ScoredQuestion]:
        """Return the scored questions. Support is only scored if the file contains the passages used."""
        return score_questions(self.questions, self.predictions, self.profile)

    def find_stale(self, verdicts: Mapping[str, Judgement]) -> str | None:
        """Return the first question without a verdict on its present answer."""
        for row in self.scored:
            if (line := verdicts.get(row.id)) is None or line.answer != row.answer:
                return row.id
        return None


def open_run(folder: Path, profile: str | None = None) -> AnsweredQuestions:
    """Read the answers of a finished run. Its trace has the questions, so nothing outside of the folder is read.

    Raises DataError if it is not the folder of a finished run, or its files do not fit together.
    """
    file = folder / PREDICTIONS
    if not file.is_file():
        if (folder / IDENTITY).is_file():
            raise DataError(f"{folder}: the run is not finished (no {PREDICTIONS}). Run its command again to finish it")
        raise DataError(
            f"{folder}: not the folder of a run (missing: {PREDICTIONS}). Name the folder that kgqa run printed"
        )
    config = load_run_config(folder)
    metrics = Metrics.read(folder) if (folder / METRICS).is_file() else None
    if metrics and not metrics.score("em").n:
        if metrics.failed == metrics.questions:
            raise DataError(f"{folder}: every question of this run failed. Run its command again")
        raise DataError(f"{folder}: this run only retrieved passages. Its scores are in {METRICS}")
    predictions = {prediction.question_id: prediction for prediction in read_predictions(file)}
    profile = profile or config.get("scoring") or config["dataset"]["profile"]
    questions = tuple(_read_questions(folder, predictions))
    check_hash(folder, PREDICTIONS)
    lacking = metrics.missing_golds if metrics else None
    return AnsweredQuestions(str(folder), questions, predictions, str(profile), config, lacking)


def _read_questions(folder: Path, predictions: Mapping[str, Prediction]) -> list[Question]:
    """Return the questions in the order of the predictions."""
    if not (folder / TRACE).is_file():
        raise DataError(
            f"{folder}: no {TRACE}, which has the questions. Run its command again, or score the answers with "
            f"kgqa evaluate --predictions {folder / PREDICTIONS} dataset=NAME"
        )
    questions = {question.id: question for question in read_questions(folder)}
    if differing := sorted(predictions.keys() ^ questions.keys()):
        raise DataError(
            f"{folder / PREDICTIONS}: question {differing[0]}: only in this file or only in {TRACE} "
            f"({len(differing):,} in all). Run its command again to rewrite both"
        )
    return [questions[key] for key in predictions]


def evaluate_run(run: Path, overrides: Sequence[str], display: Display) -> Evaluated:
    """Score the answers of a finished run, by the run's profile unless `scoring=` is set.

    Raises:
        ConfigError: `output_dir=` is the folder of another run, or something in use was trained on the questions.
        DataError: not the folder of a finished run.
    """
    experiment = Experiment.of(overrides)
    answered = open_run(run, experiment.settings.scoring)
    leaks = Metrics.read(run).trained_questions if (run / METRICS).is_file() else None
    if leaks and not experiment.settings.allow_trained_questions:
        raise ConfigError(refusal(leaks, len(answered.questions)))
    return _evaluate(experiment, answered, display, run)


def evaluate_predictions(file: Path, overrides: Sequence[str], display: Display, *, subset: bool) -> Evaluated:
    """Score the answers of another program. `subset`: only to the questions that the file has.

    Raises:
        ConfigError: `output_dir=` is the folder of a run.
        DataError: the file has no known format, or is not for these questions.
    """
    experiment = Experiment.of(overrides)
    known = [question.id for question in experiment.all_questions()]
    predictions = name_twins(read_predictions(file), known, file)
    answered = {prediction.question_id for prediction in predictions}
    questions = tuple(question for question in experiment.questions if question.id in answered or not subset)
    if not questions:
        raise DataError(f"{file}: none of its predictions is for a question of dataset={experiment.name('dataset')}")
    by_id = match_predictions(predictions, questions, file, known=known)
    lacking = experiment.missing_golds or None
    answers = AnsweredQuestions(str(file), questions, by_id, experiment.profile, missing_golds=lacking)
    return _evaluate(experiment, answers, display)


def _evaluate(
    experiment: Experiment, answered: AnsweredQuestions, display: Display, run: Path | None = None
) -> Evaluated:
    """Score the answers. Write evaluation.json, a page and the verdicts into `output_dir=` or the run's folder."""
    folder = run
    if experiment.settings.output_dir is not None:
        folder = Path(experiment.settings.output_dir)
        if (folder / IDENTITY).exists() and (run is None or not folder.samefile(run)):
            raise ConfigError(f"output_dir={folder}: the folder of another run. Set another folder")
    judged = _judge(experiment, answered, display, folder) if experiment.judge else None
    count = pluralize(len(answered.questions), "question")
    evaluation = Evaluation(
        source=answered.name,
        scores=summarise(answered.scored).replace(missing_golds=answered.missing_golds),
        notes=() if run else (f"{count} scored, {len(answered.predictions):,} predictions in the file.",),
        judge=judged.metrics if judged else None,
    )
    if folder is None:
        return evaluation, None
    with explain_storage_errors(folder, OUT_ELSEWHERE):
        ensure_dir(folder)
    if judged:
        replace_file(folder / VERDICTS, jsonl_text(line.json() for line in judged.lines))
    replace_file(folder / "evaluation.md", markdown(answered.name, evaluation_sections(evaluation)))
    return evaluation, replace_file(folder / "evaluation.json", json_text(evaluation.json()))


def _judge(experiment: Experiment, answered: AnsweredQuestions, display: Display, log: Path | None) -> Judged:
    """Judge the answers.

    Raises:
        ConfigError: neither the judge nor the command line names a model. Nothing is taken from the run's folder, which
            can be another person's.
    """
    judge, chosen = experiment.judge, {override_group(override) for override in experiment.overrides}
    assert judge is not None
    has_model = experiment.config["roles"][ROLE] or all(judge.roles.values()) or {"model", "engine"} <= chosen
    if answered.config is not None and not has_model and SERVER not in chosen:
        raise ConfigError(
            f"judge={experiment.name(ROLE)}: which model runs the judge? Add model=NAME and engine=NAME, or server=URL"
        )
    with Session(experiment) as session:
        session.judge_engines  # noqa: B018 - an error leaves the folder as it was, without a log
        with nullcontext(display) if log is None else monitor_work(display, "judge", log) as shown:
            return judge_answers(session, answered.scored, shown, answered.reader)


def calibrate_judge(folder: Path, human: Path | None, other: Path | None) -> tuple[str, list[Section], Path]:
    """Compare the verdicts of a run with exact match and containment, and with human verdicts or another judge.

    Returns the judge, the agreement with each other, and the file with them in the run's folder.

    Args:
        human: a file of verdicts, see `read_human`.
        other: a folder with the verdicts of another judge, see `output_dir=` of `kgqa evaluate`.

    Raises:
        DataError: the run was not judged, or its answers have changed since.
    """
    run, verdicts = open_run(folder), read_verdicts(folder)
    judge = _labels(run, verdicts, folder)
    others = label_by_scores(run.scored)
    if other is not None:
        others["second judge"] = _labels(run, read_verdicts(other), other)
    if human is not None:
        others["human"] = read_human(human, set(judge))
    agreements = {
        name: agreement(list(judge.values()), [labels.get(key) for key in judge]) for name, labels in others.items()
    }
    sections = [
        agreement_section(f"Judge against {name}", ("judge", name), measured) for name, measured in agreements.items()
    ]
    sections = [
        each if each.rows else replace(each, header=(), values=[("nothing to compare", "")]) for each in sections
    ]
    name = judge_of(verdicts)
    file = replace_file(folder / "calibration.json", json_text({"judge": name, **as_json(agreements)}))
    return name, sections, file


def label_by_scores(scored: Sequence[ScoredQuestion]) -> dict[str, Labels]:
    """Return what EM and containment would say as judges: right for 1."""
    return {
        "EM": {row.id: RIGHT if row.em else WRONG for row in scored},
        "containment": {row.id: RIGHT if row.containment else WRONG for row in scored},
    }


def _labels(run: AnsweredQuestions, verdicts: Mapping[str, Judgement], source: Path) -> dict[str, str | None]:
    """Return the labels. Unscored, failed and exact answers have None."""
    if stale := run.find_stale(verdicts):
        wrong = "the verdict is on another answer to" if stale in verdicts else "no verdict on"
        raise DataError(f"{source}: {wrong} question {stale}. Judge it again: kgqa evaluate RUN judge=…")
    return {question.id: verdicts[question.id].label for question in run.questions}


def read_human(file: Path, known: set[str]) -> dict[str, str | None]:
    """Read a CSV file with the columns question_id and correct (1, 0, true, false, yes, no; empty: no verdict).

    Raises:
        DataError: a column is missing, an id is unknown or repeated, or a verdict is invalid. The message has the line.
    """
    verdicts: dict[str, str | None] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as source:
            reader = csv.DictReader(source)
            if not {"question_id", "correct"} <= set(reader.fieldnames or ()):
                raise DataError(f"{file}:1: expected the columns question_id and correct, found {reader.fieldnames}")
            for row in reader:
                key, verdict = unquote_formula(row["question_id"] or ""), (row["correct"] or "").strip()
                where = f"{file}:{reader.line_num}"
                if key not in known:
                    raise DataError(f"{where}: question {key}: not a question of this run. Correct the id")
                if key in verdicts:
                    raise DataError(f"{where}: question {key} occurs twice. Remove one of them")
                if verdict and verdict.casefold() not in HUMAN:
                    raise DataError(
                        f"{where}: correct={verdict}: expected 1 or 0, or an empty cell if there is no verdict"
                    )
                verdicts[key] = HUMAN[verdict.casefold()] if verdict else None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"human={file}: cannot be read ({error}). Name a CSV file in UTF-8") from error
    if not any(verdicts.values()):
        raise DataError(f"{file}: no verdicts in this file")
    return verdicts

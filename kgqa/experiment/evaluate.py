"""Score answers that exist: of finished runs, or of other programs. Judge them, and calibrate the judge by labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.evaluation import EVALUATION, Consistency, Evaluation, has_evaluation
from kgqa.artifacts.metrics import METRICS, JudgeMetrics, LabelAgreement, Metrics
from kgqa.artifacts.predictions import PREDICTIONS, Prediction, run_predictions
from kgqa.artifacts.run import IDENTITY, MADE_UP, SCRIPTED_TARGET, SWEEP
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.sweep import Sweep
from kgqa.artifacts.trace import TRACE, read_questions
from kgqa.artifacts.verdicts import RIGHT, VERDICTS, WRONG, Judgement, judge_of, read_verdicts
from kgqa.config.files import Config
from kgqa.config.overrides import override_group
from kgqa.config.short_forms import SERVER
from kgqa.config.targets import load_run_config
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.calibration import JudgedSet, Labels, calibrate, match_labels, read_labels
from kgqa.experiment.check import refusal, warn_of_missing_values
from kgqa.experiment.engines import reader_preset
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.judging import (
    Judged,
    check_consistency,
    check_prompts,
    judge_answers,
    refuse_checks,
)
from kgqa.experiment.prediction_files import match_predictions, name_twins, read_predictions
from kgqa.experiment.session import Session
from kgqa.judge import ROLE
from kgqa.report.evaluation import calibration_sections, evaluation_sections
from kgqa.report.run_report import agreement_section
from kgqa.report.section import Section, markdown
from kgqa.report.warnings import (
    find_bad_inputs,
    find_missing_verdicts,
    find_undefined_metrics,
    find_worthless_answers,
)
from kgqa.runtime.display import Display
from kgqa.runtime.folder import refuse_foreign_files
from kgqa.runtime.monitor import monitor_work
from kgqa.scoring.agreement import agreement
from kgqa.scoring.own_metrics import list_own_metrics
from kgqa.scoring.questions import ScoredQuestion, score_questions
from kgqa.scoring.summary import summarise
from kgqa.system.models import list_local_models
from kgqa.types import Question
from kgqa.util.fs import (
    OUT_ELSEWHERE,
    ensure_dir,
    explain_storage_errors,
    json_text,
    jsonl_text,
    replace_file,
)
from kgqa.util.text import pluralize

# the report as Markdown
PAGE = "evaluation.md"
Verdicts = Mapping[str, str | None]  # right or wrong by question


@dataclass(frozen=True)
class AnsweredQuestions:
    """Questions in order, with their answers."""

    name: str
    questions: tuple[Question, ...]
    predictions: Mapping[str, Prediction]
    profile: str
    # of the run; None: another program answered
    config: Config | None = None
    missing_golds: str | None = None  # what the gold answers lack
    folder: Path | None = None  # of the run

    @property
    def reader(self) -> str:
        """Return the preset that answered, "" if unknown."""
        return reader_preset(self.config) if self.config else ""

    @property
    def perturbation(self) -> str:
        """Return the value of dataset.perturb, "" if the passages are unchanged."""
        return str((self.config or {}).get("dataset", {}).get("perturb") or "")

    @property
    def is_simulated(self) -> bool:
        """Return whether the answers are of engine=scripted."""
        return self.config is not None and self.config["engine"].get("_target_") == SCRIPTED_TARGET

    @property
    def simulation_note(self) -> str:
        """Return what a list of runs adds to the name of a run without a model."""
        return f" ({MADE_UP})" if self.is_simulated else ""

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
    # the metrics are written last, so a rerun that was killed has none
    for name in (PREDICTIONS, METRICS):
        if (folder / name).is_file():
            continue
        if (folder / IDENTITY).is_file():
            raise DataError(
                f"{folder}: the run is not finished (no {name}). Run its command again to finish it"
            )
        raise DataError(
            f"{folder}: not the folder of a run (missing: {name}). Name the folder that kgqa run printed"
        )
    config, metrics = load_run_config(folder), Metrics.read(folder)
    if not metrics.score("em").n:
        if metrics.failed == metrics.questions:
            raise DataError(f"{folder}: every question of this run failed. Run its command again")
        raise DataError(f"{folder}: this run only retrieved passages. Its scores are in {METRICS}")
    # unlike a file of another program, an answer can have half a surrogate pair
    saved = run_predictions(folder)
    predictions = {prediction.question_id: prediction for prediction in saved}
    if len(predictions) < len(saved):
        raise DataError(f"{folder / PREDICTIONS}: a question occurs twice. Run its command again")
    profile = profile or config.get("scoring") or config["dataset"]["profile"]
    questions = tuple(_read_questions(folder, predictions))
    return AnsweredQuestions(
        str(folder), questions, predictions, str(profile), config, metrics.missing_golds, folder
    )


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


@dataclass(frozen=True)
class Evaluated:
    """The result of one set of answers. file: None: of another program, without `output_dir=`."""

    evaluation: Evaluation
    file: Path | None
    question_ids: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationRequest:
    """Hold the settings of `kgqa evaluate` for each set of answers.

    labels: a file for `calibration.read_labels`. checks: measure the judge's consistency.
    """

    experiment: Experiment
    labels: Path | None = None
    checks: bool = False


def check_has_judge(setting: str, keys: Collection[str]) -> None:
    """Raise ConfigError if a setting of judges comes without a judge."""
    if "judge" not in keys:
        raise ConfigError(
            f"{setting}: works only with a judge. Add judge=em, judge=three_way or another"
        )


def open_places(places: Sequence[Path], scoring: str | None) -> list[AnsweredQuestions]:
    """Read the answers of runs, and of the finished cells of sweeps.

    Raises DataError: a place is neither, a sweep has no finished cell, or a run is named twice.
    """
    folders = [
        folder
        for place in places
        for folder in (_list_cells(place) if _is_sweep(place) else [place])
    ]
    if len(set(folders)) < len(folders):
        repeated = next(folder for folder in folders if folders.count(folder) > 1)
        raise DataError(f"{repeated}: named twice. Name each run once")
    return [open_run(folder, scoring) for folder in folders]


def _is_sweep(place: Path) -> bool:
    return (place / SWEEP).is_file()


def _list_cells(sweep: Path) -> list[Path]:
    folders = [cell.run for cell in Sweep.read(sweep).cells if cell.status == "done" and cell.run]
    if not folders:
        raise DataError(f"{sweep}: no cell of this sweep is finished. Run its command again")
    return list(dict.fromkeys(folders))


def open_predictions(
    files: Sequence[Path], experiment: Experiment, *, subset: bool
) -> list[AnsweredQuestions]:
    """Read the answers of other programs. `subset`: only the questions that a file has.

    Raises DataError: a file has no known format, or is not for these questions.
    """
    ids = [question.id for question in experiment.data.all_questions()]
    opened = []
    for file in files:
        predictions = name_twins(read_predictions(file), ids, file)
        answered = {prediction.question_id for prediction in predictions}
        questions = tuple(
            question
            for question in experiment.data.questions
            if question.id in answered or not subset
        )
        if not questions:
            raise DataError(
                f"{file}: none of its predictions is for a question of dataset={experiment.name('dataset')}"
            )
        by_id = match_predictions(predictions, questions, file, known=ids)
        lacking = experiment.data.missing_golds or None
        opened.append(
            AnsweredQuestions(
                str(file), questions, by_id, experiment.profile, missing_golds=lacking
            )
        )
    return opened


def evaluate(
    request: EvaluationRequest, answered: Sequence[AnsweredQuestions], display: Display
) -> list[Evaluated]:
    """Score the answers, judge them if a judge is chosen, and correct its accuracy by labels.

    Writes evaluation.json, a page and the verdicts into `output_dir=` or the folder of each run.

    Raises:
        ConfigError: `output_dir=` is the folder of another run, something in use was trained on the questions, or a
            judge without a model is to be checked.
        DataError: the labels are not of these answers.
    """
    experiment = request.experiment
    if request.checks:
        refuse_checks(experiment)
    for one in answered:
        _check_training(one, experiment)
    folders = [_find_folder(one, experiment, single=len(answered) == 1) for one in answered]
    labels = _read_labels(request, answered)
    judgings = (
        _judge(request, answered, folders, display) if experiment.judge else [None] * len(answered)
    )
    evaluations = [
        _evaluate(one, judging.judged.metrics if judging else None)
        for one, judging in zip(answered, judgings, strict=True)
    ]
    if experiment.judge:
        evaluations = _calibrate(answered, judgings, evaluations, labels)
    return [
        Evaluated(
            evaluation,
            folder and _write(folder, evaluation, judging),
            tuple(one.id for one in answers.questions),
        )
        for evaluation, folder, judging, answers in zip(
            evaluations, folders, judgings, answered, strict=True
        )
    ]


def _evaluate(answered: AnsweredQuestions, judged: JudgeMetrics | None) -> Evaluation:
    """Score answers, with the verdicts if they are judged."""
    scores = summarise(answered.scored).replace(missing_golds=answered.missing_golds)
    inputs = find_bad_inputs(Metrics.read(answered.folder)) if answered.folder else ()
    undefined = find_undefined_metrics(scores, list_own_metrics())
    return Evaluation(
        source=answered.name,
        scores=scores,
        notes=() if answered.folder else (_count(answered),),
        warnings=(
            *find_worthless_answers(scores),
            *(judged.warnings if judged else ()),
            *find_missing_verdicts(judged),
            *inputs,
            *undefined,
        ),
        judge=judged,
    )


def _count(answered: AnsweredQuestions) -> str:
    count = pluralize(len(answered.questions), "question")
    return f"{count} scored, {len(answered.predictions):,} predictions in the file."


def _check_training(answered: AnsweredQuestions, experiment: Experiment) -> None:
    folder = answered.folder
    leaks = (
        Metrics.read(folder).trained_questions if folder and (folder / METRICS).is_file() else None
    )
    if leaks and not experiment.settings.allow_trained_questions:
        raise ConfigError(refusal(leaks, len(answered.questions)))


def _find_folder(
    answered: AnsweredQuestions, experiment: Experiment, *, single: bool
) -> Path | None:
    """Return the folder for the files of an evaluation. None: they are not written."""
    folder, run = experiment.settings.output_dir, answered.folder
    if folder is None:
        return run
    if not single:
        raise ConfigError(f"output_dir={folder}: only with one set of answers. Remove output_dir=")
    if (Path(folder) / IDENTITY).exists() and (run is None or not Path(folder).samefile(run)):
        raise ConfigError(f"output_dir={folder}: the folder of another run. Set another folder")
    if not has_evaluation(Path(folder)):
        refuse_foreign_files(Path(folder), (EVALUATION, PAGE, VERDICTS))
    return Path(folder)


def _read_labels(request: EvaluationRequest, answered: Sequence[AnsweredQuestions]) -> list[Labels]:
    """Return the labels of each set of answers, none without a file. They are checked before the first call."""
    if request.labels is None:
        return [{} for _ in answered]
    matched = match_labels(read_labels(request.labels), {one.name: one.scored for one in answered})
    return [matched[one.name] for one in answered]


@dataclass(frozen=True)
class _Judging:
    judged: Judged
    consistency: Consistency | None


def _judge(
    request: EvaluationRequest,
    answered: Sequence[AnsweredQuestions],
    folders: Sequence[Path | None],
    display: Display,
) -> list[_Judging]:
    """Judge all answers with one judge, so that its model is loaded once.

    Raises:
        ConfigError: neither the judge nor the command line names a model. Nothing is taken from a run's folder, which
            can be another person's.
    """
    experiment = request.experiment
    judge, groups = (
        experiment.judge,
        {override_group(override) for override in experiment.overrides},
    )
    assert judge is not None
    engine = experiment.config["engine"]
    is_scripted = engine["_target_"] == SCRIPTED_TARGET
    has_model = (
        experiment.config["roles"][ROLE]
        or all(judge.roles.values())
        or {"model", "engine"} <= groups
        # the rules give the verdicts, with any model
        or (is_scripted and engine.get("rules"))
    )
    if any(one.config is not None for one in answered) and not has_model and SERVER not in groups:
        if is_scripted:
            raise ConfigError(
                f"judge={experiment.name(ROLE)}: engine=scripted gives no verdicts. Write them to engine.rules=FILE, "
                f"or choose a model: roles.{ROLE}=NAME"
            )
        missing = " and ".join(f"{name}=NAME" for name in ("model", "engine") if name not in groups)
        local = [f". On this machine: roles.{ROLE}={each.name}" for each in list_local_models()[:1]]
        raise ConfigError(
            f"judge={experiment.name(ROLE)}: which model runs the judge? Add {missing}, or server=URL{''.join(local)}"
        )
    judgings = []
    with Session(experiment) as session:
        check_prompts(judge)
        for warning in warn_of_missing_values(judge, judge.templates):
            display.line(warning, alarm=True)
        session.judge_engines  # noqa: B018 - an error leaves the folder as it was, without a log
        for one, log in zip(answered, folders, strict=True):
            with (
                nullcontext(display)
                if log is None
                else monitor_work(display, "judge", log) as monitor
            ):
                judged = judge_answers(session, one.scored, monitor, one.reader, one.folder)
                consistency = None
                if request.checks:
                    consistency = check_consistency(
                        session, one.scored, judged, monitor, one.folder
                    )
                judgings.append(_Judging(judged, consistency))
    return judgings


def _calibrate(
    answered: Sequence[AnsweredQuestions],
    judgings: Sequence[_Judging | None],
    evaluations: Sequence[Evaluation],
    labels: Sequence[Labels],
) -> list[Evaluation]:
    complete = [judging for judging in judgings if judging]
    sets = [
        JudgedSet(
            one.name, one.scored, {line.question_id: line for line in judging.judged.lines}, own
        )
        for one, judging, own in zip(answered, complete, labels, strict=True)
    ]
    return [
        evaluation.replace(
            judge=judging.judged.metrics.replace(
                corrected=calibration.corrected if calibration.source else None
            ),
            calibration=calibration.replace(consistency=judging.consistency),
        )
        for evaluation, calibration, judging in zip(
            evaluations, calibrate(sets), complete, strict=True
        )
    ]


def _write(folder: Path, evaluation: Evaluation, judging: _Judging | None) -> Path:
    with explain_storage_errors(folder, OUT_ELSEWHERE):
        ensure_dir(folder)
        if judging:
            # those of another judge do not belong to the new scores
            (folder / VERDICTS).unlink(missing_ok=True)
    # first, because it tells kgqa's folder from another one if this is interrupted
    file = replace_file(folder / EVALUATION, json_text(evaluation.json()))
    if judging:
        replace_file(folder / VERDICTS, jsonl_text(line.json() for line in judging.judged.lines))
    notices = [f"**Warning**: {text}." for text in evaluation.warnings]
    replace_file(
        folder / PAGE,
        markdown(evaluation.source, evaluation_sections(evaluation), notices),
    )
    return file


def calibrate_judge(
    folder: Path, labels: Path | None, other: Path | None
) -> tuple[str, list[Section], Path]:
    """Compare the saved verdicts of a run with exact match and containment, and with labels or another judge.

    Returns the judge, the sections, and the file with them in the run's folder.

    Args:
        labels: a file for `calibration.read_labels`.
        other: a folder with the verdicts of another judge, see `output_dir=` of `kgqa evaluate`, or a second file of
            labels, which is compared with the first.

    Raises:
        ConfigError: there is a second file of labels without a first one.
        DataError: the run was not judged, or its answers have changed since.
    """
    if labels is None and other is not None and other.is_file():
        raise ConfigError(f"other={other}: a second file of labels. Add the first: labels=FILE.csv")
    run, verdicts = open_run(folder), read_verdicts(folder)
    judge = _saved_labels(run, verdicts, folder)
    others = label_by_scores(run.scored)
    if other is not None and not other.is_file():
        others["second judge"] = _saved_labels(run, read_verdicts(other), other)
    matched: Labels = {}
    if labels is not None:
        matched = match_labels(read_labels(labels), {run.name: run.scored})[run.name]
    agreements = {
        name: agreement(list(judge.values()), [labels_of_other.get(key) for key in judge])
        for name, labels_of_other in others.items()
    }
    sections = [
        agreement_section(f"Judge against {name}", ("judge", name), measured)
        for name, measured in agreements.items()
    ]
    if other is not None and other.is_file():
        second = match_labels(read_labels(other), {run.name: run.scored})[run.name]
        agreements["labelers"] = _compare_labels(matched, second)
        names = ("labels", "second labels")
        sections.append(agreement_section("Labels against labels", names, agreements["labelers"]))
    (calibration,) = calibrate([JudgedSet(run.name, run.scored, verdicts, matched)])
    sections = [
        each if each.rows else replace(each, header=(), values=[("nothing to compare", "")])
        for each in sections
    ] + calibration_sections([(run.name, calibration)])
    name = judge_of(verdicts)
    record = {"judge": name, **as_json(agreements), "labels": calibration.json()}
    return name, sections, replace_file(folder / "calibration.json", json_text(record))


def _compare_labels(first: Labels, second: Labels) -> LabelAgreement:
    """Return the agreement of two people who labeled the same answers."""
    verdicts = [
        [None if each.get(key) is None else RIGHT if each[key] else WRONG for key in first]
        for each in (first, second)
    ]
    return agreement(*verdicts)


def label_by_scores(scored: Sequence[ScoredQuestion]) -> dict[str, Verdicts]:
    """Return what EM and containment would say as judges: right for 1."""
    return {
        "EM": {row.id: RIGHT if row.em else WRONG for row in scored},
        "containment": {row.id: RIGHT if row.containment else WRONG for row in scored},
    }


def _saved_labels(
    run: AnsweredQuestions, verdicts: Mapping[str, Judgement], source: Path
) -> dict[str, str | None]:
    """Return the labels. Unscored, failed and exact answers have None."""
    if stale := run.find_stale(verdicts):
        wrong = "the verdict is on another answer to" if stale in verdicts else "no verdict on"
        raise DataError(
            f"{source / VERDICTS}: {wrong} question {stale}. Judge it again: kgqa evaluate RUN judge=…"
        )
    return {question.id: verdicts[question.id].label for question in run.questions}

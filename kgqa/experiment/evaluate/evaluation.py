"""Score answers that are there already, a run's or those of others, and put them before a judge."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.evaluation import Evaluation
from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.run import IDENTITY
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.errors import ConfigError
from kgqa.experiment.evaluate.answered import AnsweredQuestions, open_predictions, open_run
from kgqa.experiment.run.contamination import refusal
from kgqa.experiment.run.judge_roles import judge_engines
from kgqa.experiment.run.judging import Judged, judge_answers
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.report.content import Section
from kgqa.report.evaluation import evaluation_sections
from kgqa.report.markdown import document
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.scoring.summary import summarise
from kgqa.util.fs import OUT_ELSEWHERE, ensure_dir, explain_storage_errors, json_text, jsonl_text, replace_file
from kgqa.util.text import pluralize


@dataclass(frozen=True)
class Evaluated:
    """Scores of answers; nothing of it is on disk before `write`."""

    evaluation: Evaluation
    judged: Judged | None
    folder: Path | None  # to write into; None for predictions of others without `out=`

    @property
    def name(self) -> str:
        return self.evaluation.source

    def sections(self) -> list[Section]:
        return evaluation_sections(self.evaluation)

    def write(self) -> Path | None:
        """Into the folder, with the verdicts; gives evaluation.json."""
        if self.folder is None:
            return None
        with explain_storage_errors(self.folder, OUT_ELSEWHERE):
            ensure_dir(self.folder)
        if self.judged:
            replace_file(self.folder / VERDICTS, jsonl_text(line.json() for line in self.judged.lines))
        replace_file(self.folder / "evaluation.md", document(self.name, self.sections()))
        return replace_file(self.folder / "evaluation.json", json_text(self.evaluation.json()))


def evaluate_run(run: Path, overrides: Sequence[str], display: Display) -> Evaluated:
    """Return a finished run's answers, by `profile=` if it is among the overrides.

    Raises:
        ConfigError: `out=` is the folder of another run; or something of the run was trained on its questions.
        DataError: not the folder of a finished run.
    """
    experiment = Experiment.of(overrides)
    answered = open_run(run, experiment.settings.profile)
    known = Metrics.read(run).trained_questions if (run / METRICS).is_file() else None
    if known and not experiment.settings.allow_trained_questions:
        raise ConfigError(refusal(known, len(answered.questions)))
    folder = _own_folder(experiment, run) or run
    return Evaluated(*score_run(experiment, answered, display, folder), folder)


def evaluate_predictions(file: Path, overrides: Sequence[str], display: Display, *, subset: bool) -> Evaluated:
    """Return answers of others to a data set's questions; `subset`: to those of them that the file answers.

    Raises:
        ConfigError: `out=` is the folder of a run.
        DataError: the file is in no known format, or not for these questions.
    """
    experiment = Experiment.of(overrides)
    answered = open_predictions(file, experiment, subset=subset)
    folder = _own_folder(experiment, None)
    return Evaluated(*score_run(experiment, answered, display, folder), folder)


def score_run(
    experiment: Experiment, answered: AnsweredQuestions, display: Display, log: Path | None = None
) -> tuple[Evaluation, Judged | None]:
    """Return what evaluation.json says, and the verdicts if a judge was chosen. log: the folder of the judge's log.

    A judge without a model of its own takes the run's: the command line's, where it names one, goes first.
    """
    rows = answered.rows()
    scores = summarise(rows, seed=experiment.settings.seed)
    evaluation = Evaluation(source=answered.name, scores=scores, notes=_notes(answered))
    judge = experiment.judge
    if judge is None:
        return evaluation, None
    if answered.config is not None:
        experiment = experiment.with_models_of(answered.config)
    watching = nullcontext(display) if log is None else monitor_work(display, "judge", log)
    with Session(experiment) as session:
        judge_engines(session, judge)  # a wrong one leaves the folder as it was, without a log
        with watching as told:
            judged = judge_answers(session, rows, told, answered.reader)
    return evaluation.replace(judge=judged.metrics), judged


def _own_folder(experiment: Experiment, run: Path | None) -> Path | None:
    """Return what `out=` says."""
    if experiment.settings.out is None:
        return None
    out = Path(experiment.settings.out)
    if (out / IDENTITY).exists() and (run is None or not out.samefile(run)):
        raise ConfigError(f"out={out}: the folder of another run; give a folder of its own")
    return out


def _notes(answered: AnsweredQuestions) -> tuple[str, ...]:
    if answered.config is not None:
        return ()
    with_passages = sum(
        answered.predictions[question.id].passages_of(question) is not None for question in answered.questions
    )
    count = pluralize(len(answered.questions), "question")
    counts = f"{count} scored, {len(answered.predictions):,} predictions in the file"
    return (f"{counts}; {with_passages:,} of those scored say which passages they rest on.",)

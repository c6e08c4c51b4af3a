"""A checked session's run: triples and index first, then its questions, its scores, its judge and its reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import METRICS, JudgeMetrics, Metrics
from kgqa.artifacts.run import SETTINGS, Chosen
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.trace import TracedQuestion
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.config.files import format_yaml
from kgqa.config.overrides import format_value
from kgqa.config.yaml_docs import find_sources
from kgqa.errors import UsageError
from kgqa.experiment.prepare.indexes import open_index
from kgqa.experiment.prepare.prepared import prepare
from kgqa.experiment.run.answering import Answers, answer
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.contamination import leaks, refuse_trained, stale
from kgqa.experiment.run.finished import REPORTS, find_finished_run, nothing_is_left, too_many_failed
from kgqa.experiment.run.manifest import manifest
from kgqa.experiment.run.measuring import measure, score_answers
from kgqa.experiment.run.tracking import track
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import run_folder, run_identity
from kgqa.experiment.session.session import Session
from kgqa.protocols import Index
from kgqa.runtime.display import Display
from kgqa.runtime.folder import RunFolder, run_name
from kgqa.runtime.monitor import monitor_work
from kgqa.types import Passage
from kgqa.util.fs import jsonl_text

if TYPE_CHECKING:
    from kgqa.report.html import GatheredQuestions

SHOWN = 3  # errors of questions that failed


@dataclass(frozen=True)
class Executed:
    folder: Path
    metrics: Metrics
    errors: tuple[str, ...]  # of the first questions that failed
    failure: str | None  # in one line, where more of them failed than `max_failure_rate` lets


@dataclass(frozen=True)
class _Page:
    """That a run ends with. What makes it is imported when the first question has ended."""

    profile: str

    @cached_property
    def questions(self) -> GatheredQuestions:
        from kgqa.report.html import GatheredQuestions

        return GatheredQuestions()

    def add_ended(self, traced: TracedQuestion) -> None:
        self.questions.add_ended(traced, self.profile)


def execute(session: Session, display: Display) -> Executed:
    """Answer the experiment's questions into its folder; a folder of the same run goes on where it stopped.

    Raises:
        UsageError: the folder is another run's, or something is missing.
        EngineDied: everything answered so far is in the call cache.
    """
    started, experiment = time.monotonic(), session.experiment
    with ExitStack() as searching:
        index = searching.enter_context(open_index(session, display))
        identity = run_identity(session)
        with (
            closing(RunFolder(run_folder(session), identity)) as folder,
            monitor_work(display, "run", folder.path, identity=run_name(identity)) as display,
        ):
            page = _Page(experiment.profile)
            if experiment.asks_models:
                folder.on_question = page.add_ended
            answers, metrics = _answer_questions(session, index, folder, display, started)
            _write_reports(experiment, folder, metrics, page.questions)
            if experiment.judge:  # an engine that dies now takes no report along
                searching.close()
                session.end_models()
                metrics = metrics.replace(judge=_judge_answers(session, answers, folder, display))
                _write_reports(experiment, folder, metrics, None)
    if line := track(experiment, folder.path, metrics):
        display.line(line)
    errors = tuple(answers.errors[:SHOWN])
    return Executed(folder.path, metrics, errors, _failure(metrics, experiment.settings.max_failure_rate, errors))


def _failure(metrics: Metrics, max_failure_rate: float, errors: Sequence[str]) -> str | None:
    if not too_many_failed(metrics, max_failure_rate):
        return None
    count = f"{metrics.failed} of {metrics.questions} questions failed"
    return f"{count}, above max_failure_rate={max_failure_rate:g}: {errors[0]}"


def execute_unless_finished(session: Session, display: Display) -> Executed:
    """Return the same, checked before; a run that its folder holds already is read from there, and nothing is asked.

    What failed is asked again, and what is missing of its files is written again from the call cache.
    """
    try:
        refuse_trained(session.experiment)
        metrics = find_finished_run(session)
    except UsageError as error:
        check(session, error)
        raise
    for stale_line in stale(session.experiment):
        display.line(stale_line)
    if metrics is None or not nothing_is_left(session, metrics):
        check(session)
        return execute(session, display)
    folder = run_folder(session)
    display.line(f"{folder}: finished with this code, data and settings; kgqa report {folder} writes its report anew")
    if line := track(session.experiment, folder, metrics):
        display.line(line)
    return Executed(folder, metrics, (), None)


def _answer_questions(
    session: Session, index: Index | None, folder: RunFolder, display: Display, started: float
) -> tuple[Answers, Metrics]:
    experiment, prices = session.experiment, session.engines.prices
    questions = experiment.questions
    rerun = (folder.path / METRICS).exists()
    if not rerun:
        _explain(session, index, folder)
    preparation = prepare(session, index, display)
    with session.runner(preparation.prepared) as runner:
        answers = answer(experiment, runner, folder, display)
    folder.finish(answers.predictions[question_id] for question_id in experiment.question_ids)
    if rerun:  # until now they were the earlier run's, which must not seem to have ended under other settings or code
        _explain(session, index, folder)
    metrics = measure(experiment, answers, prices, index.find_titled if index is not None else _nowhere)
    extraction = preparation.extraction.costs(len(questions), prices).paid
    metrics = metrics.replace(
        cost=metrics.cost.replace(extraction_paid=extraction),
        seconds=round(time.monotonic() - started, 1),
        graph=preparation.graph(questions),
        trained_questions=leaks(experiment) or None,
        passage_graph=preparation.passage_graph(questions),
    )
    return answers, metrics


def _explain(session: Session, index: Index | None, folder: RunFolder) -> None:
    """What the answers come from."""
    config = session.experiment.config
    folder.write("config.yaml", format_yaml({key: value for key, value in config.items() if key != "choices"}))
    folder.write_json(MANIFEST, manifest(session, index).json())


def _nowhere(title: str) -> Sequence[Passage]:  # noqa: ARG001
    """Return no passages: without an index the question's own passages were ranked."""
    return ()


def _judge_answers(session: Session, answers: Answers, folder: RunFolder, display: Display) -> JudgeMetrics:
    from kgqa.experiment.run.judging import judge_answers

    judged = judge_answers(session, score_answers(session.experiment, answers), display)
    folder.write(VERDICTS, jsonl_text(line.json() for line in judged.lines))
    return judged.metrics


def _write_reports(
    experiment: Experiment, folder: RunFolder, metrics: Metrics, gathered: GatheredQuestions | None
) -> None:
    """`gathered`: the questions without a judge's verdicts; what a page shows of them beside verdicts, or in a run
    without answers, is read from the trace."""
    # what comes after the last question is imported then
    from kgqa.report.content import list_used_settings
    from kgqa.report.writing import write_page, write_report

    folder.write_json(METRICS, metrics.json())
    settings = list_used_settings(experiment.config, experiment.choices, find_sources(experiment.config), format_value)
    folder.write_json(SETTINGS, as_json(Chosen(choices=experiment.choices, settings=tuple(settings))))
    told = gathered if metrics.scores.em.n and not (folder.path / VERDICTS).is_file() else None
    for form in REPORTS:
        if form == "html" and told is not None:
            write_page(folder.path, told)
        else:
            write_report(folder.path, form)

"""Run one experiment: check, prepare, answer, score, judge, report.

A session is opened once for all of it, the data is read once, and each question is scored once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS, question_ids
from kgqa.artifacts.run import IDENTITY, SETTINGS, Chosen, FinishedRun
from kgqa.artifacts.schema import as_json, read_json
from kgqa.artifacts.trace import TRACE
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.config.files import find_sources, format_yaml
from kgqa.config.overrides import format_value
from kgqa.config.settings import reported_settings
from kgqa.config.user_code import load_run_config
from kgqa.errors import UsageError
from kgqa.experiment.answers import Answers, answer_questions, measure, score_answers
from kgqa.experiment.check import check, find_leaks, refuse_trained, stale_templates
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.manifest import code_hash, manifest
from kgqa.experiment.prepare import prepare
from kgqa.experiment.prepare.indexes import open_index
from kgqa.experiment.session import Session
from kgqa.experiment.tracking import track
from kgqa.protocols import Index
from kgqa.runtime.costs import Spent
from kgqa.runtime.display import Display
from kgqa.runtime.folder import RunFolder, run_name
from kgqa.runtime.monitor import monitor_work
from kgqa.scoring.questions import prediction_lines
from kgqa.util.fs import jsonl_text, sha256

REPORTS = ("md", "html")  # that a run writes


@dataclass(frozen=True)
class Executed:
    folder: Path
    metrics: Metrics
    failure: str | None  # in one line, if more failed than `max_failure_rate` allows


def execute_unless_finished(session: Session, display: Display) -> Executed:
    """Check and execute a run, or return it if its folder has it complete.

    Failed questions are tried again. Missing files are written again, with replies from the call cache.
    """
    experiment = session.experiment
    refuse_trained(experiment)
    metrics = find_finished_run(session)
    for line in stale_templates(experiment):
        display.line(line)
    if metrics is None:
        check(session)
        return execute(session, display)
    folder = experiment.run_folder()
    display.line(f"{folder}: already complete")
    track(experiment, folder, metrics, display)
    return Executed(folder, metrics, None)


def execute(session: Session, display: Display) -> Executed:
    """Run a checked experiment. A run that was killed continues with the replies in the call cache.

    Raises:
        UsageError: the folder belongs to another run, or something is missing.
        EngineDied: all replies so far are in the call cache.
    """
    started, experiment = time.monotonic(), session.experiment
    session.engines.check_keys(session.cache)
    if experiment.judge:
        session.judge_engines(experiment.judge).check_keys(session.cache)
    with ExitStack() as searching:
        index = searching.enter_context(open_index(session, display))
        with (
            closing(RunFolder(experiment.run_folder(), experiment.identity)) as folder,
            monitor_work(display, "run", folder.path, identity=run_name(experiment.identity)) as display,
        ):
            try:
                metrics, answers = _answer_and_score(session, index, folder, display, searching.close, started)
            except BaseException:
                folder.is_worthless = session.spent == Spent()
                raise
    track(experiment, folder.path, metrics, display)
    failure, limit = None, experiment.settings.max_failure_rate
    if metrics.failed > limit * metrics.questions:
        count = f"{metrics.failed} of {metrics.questions} questions failed"
        failure = f"{count}, above max_failure_rate={limit:g}: {answers.errors[0]}"
    return Executed(folder.path, metrics, failure)


def _answer_and_score(
    session: Session,
    index: Index | None,
    folder: RunFolder,
    display: Display,
    close_index: Callable[[], None],
    started: float,
) -> tuple[Metrics, Answers]:
    """Prepare, answer, score and judge, and write all files of the run."""
    experiment = session.experiment
    questions = experiment.questions
    rerun = (folder.path / METRICS).exists()
    if not rerun:
        _write_settings(session, index, folder)
    prepared = prepare(session, index, display)
    with session.runner(prepared.inputs) as runner:
        answers = answer_questions(experiment, runner, folder, display)
    scored = score_answers(experiment, answers)
    metrics = measure(experiment, answers, scored, index)
    folder.finish(prediction_lines(scored, metrics))
    if rerun:  # an earlier run's scores must not be there with these settings
        _write_settings(session, index, folder)
    metrics = metrics.replace(
        cost=metrics.cost.replace(extraction_paid=prepared.extraction.costs(len(questions)).paid),
        seconds=round(time.monotonic() - started, 1),
        graph=prepared.triples.statistics(questions) if prepared.triples else None,
        passage_graph=prepared.graphs.statistics(questions) if prepared.graphs else None,
        trained_questions=find_leaks(experiment) or None,
        predictions=sha256(folder.path / PREDICTIONS),
    )
    _write_reports(experiment, folder, metrics)
    if experiment.judge:
        from kgqa.experiment.judging import judge_answers

        # the models make room for the judge's
        close_index()
        session.end_models()
        judged = judge_answers(session, scored, display)
        folder.write(VERDICTS, jsonl_text(line.json() for line in judged.lines))
        metrics = metrics.replace(judge=judged.metrics)
        _write_reports(experiment, folder, metrics)
    return metrics, answers


def find_finished_run(session: Session) -> Metrics | None:
    """Return the metrics of the run if its folder has it for this code, data and settings, without failed questions.

    The data file is only hashed.
    """
    experiment = session.experiment
    folder = experiment.run_folder()
    try:
        run, identity = FinishedRun.read(folder), read_json(folder / IDENTITY)
        settings, answered = reported_settings(load_run_config(folder)), len(question_ids(folder))
        written = ((TRACE,), (METRICS,), (SETTINGS, *(f"report.{form}" for form in REPORTS)))
        times = [[(folder / name).stat().st_mtime_ns for name in names] for names in written]
    except (KeyError, UsageError, OSError):
        return None  # not started, killed before its end, or damaged
    metrics, wanted = run.metrics, reported_settings(experiment.config)
    if experiment.judge is None:  # an earlier judge's verdicts stay
        settings.pop("judge", None)
        wanted.pop("judge", None)
    finished = (
        identity == json.loads(json.dumps(experiment.identity))
        and run.manifest.code == code_hash(experiment.config)
        and settings == wanted
        and metrics.questions == answered == run.manifest.dataset.questions
        and not metrics.failed
        and not (metrics.graph or {}).get("failed")  # passages without triples are tried again
        and metrics.predictions is not None
        and (experiment.judge is None or _is_judged(session, metrics))
        and max(times[0]) <= times[1][0] <= min(times[2])
    )
    return metrics if finished else None


def _is_judged(session: Session, metrics: Metrics) -> bool:
    """Return whether this judge, with its present models and prompts, has a verdict on every answer."""
    from kgqa.experiment.judging import identify_judge

    judged = metrics.judge
    return judged is not None and not judged.unscored and judged.identity == identify_judge(session)


def _write_settings(session: Session, index: Index | None, folder: RunFolder) -> None:
    config = {key: value for key, value in session.experiment.config.items() if key != "choices"}
    folder.write("config.yaml", format_yaml(config))
    folder.write_json(MANIFEST, manifest(session, index).json())


def _write_reports(experiment: Experiment, folder: RunFolder, metrics: Metrics) -> None:
    # imported after the last question, so that the first call is made early
    from kgqa.report.run_report import list_used_settings, write_report

    folder.write_json(METRICS, metrics.json())
    settings = list_used_settings(experiment.config, experiment.choices, find_sources(experiment.config), format_value)
    folder.write_json(SETTINGS, as_json(Chosen(choices=experiment.choices, settings=tuple(settings))))
    for form in REPORTS:
        write_report(folder.path, form)

"""A checked session's run: triples and index first, then its questions, its scores, its judge and its reports."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from kgqa.experiment.config.composing import sources, yaml_text
from kgqa.experiment.prepare.indexes import opened_index
from kgqa.experiment.prepare.prepared import prepare
from kgqa.experiment.run.answering import Answers, answer
from kgqa.experiment.run.judging import judge_answers
from kgqa.experiment.run.manifest import manifest
from kgqa.experiment.run.measuring import measure, scored_question
from kgqa.experiment.run.tracking import track
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import run_folder, run_identity
from kgqa.experiment.session.session import Session
from kgqa.protocols import Index
from kgqa.report.content import SETTINGS, used_settings
from kgqa.report.writing import write_report
from kgqa.runtime.display import Display
from kgqa.runtime.folder import VERDICTS, RunFolder, prediction_json
from kgqa.storage import jsonl_text
from kgqa.types import Json, Passage


@dataclass(frozen=True)
class Executed:
    folder: Path
    metrics: Mapping[str, Json]
    errors: tuple[str, ...]  # of the first questions that failed


def execute(session: Session, display: Display) -> Executed:
    """Answer the experiment's questions into its folder; a folder of the same run goes on where it stopped.

    Raises:
        UsageError: the folder is another run's, or something is missing.
        EngineDied: everything answered so far is in the call cache.
    """
    started, experiment = time.monotonic(), session.experiment
    with ExitStack() as searching:
        index = searching.enter_context(opened_index(session, display))
        with closing(RunFolder(run_folder(session), run_identity(session))) as folder:
            answers, metrics = _answered(session, index, folder, display, started)
            _write_reports(experiment, folder, metrics)
            if experiment.judge:  # an engine that dies now takes no report along
                searching.close()
                session.end_models()
                metrics["judge"] = _judged(session, answers, folder, display)
                _write_reports(experiment, folder, metrics)
    if line := track(experiment, folder.path, metrics):
        display.line(line)
    return Executed(folder.path, metrics, answers.first_errors())


def _answered(
    session: Session, index: Index | None, folder: RunFolder, display: Display, started: float
) -> tuple[Answers, dict[str, Json]]:
    experiment, prices = session.experiment, session.engines.prices
    questions = experiment.questions
    folder.write("config.yaml", yaml_text({k: v for k, v in experiment.config.items() if k != "choices"}))
    folder.write_json("manifest.json", manifest(session, index))
    preparation = prepare(session, index, display)
    with session.runner(preparation.prepared) as runner:
        answers = answer(experiment, runner, folder, display)
    folder.finish(prediction_json(question, answers.outcomes[question.id]) for question in questions)
    metrics = measure(experiment, answers, prices, index.holds if index is not None else _wherever)
    metrics["cost"]["extraction_paid"] = preparation.extraction.json(len(questions), prices)["paid"]
    metrics["seconds"] = round(time.monotonic() - started, 1)
    return answers, metrics | preparation.figures(questions)


def _wherever(passage: Passage) -> bool:  # noqa: ARG001
    """Without an index, the question's own passages were ranked."""
    return True


def _judged(session: Session, answers: Answers, folder: RunFolder, display: Display) -> dict[str, Json]:
    experiment = session.experiment
    rows = [scored_question(q, answers.outcomes[q.id], experiment.profile) for q in experiment.questions]
    judged = judge_answers(session, rows, {question.id: question.text for question in experiment.questions}, display)
    folder.write(VERDICTS, jsonl_text(judged.lines))
    return judged.summary


def _write_reports(experiment: Experiment, folder: RunFolder, metrics: Mapping[str, Json]) -> None:
    folder.write_json("metrics.json", metrics)
    settings = used_settings(experiment.config, experiment.choices, sources(experiment.config))
    folder.write_json(SETTINGS, {"choices": experiment.choices, "settings": settings})
    for form in ("md", "html"):
        write_report(folder.path, form)

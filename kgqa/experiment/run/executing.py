"""A checked session's run: triples and index first, then its questions, its scores, its judge and its reports."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgqa.experiment.config.composing import sources
from kgqa.experiment.prepare.indexes import open_index
from kgqa.experiment.prepare.passage_graphs import PassageGraphs
from kgqa.experiment.run.manifest import manifest
from kgqa.experiment.run.measuring import measure, titled
from kgqa.experiment.run.tracking import track
from kgqa.report.content import SETTINGS, used_settings
from kgqa.report.progress import stage
from kgqa.report.writing import write_report
from kgqa.runtime.costs import Ledger
from kgqa.runtime.folder import VERDICTS, RunFolder, prediction_json
from kgqa.storage import jsonl_text
from kgqa.types import Answer, Json

if TYPE_CHECKING:
    from kgqa.experiment.session.session import Session

Outcomes = dict[str, Answer | Exception]


@dataclass(frozen=True)
class Executed:
    folder: Path
    metrics: Mapping[str, Json]
    errors: tuple[str, ...]  # of the first questions that failed


def execute(session: Session) -> Executed:
    """Answer the session's questions into its folder; a folder of the same run goes on where it stopped.

    Raises:
        UsageError: the folder is another run's, or something is missing.
        EngineDied: everything answered so far is in the call cache.
    """
    started = time.monotonic()
    questions, method = session.questions, session.method
    session.bench.index = open_index(session)
    folder = RunFolder(session.folder, session.identity)
    try:
        folder.write("config.yaml", yaml_text({k: v for k, v in session.config.items() if k != "choices"}))
        folder.write_json("manifest.json", manifest(session))
        graph = session.graph() if "triples" in method.uses else None
        extraction = Ledger()
        if graph:
            extraction = graph.extract(questions, session.console)
            session.bench.triples = graph.store
        collections = PassageGraphs(session) if "graph" in method.uses else None
        if collections:
            collections.build(questions)
            session.bench.graphs = collections.store
        outcomes, ledger = _answer(session, folder)
        folder.finish(prediction_json(question, outcomes[question.id]) for question in questions)
        metrics = measure(session, outcomes, ledger)
        metrics["cost"]["extraction_paid"] = extraction.json(len(questions), session.bench.engines.prices)["paid"]
        metrics["seconds"] = round(time.monotonic() - started, 1)
        if graph:
            metrics["graph"] = graph.statistics(questions)
        if collections:
            metrics["passage_graph"] = collections.statistics(questions)
        _write_reports(session, folder, metrics)
        if judged := session.judged(outcomes):  # an engine that dies now takes no report along
            metrics["judge"] = judged.summary
            folder.write(VERDICTS, jsonl_text(judged.lines))
            _write_reports(session, folder, metrics)
    finally:
        folder.close()
    track(session, metrics)
    return Executed(session.folder, metrics, _first_errors(outcomes))


def yaml_text(config: Mapping[str, Any]) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))


def _write_reports(session: Session, folder: RunFolder, metrics: Mapping[str, Json]) -> None:
    folder.write_json("metrics.json", metrics)
    settings = used_settings(session.config, session.choices, sources(session.config))
    folder.write_json(SETTINGS, {"choices": session.choices, "settings": settings})
    for form in ("md", "html"):
        write_report(folder.path, form)


def _answer(session: Session, folder: RunFolder) -> tuple[Outcomes, Ledger]:
    settings, questions = session.settings, session.questions
    by_id = {question.id: question for question in questions}
    outcomes: Outcomes = {}
    programs = ((question.id, session.method.answer(question)) for question in questions)
    estimated = session.asks_models and session.bench.engines.estimates_tokens("reader")
    with stage("questions", len(questions), session.console) as shown:
        for each in session.bench.run(programs, shown.record, width=settings.width, seed=settings.seed):
            outcome = each.result
            if estimated and isinstance(outcome, Answer):
                outcome = replace(outcome, context_tokens=None)  # an estimate serves for cutting, not for reporting
            outcome = titled(outcome, by_id[each.key], each.records)
            outcomes[each.key] = outcome
            folder.record(by_id[each.key], outcome, each.records)
            shown.finished(failed=isinstance(outcome, Exception))
    return outcomes, shown.ledger


def _first_errors(outcomes: Outcomes, count: int = 3) -> tuple[str, ...]:
    failed = [(key, error) for key, error in outcomes.items() if isinstance(error, Exception)]
    return tuple(f"{key}: {type(error).__name__}: {error}" for key, error in failed[:count])

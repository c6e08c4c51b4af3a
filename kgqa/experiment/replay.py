"""Replay a finished run from the call cache: which calls it took, and whether they give its answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import PREDICTIONS, Prediction
from kgqa.artifacts.run import SETTINGS, Chosen
from kgqa.artifacts.schema import read
from kgqa.artifacts.trace import TracedQuestion
from kgqa.cache.stored import ReplayCache
from kgqa.config.targets import load_run_config
from kgqa.datasets.passages import distinct_passages
from kgqa.errors import DataError, EngineError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.judging import judge_answers
from kgqa.experiment.prediction_files import read_predictions
from kgqa.experiment.prepare.indexes import open_index
from kgqa.experiment.prepare.passage_graphs import PassageGraphs
from kgqa.experiment.prepare.triples import request_triples
from kgqa.experiment.run import answer_questions
from kgqa.experiment.session import Inputs, Session
from kgqa.kg.exchange import ImportedTriples
from kgqa.kg.extraction import ExtractedTriples
from kgqa.retrieval.search import PoolIndex
from kgqa.runtime.display import QUIET, Display
from kgqa.runtime.folder import trace_question
from kgqa.runtime.scheduler import CallRecord
from kgqa.scoring.questions import score_questions
from kgqa.types import Json, Question
from kgqa.util.places import call_cache


def replay(folder: Path, display: Display) -> ReplayCache:
    """Replay extraction, questions and verdicts of a run's folder, and return the cache. No new call is made.

    Raises DataError if the run is not finished, the cache lacks some of its calls, or it gives other answers.
    """
    metrics, config = Metrics.read(folder), load_run_config(folder)
    choices = dict(read(Chosen, folder / SETTINGS).choices)
    experiment = compose_experiment((), {**config, "choices": choices})
    with (
        closing(ReplayCache(call_cache())) as calls,
        Session(experiment, calls=calls) as session,
        open_index(session, display) if experiment.searches else nullcontext() as index,
    ):
        replayed = replay_questions(session, index)
    missing = calls.missing
    if missing and not metrics.failed:
        raise DataError(
            f"{folder}: {missing:,} of its calls are not in this call cache. Run its command again first"
        )
    answers = {each.question.id: each.prediction.answer for each in replayed}
    predictions = {each.question_id: each.answer for each in read_predictions(folder / PREDICTIONS)}
    if different := [key for key, answer in predictions.items() if answers.get(key) != answer]:
        raise DataError(
            f"{folder}: the call cache has another answer to question {different[0]} than {PREDICTIONS} "
            f"({len(different):,} in all). Run its command again first"
        )
    return calls


def replay_questions(session: Session, index: PoolIndex | None) -> list[TracedQuestion]:
    """Run the method, and the judge if there is one, with a session whose call cache is a `ReplayCache`.

    Returns the questions in the order of the data file.
    """
    experiment, traced = session.experiment, dict[str, TracedQuestion]()

    def record(question: Question, prediction: Prediction, records: Iterable[CallRecord]) -> None:
        traced[question.id] = trace_question(question, prediction, records)

    graphs = (
        PassageGraphs(experiment, session.linker) if "graph" in experiment.method.uses else None
    )
    # building one can send passages to a server
    if graphs and graphs.missing(experiment.data.questions):
        raise DataError(
            f"{graphs.store.folder}: graphs of these questions are missing. Run its command again first"
        )
    triples: ExtractedTriples | ImportedTriples | None = None
    if "triples" in experiment.method.uses:
        triples = experiment.triple_file
        if triples is None:
            triples, _ = request_triples(
                session, lambda: distinct_passages(experiment.data.questions), QUIET
            )
    with session.runner(Inputs(index, triples, graphs, session.search_program)) as runner:
        answers = answer_questions(runner, record, QUIET)
    if experiment.judge:
        judge_answers(
            session,
            score_questions(experiment.data.questions, answers.predictions, experiment.profile),
            QUIET,
        )
    return [traced[key] for key in experiment.data.ids]


@dataclass(frozen=True, eq=False)
class Recorded:
    """An engine or a ranker of which only the identity is known. The call cache has its replies."""

    recorded_identity: Mapping[str, Json]

    streaming: ClassVar[bool] = False
    estimates_tokens: ClassVar[bool] = False
    batch_size: ClassVar[int] = 1_000

    def answer(self, _: object) -> Any:
        """Fail: a call that gets here is not in the recording."""
        raise EngineError("not in the recording")

    count_tokens = score = answer

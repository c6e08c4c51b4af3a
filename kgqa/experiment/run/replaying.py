"""A finished run again, from the call cache alone: which calls it takes, and whether they give its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import PREDICTIONS, Prediction
from kgqa.artifacts.run import SETTINGS, Chosen
from kgqa.artifacts.schema import read
from kgqa.artifacts.trace import TracedQuestion
from kgqa.cache.in_flight import find_reply
from kgqa.cache.key import cache_key
from kgqa.cache.requests import Done, Request, ServiceReply
from kgqa.cache.store import CallCache
from kgqa.calls import Call, CountTokens, Neighbours, Program, Triples
from kgqa.config.files import load_yaml
from kgqa.datasets.predictions import read_predictions
from kgqa.errors import DataError, EngineError
from kgqa.experiment.prepare.given_triples import GivenTriples, triples_of
from kgqa.experiment.prepare.indexes import open_index
from kgqa.experiment.prepare.passage_graphs import PassageGraphs
from kgqa.experiment.prepare.triples import TripleBuilder, distinct_passages
from kgqa.experiment.run.answering import with_evidence_titles
from kgqa.experiment.run.judge_roles import judge_engines
from kgqa.experiment.session.engines import Engines
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import answerers, counted
from kgqa.experiment.session.session import Session
from kgqa.judge.judges import JudgedAnswer
from kgqa.kg.parsing import Extraction, parse_triples
from kgqa.protocols import Index
from kgqa.runtime.costs import model_seconds
from kgqa.runtime.display import Display
from kgqa.runtime.folder import trace_question
from kgqa.runtime.scheduler import WIDTH, Finished, Scheduler
from kgqa.runtime.services import Service
from kgqa.types import Answer, Json, Question, Triple
from kgqa.util.fs import call_cache


@dataclass(frozen=True)
class Replayed:
    """`keys`: of the calls it took. `missing`: calls that are not in the cache: those that failed."""

    keys: frozenset[str]
    missing: int


def replay(folder: Path, display: Display) -> Replayed:
    """Return extraction, questions and verdicts of a run's folder; nothing is asked, or written but for
    a damaged key that the cache recognises and mends, with a line.

    Raises:
        DataError: not a run that ended; the cache has not all of its calls; or it gives other answers.
    """
    metrics, config = Metrics.read(folder), load_yaml(folder / "config.yaml")
    choices = dict(read(Chosen, folder / SETTINGS).choices)
    experiment = Experiment.of((), {**config, "choices": choices})
    with (
        closing(CallCache(call_cache())) as calls,
        Session(experiment, calls=calls) as session,
        open_index(session, display) as index,
    ):
        replaying = Replaying(session, index)
        answers = replaying.answers()
        keys, missing = replaying.keys, replaying.missing
    if missing and not metrics.failed:
        raise DataError(f"{folder}: {missing:,} of its calls are not in this call cache; run its command again first")
    kept = {prediction.question_id: prediction.answer for prediction in read_predictions(folder / PREDICTIONS)}
    differing = [key for key, answer in kept.items() if answers.get(key) != answer]
    if differing:
        raise DataError(
            f"{folder}: the call cache gives another answer to question {differing[0]} than {PREDICTIONS} "
            f"({len(differing):,} in all); run its command again first"
        )
    return Replayed(frozenset(keys), missing)


class Replaying:
    """A session's questions from its call cache alone.

    `keys`: of the calls they took so far. `missing`: calls that are not in the cache. Seconds are those that the calls
    took when they were made: of the questions, and of the extraction before them.
    """

    def __init__(self, session: Session, index: Index | None) -> None:
        self.keys: set[str] = set()
        self.missing = 0
        self.seconds = self.triple_seconds = 0.0
        self._session, self._index = session, index
        self._triples: dict[str, tuple[Triple, ...]] = {}

    def questions(self) -> list[TracedQuestion]:
        """Return each with its answer, or why it failed, and the calls that led there; triples are extracted first."""
        session, experiment = self._session, self._session.experiment
        if "triples" in experiment.method.uses:
            self._extract(triples_of(session))
        programs = ((question.id, experiment.method.answer(question)) for question in experiment.questions)
        ended = self._run(programs, session.engines)
        self.seconds = _seconds(ended)
        return [_trace(question, ended[question.id]) for question in experiment.questions]

    def answers(self) -> dict[str, str | None]:
        """Return the answers by question, None where it failed. Replays verdicts, too."""
        session, experiment = self._session, self._session.experiment
        predictions = (traced.prediction for traced in self.questions())
        answers = {each.question_id: each.answer for each in predictions if each.answer is not None}
        if judge := experiment.judge:
            questions = [question for question in experiment.questions if question.id in answers]
            verdicts = (
                (question.id, judge.judge(JudgedAnswer(question.text, question.answers, answers[question.id])))
                for question in questions
            )
            self._run(verdicts, judge_engines(session, judge))
        return {question.id: answers.get(question.id) for question in experiment.questions}

    def _extract(self, builder: TripleBuilder | GivenTriples) -> None:
        passages = {passage.id: passage for passage in distinct_passages(self._session.experiment.questions)}
        if isinstance(builder, GivenTriples):
            self._triples |= {key: builder.store.triples(passage) for key, passage in passages.items()}
            return
        programs = ((key, builder.extractor.extract(passage)) for key, passage in passages.items())
        extracted = self._run(programs, self._session.engines)
        self.triple_seconds = _seconds(extracted)
        for key, ended in extracted.items():
            text = ended.result.completion if isinstance(ended.result, Extraction) else ""
            self._triples[key] = parse_triples(text, passages[key]).triples

    def _run(self, programs: Iterable[tuple[str, Program[Any]]], engines: Engines) -> Mapping[str, Finished[Any]]:
        """Return how each program ends, by its key."""
        session, settings, done = self._session, self._session.experiment.settings, Done()

        identify = answerers(session, engines, self._index)
        service = _Kept(done, session.cache, identify, partial(self._find_replies, engines))
        scheduler = Scheduler(
            lambda _: service, done, width=settings.max_parallel_questions or WIDTH, seed=settings.seed
        )
        ended = {each.key: each for each in scheduler.run(programs)}
        self.keys |= service.keys
        self.missing += service.missing
        return ended

    def _find_replies(self, engines: Engines, call: Call[Any]) -> object:
        """Return replies of what is looked up or computed, not asked; None: no such call."""
        if isinstance(call, Triples):
            return self._triples.get(call.passage.id, ())
        if isinstance(call, CountTokens):
            return counted(engines, call)
        return PassageGraphs(self._session).store.neighbours(call)  # type: ignore[arg-type]


def _seconds(ended: Mapping[str, Finished[Any]]) -> float:
    return sum(model_seconds(each.records) for each in ended.values())


def _trace(question: Question, ended: Finished[Any]) -> TracedQuestion:
    outcome = ended.result
    if isinstance(outcome, Answer):
        outcome = with_evidence_titles(outcome, question, ended.records)
    return trace_question(question, Prediction.of(question, outcome), ended.records)


class _Kept(Service):
    """Answers from the cache, and with an error where the cache has no reply."""

    def __init__(
        self, done: Done, cache: CallCache, identify: Callable[[Call[Any]], Json], found: Callable[[Call[Any]], object]
    ) -> None:
        self._done, self._cache, self._identify, self._find_replies = done, cache, identify, found
        self.keys: set[str] = set()
        self.missing = 0

    def submit(self, request: Request) -> None:
        call = request.call
        found = self._find_replies(call) if isinstance(call, Triples | Neighbours | CountTokens) else None
        if found is not None:
            self._done.put(ServiceReply(request.ticket, found, cached=False))
            return
        key = cache_key(self._identify(call), call)
        reply: object = find_reply(self._cache, key, call)
        if reply is None:
            self.missing += 1
            reply = EngineError(f"{type(call).__name__} {key[:12]}… is not in the call cache")
        else:
            self.keys.add(key)
        self._done.put(ServiceReply(request.ticket, reply, cached=True))

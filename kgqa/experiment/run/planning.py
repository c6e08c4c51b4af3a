"""Plan the calls of a run without making them: `dry_run=true`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kgqa.cache.requests import Done, Request
from kgqa.calls import Choose, CountTokens, Generate, ModelCall, Neighbours, Program, Triples
from kgqa.engines.weights import Prices
from kgqa.errors import DataError
from kgqa.experiment.prepare.given_triples import GivenTriples, triples_of
from kgqa.experiment.prepare.indexes import index_folder
from kgqa.experiment.prepare.triples import TripleBuilder, distinct_passages
from kgqa.experiment.run.dry_run_replies import Imagined, imagine_passages, imagine_triples, others
from kgqa.experiment.run.judge_roles import judge_engines
from kgqa.experiment.session.engines import Engines
from kgqa.experiment.session.identity import answerers, counted
from kgqa.experiment.session.session import Session
from kgqa.judge.judges import JudgedAnswer
from kgqa.kg.parsing import Extraction
from kgqa.protocols import Index
from kgqa.runtime.scheduler import WIDTH, CallRecord, Scheduler
from kgqa.types import Answer, Passage, Triple


@dataclass
class Planned:
    """Model calls of one role; what is in the cache, or asked for the same by an earlier cell, is not new."""

    engine: str  # as in "smollm2_135m@llamacpp"
    prices: Prices | None
    render: Callable[[ModelCall], str]
    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    new_calls: int = 0
    new_prompt_tokens: int = 0
    new_output_tokens: int = 0
    first: dict[str, ModelCall] = field(default_factory=dict)  # by template

    @property
    def usd(self) -> float | None:
        """Return the usd at most, for the new calls; None where prices are not known."""
        return self.prices.dollars(self.new_prompt_tokens, 0, self.new_output_tokens) if self.prices else None


@dataclass
class Shared:
    """The calls of earlier cells of a sweep, so that each is counted once."""

    calls: set[str] = field(default_factory=set)  # cache keys
    passages: set[tuple[str, str]] = field(default_factory=set)  # triple store and passage


Plan = dict[str, Planned]  # by role


def plan_calls(session: Session, shared: Shared) -> Plan:
    """Return what a run would ask, role by role: triples first, then questions, then the judge.

    The most it can ask, except where a text could ask for ever more (KnowTrace, GE-Reasoning, ERA-CoT): there what
    the template's block `imagined` says.
    """
    experiment = session.experiment
    with _index(session) as index:
        triples = triples_of(session) if "triples" in experiment.method.uses else None
        planner = Planner(session, shared, index, triples)
        if isinstance(planner.triples, TripleBuilder):
            planner.imagine(_extractions(planner.triples, session, shared), session.engines)
            planner.imagining = set()
        programs = ((question.id, experiment.method.answer(question)) for question in experiment.questions)
        answers = planner.imagine(programs, session.engines)
    if judge := experiment.judge:
        guessed = planner.imagining
        judged = [
            (number in guessed, JudgedAnswer(question.text, question.answers, answer.text))
            for number, question in enumerate(experiment.questions)
            if isinstance(answer := answers[question.id], Answer)
        ]
        planner.imagining = {number for number, (guess, _) in enumerate(judged) if guess}
        verdicts = ((str(number), judge.judge(answer)) for number, (_, answer) in enumerate(judged))
        planner.imagine(verdicts, judge_engines(session, judge))
    return planner.plan


@contextmanager
def _index(session: Session) -> Iterator[Index | None]:
    """Yield the index that the run would search, if it is there already."""
    if "search" in session.experiment.method.uses and (folder := index_folder(session)).finished():
        with closing(folder.open(session.experiment.settings.seed)) as index:
            yield index
    else:
        yield None


def _extractions(triples: TripleBuilder, session: Session, shared: Shared) -> Iterator[tuple[str, Program[Extraction]]]:
    """Return the extractions of the passages that no earlier cell will have extracted."""
    store = triples.store
    missing = store.missing(distinct_passages(session.experiment.questions))
    new = [passage for passage in missing if (str(store.folder), passage.id) not in shared.passages]
    shared.passages |= {(str(store.folder), passage.id) for passage in new}
    return ((passage.id, triples.extractor.extract(passage)) for passage in new)


class Planner:
    """Counts what programs would ask, which are run with replies made up."""

    def __init__(
        self,
        session: Session,
        shared: Shared,
        index: Index | None = None,
        triples: TripleBuilder | GivenTriples | None = None,
    ) -> None:
        self.plan: Plan = {}
        self.imagining: set[int] = set()  # of the last programs, those that rest on an imagined reply
        self.triples = triples
        self._session, self._index, self._shared = session, index, shared

    def imagine(self, programs: Iterable[tuple[str, Program[Any]]], engines: Engines) -> dict[str, object]:
        """Count what these programs ask the engines; gives how each ends, by its key."""
        session, settings, done = self._session, self._session.experiment.settings, Done()

        identify = answerers(session, engines, self._index)

        def counted(record: CallRecord) -> None:
            if isinstance(record.call, Generate | Choose):
                self._count(record.call, record, engines)

        service = Imagined(done, session.cache, identify, partial(self._look_up, engines), self._shared.calls)
        scheduler = Scheduler(
            lambda _: service, done, width=settings.max_parallel_questions or WIDTH, seed=settings.seed
        )
        scheduler.on_record = counted
        service.imagining = self.imagining
        return {ended.key: ended.result for ended in scheduler.run(programs)}

    def _look_up(self, engines: Engines, request: Request) -> object:
        call = request.call
        if isinstance(call, CountTokens):
            return counted(engines, call)
        if isinstance(call, Triples):
            return self._triples(call.passage)
        if isinstance(call, Neighbours):
            return others(call)
        if self._index is not None:
            return self._index.search([call])[0]
        return imagine_passages(call, self._session.experiment.questions[request.order[0]])

    def _triples(self, passage: Passage) -> tuple[Triple, ...]:
        assert self.triples is not None
        try:
            return self.triples.store.triples(passage)
        except DataError:
            return imagine_triples(passage)

    def _count(self, call: ModelCall, record: CallRecord, engines: Engines) -> None:
        if call.role not in self.plan:
            render = engines(call.role).render
            self.plan[call.role] = Planned(engines.label(call.role), engines.prices(call.role), render)
        role, usage = self.plan[call.role], record.reply.usage
        thinks = isinstance(call, Generate) and not record.cached
        output = usage.output_tokens + (engines.reasoning_tokens_limit(call.role) if thinks else 0)
        role.calls += 1
        role.prompt_tokens += usage.prompt_tokens
        role.output_tokens += output
        if not record.cached:
            role.new_calls += 1
            role.new_prompt_tokens += usage.prompt_tokens
            role.new_output_tokens += output
        role.first.setdefault(call.prompt.name, call)

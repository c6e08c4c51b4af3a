"""Plan a run without model calls (`dry_run=true`): run its programs with simulated replies, and count the calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import count
from math import log
from typing import Any, cast

from kgqa.cache.in_flight import Done, Request, ServiceReply, find_reply
from kgqa.cache.key import cache_key
from kgqa.cache.store import Origin
from kgqa.calls import Call, Choose, CountTokens, Facts, Generate, ModelCall, Neighbours, Program, Rank, Search, Triples
from kgqa.engines.thinking import Thinking
from kgqa.engines.weights import Prices
from kgqa.errors import DataError
from kgqa.experiment.engines import Engines
from kgqa.experiment.prepare.indexes import index_folder
from kgqa.experiment.prepare.triples import ImportedSource, TripleBuilder, distinct_passages, triples_of
from kgqa.experiment.session import Session
from kgqa.judge.judges import JudgedAnswer
from kgqa.prompting import render_dry_run_reply
from kgqa.protocols import ExpandingRetriever, StreamingEngine
from kgqa.retrieval.search import PoolIndex
from kgqa.runtime.costs import Tally
from kgqa.runtime.scheduler import WIDTH, CallRecord, Scheduler, with_search_program
from kgqa.runtime.services import Service
from kgqa.types import Answer, Choice, Completion, Passage, Triple, Usage

PASSAGE = "text like this " * 30  # 450 characters, the mean of MuSiQue's and 2Wiki's paragraphs
CHARACTERS_PER_TOKEN = 4  # of English, roughly
TRIPLES_PER_PASSAGE = 8  # TRACE, Table 5: 79.04 triples in 10 passages


@dataclass
class Planned:
    """Model calls of one role. Those in the cache, or of an earlier cell of the sweep, are not new."""

    engine: str  # as in "smollm2_135m@llamacpp"
    origin: Origin  # of its replies in the call cache
    at_once: int | None  # calls next to each other; None: they are made in batches
    prices: Prices | None
    render: Callable[[ModelCall], str]
    every: Tally = field(default_factory=Tally)
    new: Tally = field(default_factory=Tally)
    new_programs: set[tuple[int, int]] = field(default_factory=set)  # questions or passages with new calls
    first: dict[str, ModelCall] = field(default_factory=dict)  # by template


Plan = dict[str, Planned]  # by role
# cache keys of calls, folders of indexes, and stores with passages, of earlier cells of a sweep: each is new once
Shared = set[str]


def plan_calls(session: Session, shared: Shared, first: int | None = None) -> Plan:
    """Count the calls of a run by role: triples first, then questions, then the judge.

    first: plan only the first N questions.

    The counts are maxima, except where a text can lead to ever more calls (KnowTrace, GE-Reasoning, ERA-CoT). There
    the block `imagined` of the template decides.
    """
    experiment = session.experiment
    questions = experiment.questions[:first]
    with ExitStack() as opened:
        index = None
        if "search" in experiment.method.uses and (folder := index_folder(session)).finished():
            index = opened.enter_context(closing(folder.open()))
        triples = triples_of(session) if "triples" in experiment.method.uses else None
        planner = Planner(session, shared, index, triples)
        if isinstance(triples, TripleBuilder):
            planner.imagine(_extractions(triples, distinct_passages(questions), shared), session.engines)
        if "search" in experiment.method.uses and index is None:
            planner.imagine(_index_programs(session, shared), session.engines, all_calls=True)
        programs = ((question.id, experiment.method.answer(question)) for question in questions)
        answers = planner.imagine(programs, session.engines)
    if judge := experiment.judge:
        judged = (
            (question.id, judge.judge(JudgedAnswer(question.text, question.answers, answer.text)))
            for question in questions
            if isinstance(answer := answers[question.id], Answer)
        )
        planner.imagine(judged, session.judge_engines(judge), certain=False)
    return planner.plan


def plan_extraction(session: Session, passages: Iterable[Passage]) -> Plan:
    """Count the calls that extract the passages without triples."""
    planner = Planner(session, set())
    planner.imagine(_extractions(TripleBuilder(session), passages, set()), session.engines)
    return planner.plan


def plan_index(session: Session) -> Plan:
    """Count the calls that build the index, none if it is built."""
    planner = Planner(session, set())
    if not index_folder(session).finished():
        planner.imagine(_index_programs(session, set()), session.engines, all_calls=True)
    return planner.plan


def _index_programs(session: Session, shared: Shared) -> Iterator[tuple[str, Program[Sequence[Passage]]]]:
    """Yield the program that calls a model to build the index, if there is one and no earlier cell builds the index."""
    if isinstance(session.retriever, ExpandingRetriever) and session.retriever.writer:
        place = str(index_folder(session).path)
        if place not in shared:
            shared.add(place)
            yield "index", session.retriever.expand(list(session.experiment.corpus.passages()), None, lambda _: None)


def _extractions(
    triples: TripleBuilder, passages: Iterable[Passage], shared: Shared
) -> Iterator[tuple[str, Program[Any]]]:
    """Yield the extractions of the passages without triples that no earlier cell extracts."""
    for passage in triples.store.missing(passages):
        if (place := f"{triples.place} {passage.id}") not in shared:
            shared.add(place)
            yield passage.id, triples.extractor.extract(passage)


class Planner(Service):
    """Answers every call at once: from the call cache, else with a reply that leads to the most calls.

    Choices are even over all options except the first, which stops. Texts conclude nothing, and the template can make
    them ask for more (block `imagined`). A passage without triples gets eight. Without an index, a search finds the
    question's own passages, then placeholders. All passages of a pool are neighbours.
    """

    def __init__(
        self,
        session: Session,
        shared: Shared,
        index: PoolIndex | None = None,
        triples: TripleBuilder | ImportedSource | None = None,
    ) -> None:
        self.plan: Plan = {}
        self._session, self._shared, self._index, self._triples = session, shared, index, triples
        self._engines = session.engines
        self._done: Done = Done()
        self._certain: bool = True
        self._all_calls: bool = False
        self._imagined: set[int] = set()  # programs with an imagined reply
        self._phase = 0
        self._new: dict[str, set[tuple[int, int]]] = defaultdict(set)  # phase and program of new model calls, by role
        self._numbers = count(1)

    def imagine(
        self,
        programs: Iterable[tuple[str, Program[Any]]],
        engines: Engines,
        *,
        certain: bool = True,
        all_calls: bool = False,
    ) -> dict[str, object]:
        """Run programs and count their calls. Return each one's result by its key.

        certain: whether the programs themselves do not come from imagined replies.
        all_calls: whether they make all their calls, whatever the replies are.
        """
        self._engines, self._certain, self._imagined = engines, certain, set()
        self._all_calls = all_calls
        self._phase += 1
        settings = self._session.experiment.settings
        width = settings.max_parallel_questions or WIDTH
        scheduler = Scheduler(lambda _: self, self._done, width=width, seed=settings.seed)
        scheduler.on_record = self._count
        with_searches = with_search_program(programs, self._session.search_program)
        return {ended.key: ended.result for ended in scheduler.run(with_searches)}

    def submit(self, request: Request) -> None:
        reply, cached = self._reply(request)
        self._done.put(ServiceReply(request.ticket, reply, cached=cached))

    def _reply(self, request: Request) -> tuple[object, bool]:
        """Return a reply, and whether it is not new: in the cache, or certain to be a call of an earlier cell."""
        call, program = request.call, request.order[0]
        if isinstance(call, Triples):
            return self._find_triples(call.passage), False
        if isinstance(call, Neighbours):
            pool = call.pool or (Passage.of("Neighbour", PASSAGE),)
            return tuple(passage for passage in pool if passage.id != call.passage.id), False
        if isinstance(call, CountTokens) and (engine := self._engines(call.role)).estimates_tokens:
            return engine.count_tokens(call.text), False
        key = cache_key(call_identity(self._session, self._engines, self._index, call), call)
        if (reply := find_reply(self._session.cache, key, call)) is not None:
            return reply, True
        certain = self._certain and program not in self._imagined
        again = certain and key in self._shared
        if certain:
            self._shared.add(key)
        self._imagined.add(program)
        if isinstance(call, Generate | Choose) and not again:
            self._new[call.role].add((self._phase, request.ticket if self._all_calls else program))
        if isinstance(call, Facts) and self._index is not None:
            return self._index.find_facts([call])[0], again
        if isinstance(call, Search) and self._index is not None:
            return self._index.search([call])[0], again
        return self._imagine(call, program), again

    def _imagine(self, call: Call[Any], program: int) -> object:
        number = next(self._numbers)
        match call:
            case Generate():
                reasoning = Thinking.of(self._engines.model(call.role).thinking).budget
                usage = Usage(prompt_tokens=_tokens(call), output_tokens=call.max_tokens + reasoning)
                return Completion(render_dry_run_reply(call.prompt, number), usage=usage)
            case Choose():
                others = len(call.options) - 1 or 1
                never_the_first = (-99.0, *(-log(others),) * (len(call.options) - 1))
                return Choice(never_the_first, usage=Usage(prompt_tokens=_tokens(call), output_tokens=1))
            case CountTokens():
                return len(call.text) // CHARACTERS_PER_TOKEN
            case Search(pool=None):
                placeholders = (Passage.of(f"Passage {number}", PASSAGE) for number in range(call.k))
                return (*self._session.experiment.questions[program].passages, *placeholders)[: call.k]
            case Search():
                return call.pool[: call.k] if call.pool else ()
            case Facts():
                return tuple((f"entity {number}", "is", f"unknown {place}") for place in range(call.k))
            case Rank():
                return tuple(-float(position) for position in range(len(call.texts)))
        raise TypeError(f"no simulated reply for {type(call).__name__}")

    def _find_triples(self, passage: Passage) -> tuple[Triple, ...]:
        assert self._triples is not None
        try:
            return self._triples.store.triples(passage)
        except DataError:
            numbers = range(TRIPLES_PER_PASSAGE)
            return tuple(Triple(passage.title, f"relation {n}", passage.text[:40], passage.id) for n in numbers)

    def _count(self, record: CallRecord) -> None:
        call, engines = record.call, self._engines
        if not isinstance(call, Generate | Choose):
            return
        if call.role not in self.plan:
            engine = engines(call.role)
            self.plan[call.role] = Planned(
                engine=engines.label(call.role),
                origin=Origin.of(engine.identity()),
                at_once=cast(StreamingEngine, engine).max_concurrency if engine.streaming else None,
                prices=engines.prices(call.role),
                render=engine.render,
                new_programs=self._new[call.role],
            )
        role = self.plan[call.role]
        role.every.add(record)
        if not record.cached:
            role.new.add(record)
        role.first.setdefault(call.prompt.name, call)


def call_identity(session: Session, engines: Engines, index: PoolIndex | None, call: Call[Any]) -> Mapping[str, Any]:
    """Return the identity of what answers a call, as in the key of its reply. Nothing is loaded."""
    if isinstance(call, Generate | Choose | CountTokens):
        return engines(call.role).identity()
    if isinstance(call, Rank):
        return session.ranker(call.scorer).identity()
    return index.identity() if index is not None else {}


def _tokens(call: ModelCall) -> int:
    written = sum(len(message.content) for message in call.prompt.messages) + len(call.prompt.prefill)
    written += len(call.tools or "") if isinstance(call, Generate) else 0
    return written // CHARACTERS_PER_TOKEN

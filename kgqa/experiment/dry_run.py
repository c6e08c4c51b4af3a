"""Plan a run without model calls (`dry_run=true`): run its programs with simulated replies, and count the calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from math import log
from typing import Any, TypeVar, cast

from kgqa.cache.in_flight import Done, Request, ServiceReply, find_reply
from kgqa.cache.key import cache_key
from kgqa.cache.store import Origin
from kgqa.calls import (
    Call,
    Choose,
    CountTokens,
    Facts,
    Generate,
    Locate,
    ModelCall,
    Neighbours,
    Program,
    Rank,
    RunAgent,
    Search,
    Triples,
)
from kgqa.datasets.passages import distinct_passages
from kgqa.engines.thinking import Thinking
from kgqa.engines.weights import Prices
from kgqa.errors import ConfigError, NoMessage, UnknownValue
from kgqa.experiment.engines import Engines
from kgqa.experiment.prepare.indexes import index_folder
from kgqa.experiment.session import Session
from kgqa.identity.component import identity_of
from kgqa.identity.program_code import list_templates
from kgqa.judge.judges import JudgedAnswer
from kgqa.kg.extraction import ROLE, Extraction, parse_triples
from kgqa.prompting import compile_template, render_dry_run_reply
from kgqa.protocols import ExpandingRetriever, StreamingEngine
from kgqa.retrieval.search import PoolIndex
from kgqa.runtime.costs import Tally
from kgqa.runtime.scheduler import WIDTH, CallRecord, Scheduler, with_search_program
from kgqa.runtime.services import Service
from kgqa.types import Answer, Choice, Completion, Passage, Triple, Usage
from kgqa.util.digests import digest
from kgqa.util.places import own_prompt_folders

T = TypeVar("T")
# 450 characters, the mean of MuSiQue's and 2Wiki's paragraphs
PASSAGE = "text like this " * 30
CHARACTERS_PER_TOKEN = 4  # of English, roughly
# TRACE, Table 5: 79.04 triples in 10 passages
TRIPLES_PER_PASSAGE = 8


@dataclass
class PlannedCalls:
    """Model calls of one role. Those in the cache, or of an earlier cell of the sweep, are not new."""

    engine: str  # as in "smollm2_135m@llamacpp"
    # of its replies in the call cache
    origin: Origin
    # calls next to each other; None: they are made in batches
    at_once: int | None
    prices: Prices | None
    render: Callable[[ModelCall], str]
    every: Tally = field(default_factory=Tally)
    new: Tally = field(default_factory=Tally)
    # questions or passages with new calls
    new_programs: set[tuple[int, int]] = field(default_factory=set)
    first: dict[str, ModelCall] = field(default_factory=dict)  # by template


@dataclass
class PlannedRankings:
    """The work of one ranker. An encoder computes the vector of each distinct text once."""

    rankings: int = 0
    texts: set[int] = field(default_factory=set)


class CallPlan(dict[str, PlannedCalls]):
    """The model calls by role, and the work of rankers by their group."""

    def __init__(self) -> None:
        super().__init__()
        self.rankers: dict[str, PlannedRankings] = {}


# cache keys of calls, folders of indexes, and passages with their extractor, of earlier cells: each is new once
Shared = set[str]


def plan_calls(session: Session, shared: Shared, first: int | None = None) -> CallPlan:
    """Count the calls of a run by role: triples first, then questions, then the judge.

    first: plan only the first N questions.

    The counts are maxima, except where a text can lead to ever more calls (KnowTrace, GE-Reasoning, ERA-CoT). There
    the block `imagined` of the template decides.
    """
    experiment, planner = session.experiment, Planner(session, shared)
    questions, uses = experiment.data.questions[:first], experiment.method.uses
    with ExitStack() as opened:
        if "triples" in uses and experiment.triple_file is None:
            planner.imagine_extraction(distinct_passages(questions))
        if "search" in uses and not planner.imagine_index():
            planner.index = opened.enter_context(closing(index_folder(session).open()))
        programs = ((question.id, experiment.method.answer(question)) for question in questions)
        answers = planner.imagine(programs, session.engines)
    if judge := experiment.judge:
        judged = (
            (
                question.id,
                judge.judge(
                    JudgedAnswer(question.text, question.answers, answer.text, question.passages)
                ),
            )
            for question in questions
            if isinstance(answer := answers[question.id], Answer)
        )
        planner.imagine(judged, session.judge_engines, certain=False)
    return planner.plan


def check_templates(session: Session) -> None:
    """Answer the first question and judge the answer, with simulated replies, if the user has a template of the run.

    Raises PromptError: a template has wrong syntax or no block, or uses a value that the method or the judge does not
    pass.
    """
    experiment, uses_triples = session.experiment, "triples" in session.experiment.method.uses
    extracts = uses_triples and experiment.triple_file is None
    judge = experiment.judge
    programs = [experiment.method, *([experiment.extractor] if extracts else [])]
    programs += [judge] if judge else []
    own = [
        name
        for name in sorted({name for program in programs for name in list_templates(program)})
        if any((folder / f"{name}.j2").is_file() for folder in own_prompt_folders())
    ]
    for name in own:
        compile_template(name)
    if not own:
        return
    planner, questions = Planner(session, set()), experiment.data.questions[:1]
    if extracts:
        planner.imagine_extraction(islice(distinct_passages(questions), 1))
    answers = ((question.id, experiment.method.answer(question)) for question in questions)
    # the run reports other errors of the method with their lines
    with suppress(ConfigError):
        planner.imagine(answers, session.engines)
    if judge:
        judged = (
            (each.id, judge.judge(JudgedAnswer(each.text, each.answers, "unknown", each.passages)))
            for each in questions
        )
        with suppress(ConfigError):
            planner.imagine(judged, session.judge_engines, certain=False)
    for error in planner.errors:
        # other errors can be of the simulated replies
        if isinstance(error, UnknownValue | NoMessage):
            raise error


def plan_extraction(session: Session, passages: Iterable[Passage]) -> CallPlan:
    """Count the calls that extract the passages."""
    planner = Planner(session, set())
    planner.imagine_extraction(passages)
    return planner.plan


def plan_index(session: Session) -> CallPlan:
    """Count the calls that build the index, none if it is built."""
    planner = Planner(session, set())
    planner.imagine_index()
    return planner.plan


class Planner(Service):
    """Answers every call at once: from the call cache, else with a reply that leads to the most calls.

    Choices are even over all options except the first, which stops. Texts conclude nothing, and the template can make
    them ask for more (block `imagined`). A passage without triples gets eight. Without an index, a search finds the
    question's own passages, then placeholders. All passages of a pool are neighbours.
    """

    index: PoolIndex | None = None

    def __init__(self, session: Session, shared: Shared) -> None:
        self.plan = CallPlan()
        self._session, self._shared, self._engines = session, shared, session.engines
        self._done: Done = Done()
        self._triples: dict[str, tuple[Triple, ...]] = {}  # by passage
        self.errors: list[Exception] = []  # of programs
        self._certain = self._all_calls = self._again = False
        self._imagined: set[int] = set()  # programs with an imagined reply
        self._phase = 0
        self._numbers = count(1)

    def imagine_extraction(self, passages: Iterable[Passage]) -> None:
        """Count the calls that extract passages. Those that an earlier cell extracts are not new."""
        experiment, engines = self._session.experiment, self._session.engines
        ranker = experiment.config.get("demonstrations_ranker")
        made_by = digest([experiment.config["kg"], ranker, identity_of(engines(ROLE))], 12)
        every = {passage.id: passage for passage in passages}
        first = {
            passage.id
            for passage in self._claim(every.values(), lambda passage: f"{made_by} {passage.id}")
        }
        for again in (False, True):
            some = [passage for passage in every.values() if (passage.id not in first) == again]
            programs = ((passage.id, experiment.extractor.extract(passage)) for passage in some)
            for id_, extraction in self.imagine(programs, engines, again=again).items():
                if isinstance(extraction, Extraction):
                    self._triples[id_] = parse_triples(extraction.completion, every[id_]).triples

    def imagine_index(self) -> bool:
        """Count the calls that build the index, unless an earlier cell builds it. Return False if it is built."""
        retriever = self._session.retriever
        if not is_installed(retriever):
            return True
        folder = index_folder(self._session)
        if folder.finished():
            return False
        if isinstance(retriever, ExpandingRetriever) and retriever.writer:
            corpus = self._session.experiment.data.corpus
            new = self._claim([folder], lambda folder: str(folder.path))
            programs = (
                ("index", retriever.expand(list(corpus.passages()), None, lambda _: None))
                for _ in new
            )
            self.imagine(programs, self._session.engines, all_calls=True)
        return True

    def _claim(self, items: Iterable[T], place: Callable[[T], str]) -> Iterator[T]:
        """Yield the items that no earlier cell builds."""
        for item in items:
            if (key := place(item)) not in self._shared:
                self._shared.add(key)
                yield item

    def imagine(
        self,
        programs: Iterable[tuple[str, Program[Any]]],
        engines: Engines,
        *,
        certain: bool = True,
        all_calls: bool = False,
        again: bool = False,
    ) -> dict[str, object]:
        """Run programs and count their calls. Return each one's result by its key.

        certain: whether the programs themselves do not come from imagined replies.
        all_calls: whether they make all their calls, whatever the replies are.
        again: whether an earlier cell makes these calls.
        """
        self._engines, self._certain, self._all_calls, self._again = (
            engines,
            certain,
            all_calls,
            again,
        )
        self._imagined = set()
        self._phase += 1
        settings = self._session.experiment.settings
        width = settings.max_parallel_questions or WIDTH
        scheduler = Scheduler(
            lambda _: self,
            self._done,
            width=lambda: width,
            # the program of an index makes calls for every passage
            max_calls=math.inf if all_calls else settings.max_calls,
            seed=settings.call_seed,
        )
        with_searches = with_search_program(programs, self._session.search_program)
        results = {ended.key: ended.result for ended in scheduler.run(with_searches)}
        self.errors += (each for each in results.values() if isinstance(each, Exception))
        return results

    def submit(self, request: Request) -> None:
        if isinstance(request.call, RunAgent):
            name = request.call.name
            raise ConfigError(
                f"dry_run=true: only running {name} shows its calls. Use limit=3, and then kgqa plan"
            )
        reply, cached = self._reply(request)
        if isinstance(request.call, Generate | Choose):
            self._count(request, CallRecord((), request.call, reply, cached))
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
        key = cache_key(self._identity(call), call)
        if isinstance(call, Rank):
            self._count_ranking(call)
        if (reply := find_reply(self._session.cache, key, call)) is not None:
            return reply, True
        certain = self._certain and program not in self._imagined
        again = self._again or (certain and key in self._shared)
        if certain:
            self._shared.add(key)
        self._imagined.add(program)
        if self.index is not None and isinstance(call, Search):
            return self.index.search([call])[0], again
        if self.index is not None and isinstance(call, Facts):
            return self.index.find_facts([call])[0], again
        if self.index is not None and isinstance(call, Locate):
            return self.index.locate([call])[0], again
        return self._imagine(call, program), again

    def _identity(self, call: Call[Any]) -> Mapping[str, Any]:
        """Return the identity of what answers a call, as in the key of its reply. Nothing is loaded."""
        if isinstance(call, Generate | Choose | CountTokens):
            return identity_of(self._engines(call.role))
        if isinstance(call, Rank):
            ranker = self._session.ranker(call.scorer)
            return identity_of(ranker) if is_installed(ranker) else {}
        return identity_of(self.index) if self.index is not None else {}

    def _imagine(self, call: Call[Any], program: int) -> object:
        number = next(self._numbers)
        match call:
            case Generate():
                reasoning = Thinking.of(self._engines.model(call.role).thinking).budget
                usage = Usage(
                    prompt_tokens=_tokens(call), output_tokens=call.max_tokens + reasoning
                )
                # of agents: the end of a query
                stopped_by = call.stop[0] if call.stop else None
                return Completion(
                    render_dry_run_reply(call.prompt, number), usage=usage, stopped_by=stopped_by
                )
            case Choose():
                others = len(call.options) - 1 or 1
                never_the_first = (-99.0, *(-log(others),) * (len(call.options) - 1))
                return Choice(
                    never_the_first, usage=Usage(prompt_tokens=_tokens(call), output_tokens=1)
                )
            case CountTokens():
                return len(call.text) // CHARACTERS_PER_TOKEN
            case Search(pool=None):
                placeholders = (
                    Passage.of(f"Passage {number}", PASSAGE) for number in range(call.k)
                )
                return (*self._session.experiment.data.questions[program].passages, *placeholders)[
                    : call.k
                ]
            case Search():
                return call.pool[: call.k] if call.pool else ()
            case Facts():
                return tuple(
                    (f"entity {number}", "is", f"unknown {place}") for place in range(call.k)
                )
            case Locate():
                return tuple(range(len(call.passages)))
            case Rank():
                return tuple(-float(position) for position in range(len(call.texts)))
        raise TypeError(f"no simulated reply for {type(call).__name__}")

    def _find_triples(self, passage: Passage) -> tuple[Triple, ...]:
        if imported := self._session.experiment.triple_file:
            return imported.triples(passage)
        numbers = range(TRIPLES_PER_PASSAGE)
        return self._triples.get(passage.id) or tuple(
            Triple(passage.title, f"relation {n}", passage.text[:40], passage.id) for n in numbers
        )

    def _count_ranking(self, call: Rank) -> None:
        planned = self.plan.rankers.setdefault(call.scorer, PlannedRankings())
        planned.rankings += 1
        planned.texts.update(map(hash, (call.query, *call.texts)))

    def _count(self, request: Request, record: CallRecord) -> None:
        call: ModelCall = request.call
        if call.role not in self.plan:
            engine = self._engines(call.role)
            self.plan[call.role] = PlannedCalls(
                engine=self._engines.label(call.role),
                origin=Origin.of(identity_of(engine)),
                at_once=cast(StreamingEngine, engine).max_concurrency if engine.streaming else None,
                prices=self._engines.prices(call.role),
                render=engine.render,
            )
        role = self.plan[call.role]
        role.first.setdefault(call.prompt.name, call)
        role.every.add(record)
        if not record.cached:
            role.new.add(record)
            role.new_programs.add(
                (self._phase, request.ticket if self._all_calls else request.order[0])
            )


def is_installed(part: object) -> bool:
    """Return whether the packages and weights of a retriever or ranker are on this machine. A plan needs neither."""
    try:
        identity_of(part)
    except ConfigError:
        return False
    return True


def _tokens(call: ModelCall) -> int:
    tools = call.tools or "" if isinstance(call, Generate) else ""
    return (call.prompt.characters + len(tools)) // CHARACTERS_PER_TOKEN

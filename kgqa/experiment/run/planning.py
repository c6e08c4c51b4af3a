"""`dry_run=true`: what a run would ask, before it asks anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from kgqa.calls import Call, Choose, CountTokens, Generate, ModelCall, Neighbours, Program, Rank, Search, Triples
from kgqa.engines.weights import Prices
from kgqa.errors import DataError
from kgqa.experiment.prepare.indexes import index_folder
from kgqa.experiment.prepare.triples import distinct_passages
from kgqa.experiment.run.estimating import estimate, measured_rates
from kgqa.experiment.run.judging import judge_engines
from kgqa.experiment.session.engines import Engines
from kgqa.judge.judges import Case
from kgqa.prompting import imagined_reply
from kgqa.runtime.cache import CallCache
from kgqa.runtime.codec import call_key, reply_from_json
from kgqa.runtime.scheduler import Record, Scheduler
from kgqa.runtime.services import Done, Reply, Request
from kgqa.types import Answer, Choice, Completion, Json, Passage, Triple, Usage

if TYPE_CHECKING:
    from kgqa.experiment.session.session import Session

PASSAGE = "text like this " * 30  # 450 characters, the mean of MuSiQue's and 2Wiki's paragraphs
CHARACTERS_PER_TOKEN = 4  # of English under today's vocabularies, roughly
TRIPLES_PER_PASSAGE = 8  # TRACE, Table 5: 79.04 triples in 10 passages


@dataclass
class Planned:
    """Model calls of one role; what is in the cache, or asked for the same by an earlier cell, is not `asked`."""

    engine: str  # as in "smollm2_135m@llamacpp"
    prices: Prices | None
    render: Callable[[ModelCall], str]
    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    asked: int = 0
    asked_prompt: int = 0
    asked_output: int = 0
    first: dict[str, ModelCall] = field(default_factory=dict)  # by template

    @property
    def usd(self) -> float | None:
        """At most, for what is to be asked; None where prices are not known."""
        return self.prices.dollars(self.asked_prompt, 0, self.asked_output) if self.prices else None


@dataclass
class Shared:
    """What earlier cells of a sweep will have asked, so that it is counted once."""

    calls: set[str] = field(default_factory=set)  # cache keys
    passages: set[tuple[str, str]] = field(default_factory=set)  # triple store and passage


Plan = dict[str, Planned]  # by role


class Imagined:
    """Answers every call at once: from the call cache, else with a reply that makes the program ask the most.

    Choices are even over all options but the first, which stops; texts conclude nothing, and where they decide how far
    a method goes the template has them ask for more (block `imagined`); a passage not extracted yet has eight triples.
    Where there is no index yet, a search gives the question's own passages, then made-up ones. All passages of a pool
    are neighbours. A call asked before is `cached` if it is certain to be the same: no reply of its program was
    imagined.
    """

    held = busy = 0

    def __init__(
        self,
        done: Done,
        cache: CallCache,
        identify: Callable[[Call[Any]], Json],
        found: Callable[[Request], Any],
        asked: set[str],
    ) -> None:
        """`found`: replies of what is looked up, not asked; `asked`: keys of calls that will have been made."""
        self._done, self._cache, self._identify, self._found, self._asked = done, cache, identify, found, asked
        self.imagining: set[int] = set()  # programs that have had an imagined reply
        self._numbers = count(1)

    def submit(self, request: Request) -> None:
        call = request.call
        if isinstance(call, Triples | Neighbours):
            self._done.put(Reply(request.ticket, self._found(request), cached=False))
            return
        key, program = call_key(self._identify(call), call), request.order[0]
        value = self._cache.get(key)
        again = program not in self.imagining and key in self._asked
        if value is not None:
            reply = reply_from_json(call, value)
        else:
            if program not in self.imagining:
                self._asked.add(key)
            reply = self._found(request) if isinstance(call, Search) else _imagined(call, next(self._numbers))
            self.imagining.add(program)
        self._done.put(Reply(request.ticket, reply, cached=value is not None or again))

    def flush(self) -> None:
        """Nothing is ever held."""

    def stop(self, timeout: float) -> None:
        """Nothing ever runs."""


def plan(session: Session) -> int:
    """Print the first prompt of each template as the model would see it, and the calls expected by role."""
    found = planned(session, Shared())
    _show(session, found)
    return 0


def planned(session: Session, shared: Shared) -> Plan:
    """What a run would ask, role by role: triples first, then questions, then the judge.

    The most it can ask, except where a text could ask for ever more (KnowTrace, GE-Reasoning, ERA-CoT): there what
    the template's block `imagined` says.
    """
    planner = _Planner(session, shared)
    if planner.graph:
        store = planner.graph.store
        missing = store.missing(distinct_passages(session.questions))
        new = [passage for passage in missing if (str(store.folder), passage.id) not in shared.passages]
        shared.passages |= {(str(store.folder), passage.id) for passage in new}
        extract = planner.graph.extractor.extract
        planner.imagine(((passage.id, extract(passage)) for passage in new), session.bench.engines)
        planner.imagining = set()
    if "search" in session.method.uses and (folder := index_folder(session)).finished():
        session.bench.index = folder.open()
    programs = ((question.id, session.method.answer(question)) for question in session.questions)
    answers = planner.imagine(programs, session.bench.engines)
    if session.judge:
        judge, guessed = session.judge, planner.imagining
        cases = [
            (number in guessed, Case(question.text, question.answers, answer.text))
            for number, question in enumerate(session.questions)
            if isinstance(answer := answers[question.id], Answer)
        ]
        planner.imagining = {number for number, (guess, _) in enumerate(cases) if guess}
        verdicts = ((str(number), judge.judge(case)) for number, (_, case) in enumerate(cases))
        planner.imagine(verdicts, judge_engines(session.config, judge))
    return planner.plan


class _Planner:
    def __init__(self, session: Session, shared: Shared) -> None:
        self.plan: Plan = {}
        self.imagining: set[int] = set()  # of the last programs, those that rest on an imagined reply
        self.graph = session.graph() if "triples" in session.method.uses else None
        self._session, self._shared = session, shared

    def imagine(self, programs: Iterable[tuple[str, Program[Any]]], engines: Engines) -> dict[str, Any]:
        """Count what these programs ask the engines; gives how each ends, by its key."""
        session, done = self._session, SimpleQueue[Reply]()
        bench = session.bench

        def identify(call: Call[Any]) -> Json:
            if isinstance(call, Generate | Choose | CountTokens):
                return engines(call.role).identity()
            if isinstance(call, Rank):
                return bench.rankers(call.scorer).identity()
            return bench.index.identity() if bench.index else {}

        def counted(record: Record) -> None:
            if isinstance(record.call, Generate | Choose):
                self._count(record.call, record, engines)

        service = Imagined(done, bench.cache, identify, self._found, self._shared.calls)
        scheduler = Scheduler(lambda _: service, done, width=session.settings.width, seed=session.settings.seed)
        scheduler.on_record = counted
        service.imagining = self.imagining
        return {each.key: each.result for each in scheduler.run(programs)}

    def _found(self, request: Request) -> Any:
        call, index = request.call, self._session.bench.index
        if isinstance(call, Triples):
            return self._triples(call.passage)
        if isinstance(call, Neighbours):
            return _others(call)
        if index:
            return index.search([call])[0]
        own = self._session.questions[request.order[0]].passages if call.pool is None else call.pool
        made_up = (Passage.of(f"Passage {number}", PASSAGE) for number in range(call.k))
        return (*own, *(made_up if call.pool is None else ()))[: call.k]

    def _triples(self, passage: Passage) -> tuple[Triple, ...]:
        assert self.graph is not None
        try:
            return self.graph.store.triples(passage)
        except DataError:
            return tuple(
                Triple(passage.title, f"relation {n}", passage.text[:40], passage.id)
                for n in range(TRIPLES_PER_PASSAGE)
            )

    def _count(self, call: ModelCall, record: Record, engines: Engines) -> None:
        if call.role not in self.plan:
            render = engines(call.role).render
            self.plan[call.role] = Planned(engines.label(call.role), engines.prices(call.role), render)
        role, usage = self.plan[call.role], record.reply.usage
        role.calls += 1
        role.prompt_tokens += usage.prompt_tokens
        role.output_tokens += usage.output_tokens
        if not record.cached:
            role.asked += 1
            role.asked_prompt += usage.prompt_tokens
            role.asked_output += usage.output_tokens
        role.first.setdefault(call.prompt.name, call)


def _imagined(call: Call[Any], number: int) -> Any:
    match call:
        case Generate():
            usage = Usage(prompt_tokens=_tokens(call), output_tokens=call.max_tokens)
            return Completion(imagined_reply(call.prompt.name, number), usage=usage)
        case Choose():
            from math import log

            others = len(call.options) - 1 or 1
            never_the_first = (-99.0, *(-log(others),) * (len(call.options) - 1))  # the first is to stop
            return Choice(never_the_first, usage=Usage(prompt_tokens=_tokens(call), output_tokens=1))
        case CountTokens():
            return len(call.text) // CHARACTERS_PER_TOKEN
        case Rank():
            return tuple(-float(position) for position in range(len(call.texts)))
    raise TypeError(f"cannot imagine a reply to {type(call).__name__}")


def _others(call: Neighbours) -> tuple[Passage, ...]:
    pool = call.pool or (Passage.of("Neighbour", PASSAGE),)
    return tuple(passage for passage in pool if passage.id != call.passage.id)


def _tokens(call: ModelCall) -> int:
    written = sum(len(message.content) for message in call.prompt.messages) + len(call.prompt.prefill)
    return written // CHARACTERS_PER_TOKEN


def _show(session: Session, plan: Plan) -> None:
    from rich.markup import escape
    from rich.rule import Rule
    from rich.table import Table

    console = session.console
    for role in plan.values():
        for template, call in role.first.items():
            console.print(Rule(f"{template} ({call.role})", align="left"))
            console.print(escape(role.render(call)), highlight=False, soft_wrap=True)
    table = Table("role", "calls", "in the cache", "prompt tokens", "generated tokens", title_justify="left")
    table.title = f"{len(session.questions)} questions, planned with made-up replies"
    for name, role in sorted(plan.items()):
        table.add_row(
            name,
            f"{role.calls:,}",
            f"{role.calls - role.asked:,}",
            f"about {role.prompt_tokens:,}",
            f"{role.output_tokens:,}",
        )
    console.print(Rule())
    console.print(table)
    for line in estimate(plan.values(), measured_rates()).lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    total = sum(role.calls for role in plan.values())
    console.print(f"{total:,} model calls, {sum(role.asked for role in plan.values()):,} of them to be asked")

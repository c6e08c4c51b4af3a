"""Hold what is open in an experiment: models and the call cache (`Session`), the services of a stage (`Runner`)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from typing_extensions import Self

from kgqa.artifacts.metrics import EngineUse, Throughput
from kgqa.cache.in_flight import Done
from kgqa.cache.store import CallCache
from kgqa.calls import (
    Call,
    Choose,
    CountTokens,
    Facts,
    Generate,
    Locate,
    Neighbours,
    Program,
    Rank,
    RunAgent,
    Search,
    Triples,
)
from kgqa.config import building as parts
from kgqa.errors import ConfigError, EngineDied
from kgqa.experiment.engines import Engines, Pool, RoleNodes
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.identity import find_run_folder, identify
from kgqa.identity.component import identity_of
from kgqa.protocols import (
    BatchEngine,
    Engine,
    ExtractingProgram,
    KnownTriples,
    Need,
    Ranker,
    Retriever,
    SearchProgram,
    StreamingEngine,
)
from kgqa.retrieval.search import PoolIndex
from kgqa.runtime.costs import Ledger, Spent, total
from kgqa.runtime.scheduler import WIDTH, Finished, Scheduler, with_search_program
from kgqa.runtime.services import Instant, Service, Streams, Waves, Worker
from kgqa.types import Json
from kgqa.util.loaders import free_loaded
from kgqa.util.places import call_cache, use_prompts
from kgqa.util.registry import load_registered

if TYPE_CHECKING:
    from kgqa.experiment.prepare.passage_graphs import PassageGraphs
    from kgqa.kg.exchange import ImportedTriples
    from kgqa.kg.extraction import ExtractedTriples
    from kgqa.retrieval.graphs.links import PassageGraph

log = logging.getLogger(__name__)

T = TypeVar("T")
_TFIDF = {"_target_": "kgqa.retrieval.lexical.Lexical"}
# of workers by kind, for the line that shows why calls wait
WORK = {
    "tokens": "numbers of tokens",
    "rank": "the ranker",
    "search": "the retriever",
    "facts": "the retriever",
    "locate": "the retriever",
}
# one question has a call at the server, and three wait, so that the last ones end together
QUESTIONS_A_PLACE = 4


@dataclass(frozen=True)
class Inputs:
    """The prepared inputs of a method's programs. A method without searches has no index, and so on."""

    index: PoolIndex | None = None
    triples: ExtractedTriples | ImportedTriples | None = None
    graphs: PassageGraphs | None = None
    # what answers `Search` instead of the index
    searches: SearchProgram | None = None
    extraction: Ledger = field(default_factory=Ledger)  # the cost of the triples


class Session(ExitStack):
    """The open parts of one experiment. Leaving it closes what it opened, and nothing else."""

    def __init__(
        self, experiment: Experiment, pool: Pool | None = None, calls: CallCache | None = None
    ) -> None:
        """Open nothing yet.

        Args:
            pool: holds models beyond this session; None: its own.
            calls: another call cache than that of this folder.
        """
        super().__init__()
        self.experiment = experiment
        self._pool, self._lent = pool or Pool(), pool is not None
        self._calls = calls
        # the cost of the new calls of all finished stages
        self.spent = Spent()
        if not self._lent:
            self.callback(self._pool.close)

    def __enter__(self) -> Self:
        self.enter_context(use_prompts(self.experiment.settings.prompts))
        return super().__enter__()

    @cached_property
    def cache(self) -> CallCache:
        if self._calls is not None:
            return self._calls
        cache = CallCache(call_cache())
        self.callback(cache.close)
        return cache

    @cached_property
    def identity(self) -> dict[str, Json]:
        """Return everything that can change an answer of the run."""
        return identify(self.experiment)

    @cached_property
    def folder(self) -> Path:
        """Return the folder of the run."""
        return find_run_folder(self.experiment, lambda _: self.identity)

    @cached_property
    def engines(self) -> Engines:
        """Return the engines of the method's roles."""
        return self.engines_of(self.experiment.role_nodes)

    @cached_property
    def judge_engines(self) -> Engines:
        """Return the engines of the judge's roles, none without a judge."""
        return self.engines_of(self.experiment.judge_nodes)

    def engines_of(self, nodes: RoleNodes) -> Engines:
        """Return engines for other roles, held by the same pool."""
        return Engines(nodes, self._pool, plans=self.experiment.settings.dry_run)

    def ranker(self, group: str) -> Ranker:
        """Return the chosen one of a group (ranker, demonstrations_ranker, reranker), or tfidf, which has no group."""
        node = _TFIDF if group == "tfidf" else self.experiment.chosen(group)
        # a group of configurations names the class, and tfidf is none
        key = "ranker" if group == "tfidf" else group
        return self._pool.shared(node, lambda: parts.build_part(node, key, Ranker))

    @property
    def retriever(self) -> Retriever:
        return self._pool.shared(
            self.experiment.chosen("retriever"), lambda: self.experiment.retriever
        )

    @property
    def search_program(self) -> SearchProgram | None:
        """Return the retriever if its searches call a model."""
        if not self.experiment.searches:
            return None
        retriever: object = self.retriever
        return retriever if isinstance(retriever, SearchProgram) and retriever.has_program else None

    @property
    def linker(self) -> PassageGraph:
        """Return what links passages, chosen by `graph=`."""
        return self._pool.shared(self.experiment.chosen("graph"), lambda: self.experiment.linker)

    def say_once(self, line: str) -> None:
        """Log a line, once for all sessions that share the models."""
        self._pool.shared(line, lambda: log.info("%s", line))

    @contextmanager
    def runner(
        self,
        inputs: Inputs = Inputs(),
        engines: Engines | None = None,
        cache: CallCache | None = None,
    ) -> Iterator[Runner]:
        """Open a runner for the programs of one stage. Its engines and its call cache are the session's by default."""
        calls = self.cache if cache is None else cache  # an empty cache is false
        runner = Runner(self, engines or self.engines, inputs, calls)
        try:
            yield runner
        finally:
            runner.close()
            self.spent += runner.ledger.spent()

    def end_models(self) -> None:
        """Close the models, and free encoders and rerankers, to make room for others. Those of a lent pool stay."""
        if not self._lent:
            self._pool.close()
            free_loaded()


_NEEDS: Mapping[type, Need] = {
    Search: "search",
    Facts: "search",
    Locate: "search",
    Triples: "triples",
    Neighbours: "graph",
}


class Runner:
    """One stage: its services with their threads, its scheduler, and the costs of its calls."""

    def __init__(
        self, session: Session, engines: Engines, inputs: Inputs, cache: CallCache
    ) -> None:
        self.engines = engines
        # of all calls, those of stopped programs too
        self.ledger = Ledger(price=engines.prices)
        self.experiment = session.experiment
        self._session, self._inputs, self._cache = session, inputs, cache
        # by type and role of the calls
        self._routes: dict[tuple[type, str | None], Service] = {}
        # by kind, and id of what answers
        self._services: dict[tuple[str, int], Service] = {}
        self._models: list[tuple[Engine, Streams | Waves]] = []
        self._died = False
        self._ending = threading.Event()  # all programs have started
        self._seconds = 0.0  # that `run` took
        self._done: Done = Done()
        self._scheduler: Scheduler | None = None

    def run(
        self, programs: Iterable[tuple[str, Program[T]]], *, max_calls: float | None = None
    ) -> Generator[Finished[T], None, None]:
        """Yield each program as it finishes. max_calls: of one program. None: those of a question."""
        self._ending.clear()
        self._scheduler = Scheduler(
            self._route,
            self._done,
            find_program=self._find_program,
            width=self._width,
            max_calls=max_calls or self.experiment.settings.max_calls,
            seed=self.experiment.settings.call_seed,
            on_record=self.ledger.add,
            on_last_start=self._ending.set,
        )
        started = time.monotonic()
        programs = with_search_program(self.ledger.count_starts(programs), self._inputs.searches)
        try:
            yield from self._scheduler.run(programs, streaming=self.engines.streaming())
        except EngineDied:
            self._died = True
            raise
        finally:
            self._seconds += time.monotonic() - started

    def throughput(self) -> Throughput:
        """Return the speed of the new calls, and the engine of each role."""
        seconds = max(self._seconds, 1e-9)
        new = total(self.ledger.paid.values())
        roles: dict[str, list[str]] = {}
        for role in sorted(self.ledger.method):
            roles.setdefault(self.engines.label(role), []).append(role)
        engines = (EngineUse(engine=engine, roles=tuple(own)) for engine, own in roles.items())
        tokens = {"prompt": new.usage.prompt_tokens, "output": new.usage.output_tokens}
        rates = {
            kind: round(count / seconds, 2) if new.calls else None for kind, count in tokens.items()
        }
        return Throughput(
            seconds=round(seconds, 3), tokens_per_second=rates, engines=tuple(engines)
        )

    def close(self) -> None:
        """Drop what waits, and let running batches end within 10 s. Discard engines that are still busy or died."""
        cut_short = [engine for engine, service in self._models if service.busy or self._died]
        if self._scheduler:
            self._scheduler.stop()
        self.engines.discard(cut_short)

    def _width(self) -> int:
        """Return how many questions are open at once: enough to keep all servers busy, unless the user set it.

        Servers raise their limit as they learn it.
        """
        places = sum(
            cast(StreamingEngine, engine).max_concurrency
            for engine, _ in self._models
            if engine.streaming
        )
        return self.experiment.settings.max_parallel_questions or max(
            WIDTH, QUESTIONS_A_PLACE * places
        )

    def _route(self, call: Call[Any]) -> Service:
        """Return the service that answers a call. It is started at the first call."""
        key = type(call), getattr(call, "role", getattr(call, "scorer", None))
        if key not in self._routes:
            self._routes[key] = self._find_service(call)
        return self._routes[key]

    def _find_program(self, call: Call[Any]) -> Program[Any] | None:
        """Return the program that answers a call with cached calls."""
        triples = self._inputs.triples
        if isinstance(call, Triples) and isinstance(triples, ExtractingProgram):
            return triples.extract(call.passage)
        return None

    def _find_service(self, call: Call[Any]) -> Service:
        inputs, replies = self._inputs, self._done
        match call:
            case Generate() | Choose():
                engine = self.engines(call.role)
                return self._service("model", engine, lambda: self._start_model(engine))
            case CountTokens():
                engine = self.engines(call.role)
                if engine.estimates_tokens:
                    return self._service(
                        "tokens",
                        engine,
                        lambda: Instant(replies, lambda c: engine.count_tokens(c.text)),
                    )
                return self._worker("tokens", engine, lambda calls: _count_tokens(engine, calls))
            case Rank():
                ranker = self._session.ranker(call.scorer)
                return self._worker("rank", ranker, ranker.score)
            case Search() | Facts() | Locate() if (index := inputs.index) is not None:
                answer = {Search: index.search, Facts: index.find_facts, Locate: index.locate}[
                    type(call)
                ]
                return self._worker(
                    type(call).__name__.lower(), index, cast(Callable[[Any], Any], answer)
                )
            case Triples() if isinstance(triples := inputs.triples, KnownTriples):
                return self._service(
                    "triples",
                    triples,
                    lambda: Instant(replies, lambda c: triples.triples(c.passage)),
                )
            case Neighbours() if (graphs := inputs.graphs) is not None:
                return self._service(
                    "neighbours", graphs, lambda: Instant(replies, graphs.store.neighbours)
                )
            case RunAgent():
                return self._service(
                    "agents", self, lambda: load_registered("agents")(self, replies)
                )
        need = _NEEDS[type(call)] if getattr(call, "pool", None) is None else "pool"
        raise ConfigError(f'this method awaits {type(call).__name__}: add "{need}" to its `uses`')

    def _worker(
        self, kind: str, owner: Any, answer: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> Service:
        return self._service(
            kind,
            owner,
            lambda: Worker(self._done, self._cache, identity_of(owner), answer, WORK[kind]),
        )

    def _service(self, kind: str, owner: object, make: Callable[[], Service]) -> Service:
        key = (kind, id(owner))
        if key not in self._services:
            self._services[key] = make()
        return self._services[key]

    def adopt(self, program: Program[Any], ticket: int | None = None) -> None:
        """Run a program of a service, from any thread, see `Scheduler.adopt`. Its searches are those of the run."""
        scheduler = self._scheduler
        assert scheduler is not None
        ((_, searching),) = with_search_program([("", program)], self._inputs.searches)
        self._done.put(lambda: scheduler.adopt(searching, ticket))

    @property
    def index(self) -> PoolIndex | None:
        """Return what is searched."""
        return self._inputs.index

    def _start_model(self, engine: Engine) -> Service:
        replies, cache = self._done, self._cache
        self.engines.make_room(engine)
        service: Streams | Waves
        if engine.streaming:
            service = Streams(replies, cache, cast(StreamingEngine, engine), self._ending)
        else:
            service = Waves(replies, cache, cast(BatchEngine, engine))
        self._models.append((engine, service))
        return service


def _count_tokens(engine: Engine, calls: Sequence[CountTokens]) -> list[int]:
    """Return the numbers of tokens of texts. A server counts them in parallel."""
    texts = [call.text for call in calls]
    if not engine.streaming or len(texts) == 1:
        return list(map(engine.count_tokens, texts))
    with ThreadPoolExecutor(len(texts), thread_name_prefix="kgqa-tokens") as threads:
        return list(threads.map(engine.count_tokens, texts))

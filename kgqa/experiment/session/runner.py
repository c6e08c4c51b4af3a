"""Runs the programs of one stage: each call goes to what answers it, through one call cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from kgqa.artifacts.metrics import EngineUse, Rates, Throughput
from kgqa.cache.requests import Done
from kgqa.cache.store import CallCache
from kgqa.calls import Call, Choose, CountTokens, Generate, Neighbours, Program, Rank, Search, Triples
from kgqa.config.settings import RunSettings
from kgqa.errors import ConfigError, EngineDied
from kgqa.experiment.session.engines import Engines
from kgqa.protocols import BatchEngine, Engine, Index, NeighbourSource, Ranker, StreamingEngine, TripleSource
from kgqa.runtime.costs import Ledger, Spent, total
from kgqa.runtime.scheduler import WIDTH, CallRecord, Finished, Scheduler
from kgqa.runtime.services import Instant, Service, Streams, Waves, Worker
from kgqa.types import Json

T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """The inputs prepared for a method's programs; None for those that it does not use."""

    index: Index | None = None
    triples: TripleSource | None = None
    graphs: NeighbourSource | None = None


UNPREPARED = Prepared()
# of a server: one whose call it answers, and three that wait, so that the last ones are many when they end together
QUESTIONS_A_PLACE = 4


class Runner:
    """One stage: its services with their threads, its scheduler, and the books of what it was answered."""

    def __init__(
        self,
        cache: CallCache,
        engines: Engines,
        rankers: Callable[[str], Ranker],
        prepared: Prepared,
        settings: RunSettings,
    ) -> None:
        """`rankers`: by the name of their group, asked when first needed."""
        self.engines = engines
        self.ledger = Ledger(price=engines.prices)  # of all its calls, those of programs that were cut short too
        self._cache, self._rankers, self._prepared, self._settings = cache, rankers, prepared, settings
        self._services: dict[tuple[str, int], Service] = {}
        self._asked: dict[int, tuple[Engine, Streams | Waves]] = {}  # the engines among them
        self._died = self._ending = False
        self._seconds = 0.0  # that `run` took
        self._done: Done = Done()
        self._scheduler: Scheduler | None = None

    def run(
        self, programs: Iterable[tuple[str, Program[T]]], recorded: Callable[[], None] = lambda: None
    ) -> Generator[Finished[T], None, None]:
        """Yield each program's end, as `Scheduler.run` gives it; `recorded` is called once the ledger has another
        call.
        """
        settings = self._settings
        scheduler = self._scheduler = Scheduler(self._route, self._done, width=self._width(), seed=settings.seed)

        def enter(record: CallRecord) -> None:
            scheduler.width = self._width()
            self.ledger.add(record)
            recorded()

        scheduler.on_record, scheduler.on_last_start = enter, lambda: self._arrange(ending=True)
        self._arrange(ending=False)
        started = time.monotonic()
        try:
            yield from scheduler.run(programs, streaming=self.engines.streaming())
        except EngineDied:
            self._died = True
            raise
        finally:
            self._seconds += time.monotonic() - started

    def _arrange(self, *, ending: bool) -> None:
        """Also for engines that are asked for the first time later."""
        self._ending = ending
        for _, service in self._asked.values():
            if isinstance(service, Streams):
                service.set_order(ending=ending)

    def spent(self) -> Spent:
        return self.ledger.spent(self.engines.prices)

    def throughput(self) -> Throughput:
        """Return what the engines did while programs ran; rates are of paid calls."""
        seconds = max(self._seconds, 1e-9)
        paid = total(self.ledger.paid.values())
        engines = []
        for engine, service in self._asked.values():
            occupied = service.utilization.usage()
            roles = sorted(role for role in self.ledger.method if self.engines(role) is engine)
            if roles:
                use = EngineUse(
                    engine=self.engines.label(roles[0]),
                    roles=tuple(roles),
                    busy_share=round(occupied.busy / seconds, 4),
                    mean_calls=round(occupied.calls / seconds, 3),
                    capacity=round(occupied.capacity / occupied.busy) if occupied.busy else _capacity(engine),
                    full_share=round(occupied.full / seconds, 4),
                )
                engines.append(use)
        rates = Rates(
            prompt=round(paid.prompt_tokens / seconds, 2) if paid.calls else None,
            output=round(paid.output_tokens / seconds, 2) if paid.calls else None,
        )
        return Throughput(seconds=round(seconds, 3), tokens_per_second=rates, engines=tuple(engines))

    def close(self) -> None:
        """Drop what waits, let a running batch end within 10 s; an engine that is busy then or died serves no more."""
        cut_short = [engine for engine, service in self._asked.values() if service.busy or self._died]
        if self._scheduler:
            self._scheduler.stop()
        self.engines.discard(cut_short)

    def _width(self) -> int:
        """Return questions at once: as many as was said, or enough that no place of a server stays empty."""
        places = sum(_capacity(engine) for engine, _ in self._asked.values() if engine.streaming)
        return self._settings.max_parallel_questions or max(WIDTH, QUESTIONS_A_PLACE * places)

    def _route(self, call: Call[Any]) -> Service:
        prepared = self._prepared
        match call:
            case Generate() | Choose():
                engine = self.engines(call.role)
                return self._service("model", engine, lambda: self._model(engine))
            case CountTokens():
                engine = self.engines(call.role)
                return self._service("tokens", engine, lambda: self._counter(engine))
            case Rank():
                ranker = self._rankers(call.scorer)
                return self._service("rank", ranker, lambda: self._worker(ranker.identity(), ranker.score))
            case Search() if prepared.index is not None:
                index = prepared.index
                return self._service("search", index, lambda: self._worker(index.identity(), index.search))
            case Triples() if prepared.triples is not None:
                of = prepared.triples.triples
                return self._service("triples", prepared.triples, lambda: Instant(self._done, lambda c: of(c.passage)))
            case Neighbours() if prepared.graphs is not None:
                neighbours = prepared.graphs.neighbours
                return self._service("neighbours", prepared.graphs, lambda: Instant(self._done, neighbours))
        raise ConfigError(f"nothing in this configuration answers {type(call).__name__}")

    def _service(self, kind: str, owner: object, make: Callable[[], Service]) -> Service:
        key = (kind, id(owner))
        if key not in self._services:
            self._services[key] = make()
        return self._services[key]

    def _model(self, engine: Engine) -> Service:
        service = (
            Streams(self._done, self._cache, cast(StreamingEngine, engine))
            if engine.streaming
            else Waves(self._done, self._cache, cast(BatchEngine, engine))
        )
        self._asked[id(engine)] = engine, service
        self._arrange(ending=self._ending)
        return service

    def _counter(self, engine: Engine) -> Service:
        if engine.counts_freely:
            return Instant(self._done, lambda call: engine.count_tokens(call.text))
        return self._worker(engine.identity(), lambda calls: [engine.count_tokens(call.text) for call in calls])

    def _worker(self, identity: Mapping[str, Json], answer: Callable[[Sequence[Any]], Sequence[Any]]) -> Service:
        return Worker(self._done, self._cache, identity, answer)


def _capacity(engine: Engine) -> int:
    """Return calls an engine takes at once."""
    return cast(StreamingEngine, engine).places if engine.streaming else cast(BatchEngine, engine).batch_size

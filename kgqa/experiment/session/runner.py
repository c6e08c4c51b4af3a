"""The services a run's programs ask: engines by role, the ranker, the triples, one call cache below them."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from kgqa.calls import Call, Choose, CountTokens, Generate, Neighbours, Program, Rank, Search, Triples
from kgqa.errors import ConfigError, EngineDied
from kgqa.experiment.session.engines import Engines
from kgqa.protocols import BatchEngine, Engine, Index, NeighbourSource, Ranker, StreamingEngine, TripleSource
from kgqa.runtime.cache import CallCache
from kgqa.runtime.costs import Ledger, Spent, total
from kgqa.runtime.scheduler import Finished, Record, Scheduler
from kgqa.runtime.services import Done, Instant, Reply, Service, Streams, Waves, Worker
from kgqa.types import Json

T = TypeVar("T")


class Workbench:
    """Runs programs with the experiment's engines, rankers, index and triples.

    rankers: built when first asked for, by the name of their group. `triples`, `index` and `graphs` are set by whoever
    has them.
    """

    def __init__(self, cache: CallCache, engines: Engines, rankers: Callable[[str], Ranker]) -> None:
        self.engines, self.rankers = engines, rankers
        self.triples: TripleSource | None = None
        self.index: Index | None = None
        self.graphs: NeighbourSource | None = None
        self.cache = cache
        self._services: dict[tuple[str, int], Service] = {}
        self._asked: dict[int, tuple[Engine, Streams | Waves]] = {}  # the engines among them
        self._died = False
        self._seconds = 0.0  # that the last `run` took
        self._ledger = Ledger()  # of all runs, those that were cut short too
        self._done: Done = SimpleQueue[Reply]()
        self._scheduler: Scheduler | None = None

    def run(
        self,
        programs: Iterable[tuple[str, Program[T]]],
        on_record: Callable[[Record], None],
        *,
        width: int,
        seed: int,
    ) -> Generator[Finished[T], None, None]:
        """Each program's end, as `Scheduler.run` gives it."""
        scheduler = self._scheduler = Scheduler(self._route, self._done, width=width, seed=seed)

        def counted(record: Record) -> None:
            self._ledger.add(record)
            on_record(record)

        scheduler.on_record = counted
        for _, service in self._asked.values():
            service.occupancy.restart()
        started = time.monotonic()
        try:
            yield from scheduler.run(programs, streaming=self.engines.streaming())
        except EngineDied:
            self._died = True
            raise
        finally:
            self._seconds = time.monotonic() - started

    def spent(self) -> Spent:
        """By all runs so far."""
        return self._ledger.spent(self.engines.prices)

    def throughput(self, ledger: Ledger) -> dict[str, Json]:
        """What the engines did during the last `run`, whose calls are in the ledger; rates are of paid calls."""
        seconds = max(self._seconds, 1e-9)
        paid = total(ledger.paid.values())
        rates = {"prompt": paid.prompt_tokens / seconds, "output": paid.output_tokens / seconds}
        engines = []
        for engine, service in self._asked.values():
            busy, call_seconds = service.occupancy.measured()
            roles = sorted(role for role in ledger.method if self.engines(role) is engine)
            if roles:
                use = {
                    "engine": self.engines.label(roles[0]),
                    "roles": roles,
                    "busy_share": round(busy / seconds, 4),
                    "mean_calls": round(call_seconds / seconds, 3),  # in flight, idle time counted in
                    "capacity": _capacity(engine),
                }
                engines.append(use)
        return {
            "seconds": round(seconds, 3),
            "tokens_per_second": {kind: round(rate, 2) if paid.calls else None for kind, rate in rates.items()},
            "engines": engines,
        }

    def close(self) -> None:
        """Drop what waits, let a running batch end within 10 s, free the engines that are not kept warm."""
        cut_short = [engine for engine, service in self._asked.values() if service.busy or self._died]
        if self._scheduler:
            self._scheduler.stop()
        if self.index is not None:
            self.index.close()
        self.engines.close(cut_short)

    def _route(self, call: Call[Any]) -> Service:
        match call:
            case Generate() | Choose():
                engine = self.engines(call.role)
                return self._service("model", engine, lambda: self._model(engine))
            case CountTokens():
                engine = self.engines(call.role)
                return self._service("tokens", engine, lambda: self._counter(engine))
            case Rank():
                ranker = self.rankers(call.scorer)
                return self._service("rank", ranker, lambda: self._worker(ranker.identity(), ranker.score))
            case Search() if self.index is not None:
                index = self.index
                return self._service("search", index, lambda: self._worker(index.identity(), index.search))
            case Triples() if self.triples is not None:
                triples = self.triples.triples
                return self._service("triples", self.triples, lambda: Instant(self._done, lambda c: triples(c.passage)))
            case Neighbours() if self.graphs is not None:
                neighbours = self.graphs.neighbours
                return self._service("neighbours", self.graphs, lambda: Instant(self._done, neighbours))
        raise ConfigError(f"nothing in this configuration answers {type(call).__name__}")

    def _service(self, kind: str, owner: object, make: Callable[[], Service]) -> Service:
        key = (kind, id(owner))
        if key not in self._services:
            self._services[key] = make()
        return self._services[key]

    def _model(self, engine: Engine) -> Service:
        service = (
            Streams(self._done, self.cache, cast(StreamingEngine, engine))
            if engine.streaming
            else Waves(self._done, self.cache, cast(BatchEngine, engine))
        )
        self._asked[id(engine)] = engine, service
        return service

    def _counter(self, engine: Engine) -> Service:
        return self._worker(engine.identity(), lambda calls: [engine.count_tokens(call.text) for call in calls])

    def _worker(self, identity: Mapping[str, Json], answer: Callable[[Sequence[Any]], Sequence[Any]]) -> Service:
        return Worker(self._done, self.cache, identity, answer)


def _capacity(engine: Engine) -> int:
    """Calls an engine takes at once."""
    return cast(StreamingEngine, engine).concurrency if engine.streaming else cast(BatchEngine, engine).batch_size

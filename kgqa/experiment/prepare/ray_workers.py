"""`kgqa kg build --ray`: the shards of a corpus, extracted by workers of Ray that have a model each."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgqa.errors import ConfigError, EngineDied, KgqaError, UsageError
from kgqa.experiment.prepare.corpus import CorpusBuild, build_corpus
from kgqa.kg.parsing import Extraction
from kgqa.runtime.costs import Cost, Ledger, total
from kgqa.storage import call_cache

if TYPE_CHECKING:
    from kgqa.experiment.prepare.triples import Graph
    from kgqa.experiment.session.session import Session
    from kgqa.report.progress import Stage

ATTEMPTS = 3  # at a shard whose worker or engine dies
OBJECT_STORE = 100_000_000  # bytes, Ray's least is 75 MB; places of shards and costs are all that passes through it


def build_by_workers(overrides: Sequence[str], workers: int, gpus: int) -> int:
    """Store the corpus here, extract its shards in `workers` processes that have `gpus` each, merge here.

    All see the working directory under the same path, and the call cache under `KGQA_CACHE`, which must not be shared
    by machines.

    Raises:
        ConfigError: Ray is not installed, or has not the workers or GPUs.
        EngineDied: a shard failed in all its attempts; finished ones are kept.
    """
    _import_ray()

    def extract(session: Session, graph: Graph, build: CorpusBuild, shown: Stage) -> None:
        shards = build.unfinished()
        if not shards:
            return
        order = Order(list(overrides), session.config, graph.store.folder, Path.cwd(), call_cache().resolve(), build)
        build.forget_attempts()
        with _cluster(workers, gpus):
            for outcome in _outcomes(order, shards, workers, gpus):
                if isinstance(outcome, KgqaError):
                    raise outcome
                _include(shown.ledger.method, outcome.ledger.method)
                _include(shown.ledger.paid, outcome.ledger.paid)
                for failed in outcome.failed:
                    shown.finished(failed=failed)

    return build_corpus(overrides, extract)


@dataclass(frozen=True)
class Order:
    """What a worker must know."""

    overrides: list[str]
    config: Mapping[str, Any]
    store: Path
    working_directory: Path
    cache: Path
    build: CorpusBuild


@dataclass
class Outcome:
    """Of a shard."""

    ledger: Ledger = field(default_factory=Ledger)
    failed: list[bool] = field(default_factory=list)  # for each passage


class Extractor:
    """One worker: a session of its own, whose engine stays loaded from shard to shard."""

    def __init__(self, order: Order) -> None:
        os.chdir(order.working_directory)
        os.environ["KGQA_CACHE"] = str(order.cache)
        self._order = order
        self._session: Session | None = None

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[bytes]]:
        """Extract one shard; in its row the pickled outcome, or an error that another attempt would not mend."""
        shard = range(int(batch["start"][0]), int(batch["stop"][0]))
        attempt = self._order.build.begin_attempt(shard)
        outcome: Outcome | KgqaError
        if attempt > ATTEMPTS:
            outcome = EngineDied(f"workers died in {ATTEMPTS} attempts at passages {shard.start} to {shard.stop - 1}")
        else:
            try:
                outcome = self._extract(shard)
            except UsageError as error:
                outcome = error
            except EngineDied as error:
                self._close()
                if attempt < ATTEMPTS:
                    raise  # Ray calls again, and finds a new engine
                outcome = error
        return {"outcome": [pickle.dumps(outcome)]}

    def _extract(self, shard: range) -> Outcome:
        from kgqa.experiment.session.session import Session

        order, outcome = self._order, Outcome()
        if self._session is None:
            self._session = Session(order.overrides, order.config)
        graph = self._session.graph()
        if graph.store.folder != order.store:
            raise ConfigError(f"a worker would build {graph.store.folder}, not {order.store}: its model is another one")

        def seen(extractions: Iterator[Extraction]) -> Iterator[Extraction]:
            for extraction in extractions:
                outcome.failed.append(extraction.error is not None)
                yield extraction

        order.build.keep(shard, seen(graph.extractions(order.build.passages(shard), outcome.ledger.add)))
        return outcome

    def _close(self) -> None:
        if self._session is not None:
            self._session.__exit__(None, None, None)
            self._session = None


def _include(sums: dict[str, Cost], costs: Mapping[str, Cost]) -> None:
    for role, cost in costs.items():
        sums[role] = total([sums.get(role, Cost()), cost])


def _outcomes(order: Order, shards: Sequence[range], workers: int, gpus: int) -> Iterator[Outcome | KgqaError]:
    """As they come."""
    from ray.data import ActorPoolStrategy, DataContext, from_items
    from ray.exceptions import RayError

    context = DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.actor_task_retry_on_errors = True  # without end, as for workers that die: `Extractor` counts
    places = [{"start": shard.start, "stop": shard.stop} for shard in shards]
    rows = from_items(places, override_num_blocks=len(places)).map_batches(
        Extractor,
        fn_constructor_args=[order],
        batch_size=1,
        num_cpus=1,
        num_gpus=gpus,
        compute=ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
    )
    try:
        for row in rows.iter_rows():
            yield pickle.loads(row["outcome"])  # noqa: S301 - our own worker wrote it
    except RayError as error:
        raise EngineDied(f"Ray gave up: {str(error).splitlines()[0]}") from error


@contextmanager
def _cluster(workers: int, gpus: int) -> Iterator[None]:
    """The cluster of `RAY_ADDRESS`, else one of our own on 127.0.0.1, which ends with the block."""
    import ray

    address = os.environ.get("RAY_ADDRESS", "local")
    own = {
        "num_cpus": workers,
        "object_store_memory": OBJECT_STORE,
        "include_dashboard": False,
    }
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **(own if address == "local" else {}))
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"RAY_ADDRESS={address}: {error}") from error
    try:
        there = ray.cluster_resources()
        for option, kind, wanted in (("workers", "CPU", workers), ("gpus", "GPU", workers * gpus)):
            if there.get(kind, 0) < wanted:
                raise ConfigError(f"--{option}: {wanted} {kind}s are needed, and Ray has {there.get(kind, 0):.0f}")
        yield
    finally:
        ray.shutdown()


def _import_ray() -> None:
    """What Ray reads from the environment when it is imported is set before."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 starves workers on a machine that does other work
    if "RAY_ADDRESS" not in os.environ:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # the name is too narrow: 127.0.0.1 on Linux, too
    try:
        import ray.data
    except ImportError as error:
        raise ConfigError(f"--ray: {error}; install it: pip install 'kgqa[ray]'") from error
    logging.getLogger(ray.data.__name__).setLevel(logging.CRITICAL)  # here, too, errors reach us as exceptions

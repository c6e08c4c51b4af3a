"""`kgqa kg build --ray`: the shards of a corpus, extracted by workers of Ray that have a model each."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kgqa.config.files import Config
from kgqa.errors import ConfigError, EngineDied, KgqaError, UsageError
from kgqa.experiment.prepare.corpus import CorpusBuild, Extract
from kgqa.experiment.prepare.triples import TripleBuilder
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.kg.parsing import Extraction
from kgqa.runtime.costs import Ledger, Tally, total
from kgqa.runtime.display import Display
from kgqa.util.fs import call_cache

ATTEMPTS = 3  # at a shard whose worker or engine dies
OBJECT_STORE = 100_000_000  # bytes, Ray's least is 75 MB; places of shards and costs are all that passes through it


def extract_by_workers(workers: int, gpus: int) -> Extract:
    """Extract the shards of a corpus in `workers` processes that have `gpus` each.

    All see the working directory under the same path, and the call cache under `KGQA_CACHE`, which must not be shared
    by machines.

    Raises:
        ConfigError: Ray is not installed, or has not the workers or GPUs.
        EngineDied: a shard failed in all its attempts; finished ones are kept.
    """
    _import_ray()

    def extract(session: Session, builder: TripleBuilder, build: CorpusBuild, display: Display) -> None:
        shards, ledger = build.unfinished(), Ledger()
        with display.stage("triples", build.left(), ledger) as stage:
            if not shards:
                return
            overrides, config = session.experiment.overrides, session.experiment.config
            order = Order(overrides, config, builder.store.folder, Path.cwd(), call_cache().resolve(), build)
            build.forget_attempts()
            with _cluster(workers, gpus):
                for outcome in _outcomes(order, shards, workers, gpus):
                    if isinstance(outcome, KgqaError):
                        raise outcome
                    _include(ledger.method, outcome.ledger.method)
                    _include(ledger.paid, outcome.ledger.paid)
                    for failed in outcome.failed:
                        stage.finish(failed=failed)

    return extract


@dataclass(frozen=True)
class Order:
    """The settings of a Ray worker."""

    overrides: tuple[str, ...]
    config: Config
    store: Path
    working_directory: Path
    cache: Path
    build: CorpusBuild


@dataclass(frozen=True)
class Outcome:
    """Of a shard."""

    ledger: Ledger
    failed: list[bool]  # for each passage


class Extractor:
    """One worker: a session of its own, whose engine stays loaded from shard to shard."""

    def __init__(self, order: Order) -> None:
        os.chdir(order.working_directory)
        os.environ["KGQA_CACHE"] = str(order.cache)
        self._order = order
        self._session = Session(Experiment.of(order.overrides, order.config))

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
                if attempt < ATTEMPTS:
                    raise  # Ray calls again, and finds a new engine
                outcome = error
        return {"outcome": [pickle.dumps(outcome)]}

    def _extract(self, shard: range) -> Outcome:
        order, builder = self._order, TripleBuilder(self._session)
        if builder.store.folder != order.store:
            raise ConfigError(
                f"a worker would build {builder.store.folder}, not {order.store}: its model is another one"
            )
        failed: list[bool] = []

        def seen(extractions: Iterator[Extraction]) -> Iterator[Extraction]:
            for extraction in extractions:
                failed.append(extraction.error is not None)
                yield extraction

        with self._session.runner() as runner:
            order.build.keep(shard, seen(builder.extractions(runner, order.build.passages(shard))))
        return Outcome(runner.ledger, failed)


def _include(sums: dict[str, Tally], tallies: Mapping[str, Tally]) -> None:
    for role, tally in tallies.items():
        sums[role] = total([sums.get(role, Tally()), tally])


def _outcomes(order: Order, shards: Sequence[range], workers: int, gpus: int) -> Iterator[Outcome | KgqaError]:
    """Yield as they come."""
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
    """Yield the cluster of `RAY_ADDRESS`, else one of our own on 127.0.0.1, which ends with the block."""
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

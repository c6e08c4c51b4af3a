"""Extract triples with Ray workers, each with its own model: `kgqa kg build --ray`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kgqa.config.files import Config
from kgqa.errors import ConfigError, EngineDied
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.prepare.triples import Extract, Extractions, TripleBuilder
from kgqa.experiment.session import Session
from kgqa.kg.store import Extraction
from kgqa.runtime.costs import Ledger, Tally
from kgqa.types import Passage
from kgqa.util.fs import call_cache
from kgqa.util.optional_deps import install_command

ATTEMPTS = 3  # at passages of which the worker or the engine dies
OBJECT_STORE = 100_000_000  # bytes; Ray's minimum is 75 MB
SMALLEST, LARGEST = 16, 1_000  # passages of a batch: minutes on a GPU
BATCHES = 8  # for each worker, so that all end at about the same time
Batch = tuple[list[Extraction], dict[str, Tally], dict[str, Tally]]  # extractions, tallies as in a ledger: method, paid


def extract_with_ray(workers: int, gpus: int) -> Extract:
    """Extract in `workers` processes with `gpus` each.

    All see the working directory under the same path. Each machine needs its own `KGQA_CACHE`.

    Raises:
        ConfigError: Ray is not installed, or lacks the workers or GPUs.
        EngineDied: passages failed in all attempts. Finished ones are stored.
    """
    _import_ray()

    @contextmanager
    def extract(builder: TripleBuilder, count: int) -> Iterator[tuple[Ledger, Extractions]]:
        experiment, ledger = builder.session.experiment, Ledger(price=builder.session.engines.prices)
        size = min(LARGEST, max(SMALLEST, count // (workers * BATCHES)))
        order = Order(experiment.overrides, experiment.config, builder.store.folder, Path.cwd(), call_cache().resolve())

        def extractions(passages: Iterable[Passage], recorded: Callable[[], None]) -> Iterator[Extraction]:
            rest = iter(passages)
            for batch in _run(order, iter(lambda: list(islice(rest, size)), []), workers, gpus):
                extracted, *tallies = batch
                for sums, own in zip((ledger.method, ledger.paid), tallies, strict=True):
                    for role, tally in own.items():
                        sums[role] = sums.get(role, Tally()) + tally
                recorded()
                yield from extracted

        with _cluster(workers, gpus):
            yield ledger, extractions

    return extract


@dataclass(frozen=True)
class Order:
    """The settings of a worker."""

    overrides: tuple[str, ...]
    config: Config
    store: Path
    working_directory: Path
    cache: Path


class Extractor:
    """One worker. Its engine stays loaded from batch to batch."""

    def __init__(self, order: Order) -> None:
        os.chdir(order.working_directory)
        os.environ["KGQA_CACHE"] = str(order.cache)
        self._order, self._session = order, Session(Experiment.of(order.overrides, order.config))

    def extract(self, passages: list[Passage]) -> Batch:
        """Return the extractions of some passages, and their cost."""
        builder = TripleBuilder(self._session)
        if builder.store.folder != self._order.store:
            raise ConfigError(
                f"a worker would build {builder.store.folder}, not {self._order.store} because its model differs"
            )
        with self._session.runner() as runner:
            extractions = list(builder.extractions(runner, passages))
        return extractions, runner.ledger.method, runner.ledger.paid


def _run(order: Order, batches: Iterator[list[Passage]], workers: int, gpus: int) -> Iterator[Batch]:
    """Yield the batches as they finish. Each worker has one, and one waits for it."""
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util import ActorPool

    options: dict[str, Any] = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": ATTEMPTS - 1}
    actor = ray.remote(**options)(Extractor)
    pool = ActorPool([actor.remote(order) for _ in range(workers)])
    waiting = 0
    try:
        for batch in batches:
            pool.submit(lambda worker, some: worker.extract.options(retry_exceptions=[EngineDied]).remote(some), batch)
            waiting += 1
            if waiting == 2 * workers:
                yield pool.get_next_unordered()
                waiting -= 1
        while pool.has_next():
            yield pool.get_next_unordered()
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise EngineDied(f"Ray gave up: {str(error).splitlines()[0]}") from error


@contextmanager
def _cluster(workers: int, gpus: int) -> Iterator[None]:
    """Open the cluster of `RAY_ADDRESS`, or a temporary one on 127.0.0.1."""
    import ray

    address = os.environ.get("RAY_ADDRESS", "local")
    own = {"num_cpus": workers, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **(own if address == "local" else {}))
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"RAY_ADDRESS={address}: {error}") from error
    try:
        resources = ray.cluster_resources()
        for option, kind, wanted in (("workers", "CPU", workers), ("gpus", "GPU", workers * gpus)):
            if resources.get(kind, 0) < wanted:
                raise ConfigError(f"--{option}: {wanted} {kind}s are needed, and Ray has {resources.get(kind, 0):.0f}")
        yield
    finally:
        ray.shutdown()


def _import_ray() -> None:
    """Import Ray, after setting what it reads from the environment at its import."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 starves workers on a busy machine
    if "RAY_ADDRESS" not in os.environ:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # in spite of its name: 127.0.0.1 on Linux, too
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"--ray: {error}. Install it: {install_command('ray')}") from error

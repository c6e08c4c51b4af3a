"""Own the open resources of an experiment: models, rankers and the call cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from kgqa.cache.store import CallCache
from kgqa.config import factories as parts
from kgqa.config.files import Node, groups
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.session.engines import Engines, Pool, RoleNodes, pool_key, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.runner import UNPREPARED, Prepared, Runner
from kgqa.protocols import Ranker, Retriever
from kgqa.retrieval.lexical import Lexical
from kgqa.runtime.costs import NOTHING, Spent
from kgqa.util.fs import call_cache

if TYPE_CHECKING:
    from kgqa.retrieval.graphs.links import PassageGraph

T = TypeVar("T")

TFIDF = Lexical()  # one for all sessions: it holds nothing


class Session:
    """The open parts of one experiment. Leaving it closes what it opened, and nothing else."""

    def __init__(self, experiment: Experiment, pool: Pool | None = None, calls: CallCache | None = None) -> None:
        """`pool`: what holds models beyond this session, `calls`: another call cache; else the session has its own."""
        self.experiment = experiment
        self._pool, self._lent = pool or Pool(), pool is not None
        self._calls = calls
        self._spent = NOTHING
        self._opened = ExitStack()
        if not self._lent:
            self._opened.callback(self._pool.close)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._opened.close()

    @cached_property
    def engines(self) -> Engines:
        """Return the engines of the method's roles."""
        return self.engines_of(role_nodes(self.experiment.config) if self.experiment.asks_models else {})

    def engines_of(self, nodes: RoleNodes) -> Engines:
        """Return engines for other roles, such as a judge's, held by the same pool."""
        return Engines(nodes, self._pool)

    @cached_property
    def cache(self) -> CallCache:
        if self._calls is not None:
            return self._calls
        cache = CallCache(call_cache())
        self._opened.callback(cache.close)
        return cache

    @contextmanager
    def runner(self, prepared: Prepared = UNPREPARED, engines: Engines | None = None) -> Iterator[Runner]:
        """Yield runs the programs of one stage, which ask the method's engines unless given others."""
        runner = Runner(self.cache, engines or self.engines, self.ranker, prepared, self.experiment.settings)
        try:
            yield runner
        finally:
            runner.close()
            self._spent += runner.spent()

    def spent(self) -> Spent:
        """Return what the calls of all stages that ended were paid for, whether or not they came to their end."""
        return self._spent

    def end_models(self) -> None:
        """Make room for other models; those of a pool that was lent stay."""
        if not self._lent:
            self._pool.close()

    def ranker(self, group: str) -> Ranker:
        """Return the one chosen in a group (ranker, demonstrations_ranker, reranker), or that of words alone
        (tfidf).
        """
        if group == "tfidf":
            return TFIDF
        return self._choose(group, lambda node: parts.ranker(node, group))

    @property
    def retriever(self) -> Retriever:
        return self._choose("retriever", parts.retriever)

    @property
    def linker(self) -> PassageGraph:
        """Return what links passages, chosen by `graph=`."""
        return self._choose("graph", parts.linker)

    def _choose(self, group: str, make: Callable[[Node], T]) -> T:
        """Return what was chosen in a group whose parts may hold a model. Raises ConfigError: nothing was."""
        node, method = self.experiment.config.get(group), self.experiment.name("method")
        if node is None:
            raise ConfigError(f"{group}=null: method={method} needs one; {nearest('', groups()[group])}")
        return self._pool.shared(pool_key(node), lambda: make(node))

"""The interfaces of components: datasets, methods, engines, rankers, retrievers and trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Fact, Facts, ModelCall, ModelReply, Neighbours, Program, Rank, Search
from kgqa.types import Answer, Json, Passage, Question, Triple


class Dataset(Protocol):
    """Questions in file order, each with the passages its file gives, and the corpus they can be searched in."""

    @property
    def file(self) -> Path:
        """Return the file of the questions. Raises DataError, which says where it was looked for."""
        ...

    @property
    def sha256(self) -> str:
        """Return the sha256 of all files that shape the questions: it stands for them in a run's identity."""
        ...

    def questions(self) -> Iterator[Question]: ...

    def passages(self) -> Iterator[Passage]:
        """Yield the corpus in order, each passage once; streamed, since it can be large."""
        ...

    def corpus_identity(self) -> Mapping[str, Json]:
        """Return what tells this corpus from any other: hashes of files, no paths. Cheap: the corpus is not read
        through.
        """
        ...


Need = Literal["model", "triples", "search", "pool", "graph", "ranker", "demonstrations_ranker", "reranker"]


class Method(Protocol):
    """A program per question. `uses`: what it asks; only that is built, and named in the run's identity.

    "model": all but those that only retrieve. "triples": the run extracts them before it starts the method. "search":
    it opens an index, or builds a small one. "pool": it searches pools alone, so that no corpus is needed. "graph": it
    links the passages of its questions before it starts the method.

    One that makes no sense where all its roles are one model has `separate_roles`, too: role → the key that says so.
    """

    @property
    def uses(self) -> frozenset[Need]: ...

    def answer(self, question: Question) -> Program[Answer]: ...


@runtime_checkable
class Demonstrating(Protocol):
    """A method that shows questions of a pool. `shows`: which, for the report; empty where it shows none after all."""

    @property
    def shows(self) -> str: ...


class Ranker(Protocol):
    """Scores texts against a query."""

    def identity(self) -> Mapping[str, Json]: ...

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        """Return one tuple per call, one score per text, in the texts' order; higher is better."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """A query to a finder. among: positions in the corpus that may be returned (None: all). facts: as of `Search`."""

    text: str
    k: int
    among: tuple[int, ...] | None = None
    facts: tuple[Fact, ...] | None = None


class Finder(Protocol):
    """An opened index."""

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        """For each query the positions in the corpus of its best passages, best first, equal scores by position."""
        ...

    def close(self) -> None:
        """Free what is open."""
        return


@runtime_checkable
class Retriever(Protocol):
    """A retriever: it indexes and searches a corpus. `retrieval.index` stores passages and manifest."""

    @property
    def pools(self) -> bool:
        """Return whether `Search.pool` works: a few passages are built and opened in a blink, many times."""
        ...

    def identity(self) -> Mapping[str, Json]:
        """Return everything except the corpus that can change the results."""
        ...

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """Write the index of `passages` into `folder`, calling `advance(n)` after n more passages.

        An interrupted build leaves its part there; the next one goes on from it or starts afresh.
        """
        ...

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        """Open what `build` wrote for these passages. Cheap: nothing heavy is loaded before the first query."""
        ...


@runtime_checkable
class ExpandingRetriever(Retriever, Protocol):
    """A retriever with a program that calls a model to build the index."""

    @property
    def writer(self) -> str:
        """Return the role of the model, or "" if the settings need none."""
        ...

    async def expand(
        self, passages: Sequence[Passage], folder: Path | None, advance: Callable[[int], None]
    ) -> Sequence[Passage]:
        """Return distinct further passages to index. They are at the end of what `build` and `open` get.

        Args:
            folder: as of `build`; None: plan only.
            advance: called with the number of replies that are new.
        """
        ...


@runtime_checkable
class FactFinder(Finder, Protocol):
    """A finder that starts from facts."""

    def find_facts(self, query: Query) -> tuple[Fact, ...]:
        """Return the `k` best facts for a query, best first."""
        ...


@runtime_checkable
class SearchProgram(Protocol):
    """A retriever with searches that can be programs. `uses`: {"model"} if searches or the index need one."""

    @property
    def uses(self) -> frozenset[Need]: ...

    def program_identity(self) -> Mapping[str, Json]:
        """Return everything beside the index and the model that can change what is found; empty: no program."""
        ...

    def search(self, call: Search) -> Program[tuple[Passage, ...]]:
        """Answer a method's search with other calls. The program's own `Search` goes to the index."""
        ...


class Index(Protocol):
    """Answers `Search` and `Facts`: a retriever's finder over one corpus."""

    def identity(self) -> Mapping[str, Json]: ...

    def search(self, calls: Sequence[Search]) -> Sequence[tuple[Passage, ...]]:
        """Return the passages of each call, see `Search` for scopes; fewer than `k` where the scope holds fewer."""
        ...

    def find_facts(self, calls: Sequence[Facts]) -> Sequence[tuple[Fact, ...]]:
        """Return the facts of each call, none if the retriever has no facts."""
        ...

    def find_titled(self, title: str) -> Sequence[Passage]:
        """Return the passages of the corpus with this title, in their order, or none if there is no corpus."""
        ...

    def close(self) -> None: ...


class TripleSource(Protocol):
    """Extracted triples by passage."""

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Return the triples of a passage, or none if extraction found none.

        Raises:
            DataError: the passage was never extracted.
        """
        ...


@runtime_checkable
class RetrievedTriples(TripleSource, Protocol):
    """The triples of a retriever: those of the file `path`, or without a file those that `extract` extracts."""

    @property
    def path(self) -> str | None: ...

    def identity(self) -> Json: ...

    def extract(self, passage: Passage) -> Program[tuple[Triple, ...]]: ...


class NeighbourSource(Protocol):
    """Passage graphs by pool."""

    def neighbours(self, call: Neighbours) -> tuple[Passage, ...]:
        """Return the neighbours in the pool's order, each once, the passage itself left out; empty where nothing
        links it.

        Raises:
            DataError: the pool does not hold the passage, or its graph on disk is damaged.
        """
        ...


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The data sent to an experiment tracker: settings as text, numeric figures, files to copy.

    series: by name what was measured again and again, as (step, value) in the order of steps.
    """

    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, float]
    files: tuple[Path, ...]
    series: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)


class Tracker(Protocol):
    """Takes a copy of a finished run, or of a training."""

    def check(self) -> None:
        """Raise ConfigError when its package is not installed."""
        ...

    def log(self, run: TrackedRun) -> str:
        """Log a run and return where the tracker stores it, for users.

        Raises:
            TrackerError: it took nothing, or not all.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """A model ready to answer. Nothing heavy is loaded before the first call needs it."""

    @property
    def streaming(self) -> bool:
        """Return whether this is a `StreamingEngine`. Otherwise it is a `BatchEngine`."""
        ...

    @property
    def counts_freely(self) -> bool:
        """Return whether `count_tokens` is arithmetic on the text: done at once, and not cached."""
        ...

    def identity(self) -> Mapping[str, Json]:
        """Return everything that can change a reply: weights' hash, chat template, backend, dtype, version of the
        adapter.
        """
        ...

    def render(self, call: ModelCall) -> str:
        """Return the exact text the model is given, special tokens included as text."""
        ...

    def count_tokens(self, text: str) -> int: ...

    def close(self) -> None:
        """Let go of memory, threads and processes; a call being answered may be cut short."""
        ...


class BatchEngine(Engine, Protocol):
    """Answers a list of calls at once. Slow where the list is short, so the scheduler fills it."""

    @property
    def batch_size(self) -> int:
        """Return the number of calls per forward pass."""
        ...

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        """Return a reply or that call's own error for each call, in order. Raising fails the whole batch."""
        ...


@runtime_checkable
class Adaptable(Protocol):
    """An engine whose weights can answer through adapters. `base`: itself, or of an adapted one what it stands on."""

    @property
    def base(self) -> Engine: ...

    def with_adapter(self, adapter: Adapter) -> Engine:
        """Return the same loaded weights with an adapter on them, and an identity of its own; the same one for each
        adapter.

        Where the weights are loaded already and cannot take another adapter, they are loaded again at the next call:
        name all adapters of a run before its first. Closing any of them closes all.

        Raises:
            ConfigError: the engine can take none, or not this one on these weights.
        """
        ...


Deliver = Callable[[ModelReply | Exception], None]


class StreamingEngine(Engine, Protocol):
    """Takes calls one by one and delivers each reply when it is ready."""

    @property
    def max_concurrency(self) -> int:
        """Return the maximum number of parallel calls. It can change as the engine measures."""
        ...

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        """Submit a call and return at once.

        `deliver` is called exactly once, from any thread, unless the engine is closed first.
        """
        ...

"""The interfaces of components: datasets, methods, engines, rankers, retrievers and trackers.

Your own component needs no base class. A class with these members is enough, see docs/OWN_CODE.md. It is a dataclass
with its settings as fields. kgqa derives from them what can change an answer, see `kgqa.util.settings`. A component
that reads files or weights has a method `loads() -> JsonObject` with their hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from kgqa.calls import Fact, ModelCall, ModelReply, Program, Rank, Search
from kgqa.types import Answer, Json, Passage, Question, Triple

if TYPE_CHECKING:
    from kgqa.artifacts.adapter import Adapter


class Dataset(Protocol):
    """Questions in file order, each with its passages, and the corpus to search."""

    @property
    def file(self) -> Path:
        """Return the file of the questions. Raise DataError with the searched paths if it is missing."""
        ...

    @property
    def sha256(self) -> str:
        """Return the sha256 of all files that define the questions. It is part of a run's identity."""
        ...

    def questions(self) -> Iterator[Question]: ...

    def passages(self) -> Iterator[Passage]:
        """Yield each passage of the corpus once, in order. A corpus can be too large for memory."""
        ...

    def corpus_identity(self) -> Mapping[str, Json]:
        """Return values that identify the corpus, such as hashes of its files, but no paths. Do not read the corpus."""
        ...


Need = Literal[
    "model", "triples", "search", "pool", "graph", "ranker", "demonstrations_ranker", "reranker", "functions",
    "stops",
]  # fmt: skip


class Method(Protocol):
    """A method answers one question at a time.

    A method that makes no sense if one model has all its roles also has `separate_roles`: role → its key. One with
    few-shot examples from a pool also has `shows`, their description for the report. One that calls a model without
    answering has `answers_questions = False`. One that reads the passages of its question, without "pool" or "triples"
    in `uses`, has `reads_passages = True`. One that does not suit every dataset has `check(questions)`, which gets
    all questions of the file. It yields warnings and raises DataError.
    """

    @property
    def uses(self) -> frozenset[Need]:
        """Return what the method needs. The run prepares only that, and only that is part of its identity.

        "model": calls of a model. "triples": extracted triples. "search": an index of the corpus. "pool": searches in
        `Search.pool`, without a corpus. "graph": links between the passages of a question. "ranker",
        "demonstrations_ranker", "reranker": the group of that name. "functions": function calls of the reader's engine.
        "stops": replies that report the stop string that ended them.
        """
        ...

    def answer(self, question: Question) -> Program[Answer]:
        """Answer a question. This is a coroutine that awaits calls of `kgqa.calls` and does no I/O."""
        ...


class Ranker(Protocol):
    """Scores texts against a query."""

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        """Return a tuple of scores per call, in the order of its texts. Higher is better."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """A query to a finder. among: allowed positions in the corpus (None: all). facts: see `Search`."""

    text: str
    k: int
    among: tuple[int, ...] | None = None
    facts: tuple[Fact, ...] | None = None


Progress = Callable[[int], None]  # called after n more passages
# for each query the positions of its passages, best first
Rankings = Sequence[Sequence[int]]


class Finder(Protocol):
    """An opened index."""

    def find(self, queries: Sequence[Query]) -> Rankings:
        """Return the corpus positions of each query's best passages, best first. Equal scores are in corpus order."""
        ...

    def close(self) -> None:
        """Free memory and files."""
        return


@runtime_checkable
class Retriever(Protocol):
    """Indexes a corpus and searches it. kgqa stores the passages and a manifest next to the index."""

    @property
    def pools(self) -> bool:
        """Return whether `Search.pool` works. kgqa then builds and opens many indexes of a few passages."""
        ...

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Write the index of `passages` into `folder`. Call `advance(n)` after n more passages.

        The folder can contain an interrupted build. Continue it, or start from scratch.
        """
        ...

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        """Open the index that `build` wrote for these passages. Load nothing heavy before the first query."""
        ...


@runtime_checkable
class ExpandingRetriever(Retriever, Protocol):
    """A retriever with a program that calls a model to build the index."""

    @property
    def writer(self) -> str:
        """Return the role of the model, or "" if the settings need none."""
        ...

    async def expand(
        self, passages: Sequence[Passage], folder: Path | None, advance: Progress
    ) -> Sequence[Passage]:
        """Return distinct further passages to index. `build` and `open` get them after those of the corpus.

        Args:
            folder: see `build`. None: a dry run.
            advance: call it with the number of new replies.
        """
        ...


@runtime_checkable
class MeasuredRetriever(Retriever, Protocol):
    """A retriever that needs more of a passage than its text, such as triples."""

    def count_lacks(self, passages: Sequence[Passage], folder: Path | None) -> Mapping[str, int]:
        """Return the numbers of passages that lack something, by the keys of `artifacts.metrics.LACKS`.

        folder: of the built index. None: passages of questions, of which only a file can be compared.
        """
        ...


@runtime_checkable
class FactFinder(Finder, Protocol):
    """A finder that starts from facts."""

    def find_facts(self, query: Query) -> tuple[Fact, ...]:
        """Return the `query.k` best facts, best first."""
        ...


@runtime_checkable
class TreeFinder(Finder, Protocol):
    """A finder of passages and of summaries of them."""

    def find_leaves(self, ids: Collection[str]) -> Sequence[Passage]:
        """Return the passages under these summaries, each once. Ids of passages have none."""
        ...


@runtime_checkable
class EntityFinder(Finder, Protocol):
    """A finder that starts from entities of the query."""

    def has_entities(self, text: str) -> bool:
        """Return whether the index has an entity of a text."""
        ...


@runtime_checkable
class SearchProgram(Protocol):
    """A retriever with searches that make calls of their own, for example to a model."""

    @property
    def uses(self) -> frozenset[Need]:
        """Return {"model"} if searches or the index need a model."""
        ...

    @property
    def has_program(self) -> bool:
        """Return whether `search` is used. Otherwise kgqa searches the index directly."""
        ...

    def search(self, call: Search) -> Program[tuple[Passage, ...]]:
        """Answer a method's search with other calls. A `Search` of this program goes to the index."""
        ...


@runtime_checkable
class KnownTriples(Protocol):
    """Triples in a file."""

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Return the triples of a passage, none if the file does not have it."""
        ...


@runtime_checkable
class ExtractingProgram(Protocol):
    """Extracts the triples of a passage with cached calls."""

    def extract(self, passage: Passage) -> Program[tuple[Triple, ...]]: ...


@runtime_checkable
class TripleSource(KnownTriples, Protocol):
    """The triples of a retriever in a file, if it is set."""

    @property
    def path(self) -> str | None:
        """Return the file with the triples. None: a model describes the passages."""
        ...

    def missing(self, passages: Iterable[Passage]) -> list[Passage]:
        """Return the passages that the file does not have."""
        ...


@runtime_checkable
class RetrievedTriples(TripleSource, Protocol):
    """The triples of a retriever: of the file, or extracted when the index is built."""

    def extract(self, passage: Passage) -> Program[tuple[tuple[Triple, ...], bool]]:
        """Extract the triples of a passage. Return them, and whether the model's reply could be read."""
        ...


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The data for an experiment tracker. series: figures by name, as (step, value) in the order of steps."""

    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, float]
    files: tuple[Path, ...]
    series: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)


class Tracker(Protocol):
    """Copies a finished run or training to a tracking service."""

    def check(self) -> None:
        """Raise ConfigError if the tracker's package is not installed."""
        ...

    def log(self, run: TrackedRun) -> str:
        """Log a run. Return where users find it.

        Raises:
            TrackerError: not everything was stored.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """A model. It loads nothing heavy before the first call."""

    @property
    def streaming(self) -> bool:
        """Return True for a `StreamingEngine`, False for a `BatchEngine`."""
        ...

    @property
    def estimates_tokens(self) -> bool:
        """Return whether `count_tokens` takes no time. Its results are then not cached."""
        ...

    def render(self, call: ModelCall) -> str:
        """Return the text that the model reads, with its special tokens."""
        ...

    def count_tokens(self, text: str) -> int: ...

    def close(self) -> None:
        """Free memory, threads and processes. Calls in progress can be dropped."""
        ...


class BatchEngine(Engine, Protocol):
    """Answers calls in batches, which the scheduler fills."""

    @property
    def batch_size(self) -> int:
        """Return the number of calls per forward pass."""
        ...

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        """Return a reply or an error for each call, in order. An exception that is raised fails all calls."""
        ...


@runtime_checkable
class NeedsKey(Protocol):
    """An engine whose server can require a key."""

    def find_key(self) -> str | None:
        """Return the key. Raises ConfigError: it is missing."""
        ...


@runtime_checkable
class ReachesServer(Protocol):
    """An engine or an encoder on a server."""

    def check_server(self) -> None:
        """Check the server once, before the run costs anything.

        Raises:
            ConfigError: it lacks the model, or rejects the key or a small request.
            EngineDied: it does not answer.
        """
        ...


@runtime_checkable
class Adaptable(Protocol):
    """An engine with adapters."""

    @property
    def base(self) -> Engine:
        """Return the engine without an adapter."""
        ...

    def with_adapter(self, adapter: Adapter) -> Engine:
        """Return an engine that answers through the adapter. It shares the loaded weights and has its own identity.

        Call this for all adapters before the first call: some engines load the weights again for another adapter.
        Closing one of the engines closes all.

        Raises:
            ConfigError: the engine or the weights do not fit the adapter.
        """
        ...


Deliver = Callable[[ModelReply | Exception], None]


class StreamingEngine(Engine, Protocol):
    """Accepts calls one by one and delivers each reply when it is ready."""

    @property
    def max_concurrency(self) -> int:
        """Return the maximum number of parallel calls. It can change at any time."""
        ...

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        """Submit a call and return at once.

        `deliver` is called exactly once, from any thread, unless the engine is closed first.
        """
        ...

"""What a method may ask of the outside world.

A method is a coroutine. Awaiting one of these calls suspends it; whoever drives the coroutine (see
`runtime.scheduler`) decides when, by whom and in which batch the call is answered. A reply that is an
exception is raised in the method. A forgotten `await` is a type error under mypy's unused-awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from dataclasses import dataclass
from functools import cache
from itertools import product
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Generic, Literal, TypeVar

from kgqa.types import Choice, Completion, Passage, Prompt, Triple

T = TypeVar("T")
Program = Coroutine["Call[Any]", Any, T]


class Call(Generic[T]):
    """One request to the outside world; awaiting it gives a `T`."""

    __slots__ = ()

    def __await__(self) -> Generator[Call[T], T, T]:
        return (yield self)


@dataclass(frozen=True, slots=True)
class Generate(Call[Completion]):
    """Let a model write. Greedy at temperature 0; sampled calls get their seed from the scheduler."""

    prompt: Prompt
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    schema: str | None = None  # JSON schema, as JSON text, that the reply must follow; see `Completion.flags`
    role: str = "reader"  # which of the experiment's models answers


@dataclass(frozen=True, slots=True)
class Choose(Call[Choice]):
    """The model's distribution over `options` as the next thing it would write after the prompt.

    Options are labels as `labels()` gives them. The reply is normalised over the options alone.
    """

    prompt: Prompt
    options: tuple[str, ...]
    role: str = "selector"


@dataclass(frozen=True, slots=True)
class CountTokens(Call[int]):
    """Length of a text in tokens of the role's model, special tokens left out."""

    text: str
    role: str = "reader"


@dataclass(frozen=True, slots=True)
class Rank(Call[tuple[float, ...]]):
    """Relevance of each text to the query, in the order of `texts`; higher is better.

    scorer: the configuration's group of that name; "tfidf" is `retrieval.lexical`, which nothing has to be chosen for.
    """

    query: str
    texts: tuple[str, ...]
    scorer: Literal["ranker", "demonstrations_ranker", "reranker", "tfidf"] = "ranker"  # a group, or words alone


@dataclass(frozen=True, slots=True)
class Search(Call[tuple[Passage, ...]]):
    """The `k` best passages of the experiment's retriever, best first; fewer where the scope holds fewer.

    Scope: the whole corpus; or, with `titles`, its passages that have one of these titles; or, with `pool`, these
    passages alone, as if they were the corpus.
    """

    query: str
    k: int
    titles: tuple[str, ...] | None = None
    pool: tuple[Passage, ...] | None = None


@dataclass(frozen=True, slots=True)
class Triples(Call[tuple[Triple, ...]]):
    """The triples that were extracted from a passage; empty where extraction found none."""

    passage: Passage


@dataclass(frozen=True, slots=True)
class Neighbours(Call[tuple[Passage, ...]]):
    """The passages that share an edge with `passage` in the experiment's graph, in the pool's order; never itself.

    `pool`: the graph is that of these passages alone; None: of the whole corpus.
    """

    passage: Passage
    pool: tuple[Passage, ...] | None = None


ModelCall = Generate | Choose
ModelReply = Completion | Choice


class Gather(Call[list[Any]]):
    """Run programs side by side; gives each one's result or the exception that ended it, in order."""

    __slots__ = ("programs",)

    def __init__(self, *programs: Program[Any]) -> None:
        self.programs = programs


async def settle(*awaitables: Awaitable[T]) -> list[T | Exception]:
    """Run side by side, so that the calls share batches; failures are returned, not raised."""
    return await Gather(*(a if isinstance(a, Coroutine) else _program(a) for a in awaitables))


async def gather(*awaitables: Awaitable[T]) -> list[T]:
    """Run side by side, wait for all, then raise the first failure by position, if any."""
    results: list[T] = []
    for result in await settle(*awaitables):
        if isinstance(result, Exception):
            raise result
        results.append(result)
    return results


async def _program(awaitable: Awaitable[T]) -> T:
    return await awaitable


def labels(count: int) -> tuple[str, ...]:
    """Option labels: A–Z, a–z, then AA, AB, …"""
    if count > len(_labels()):
        raise ValueError(f"{count} options; at most {len(_labels())} can be labelled")
    return _labels()[:count]


@cache
def _labels() -> tuple[str, ...]:
    pairs = ("".join(pair) for pair in product(ascii_uppercase, repeat=2))
    return (*ascii_uppercase, *ascii_lowercase, *pairs)

"""The calls that a method can make.

A method is a coroutine. Awaiting a call suspends it until `runtime.scheduler` sends the reply. A reply that is an
exception is raised in the method. mypy finds a forgotten `await` (unused-awaitable).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Generic, Literal, TypeVar

from kgqa.types import AgentReply, Choice, Completion, Passage, Prompt, Question, Triple

T = TypeVar("T")
Scorer = Literal["ranker", "demonstrations_ranker", "reranker", "tfidf"]
Program = Coroutine["Call[Any]", Any, T]
Fact = tuple[str, str, str]  # head, relation, tail


class Call(Generic[T]):
    """A request to an engine, ranker or index. Awaiting it returns a `T`."""

    __slots__ = ()

    def __await__(self) -> Generator[Call[T], T, T]:
        return (yield self)


@dataclass(frozen=True, slots=True)
class Generate(Call[Completion]):
    """Generate a text. It is greedy at temperature 0. Sampled calls get their seed from the scheduler.

    thoughts: "split" separates reasoning from the text. "keep" returns the text as the model writes it. The model then
    ignores `model.thinking`.
    tools: the functions that the model can call, as JSON of OpenAI's `tools`. Only engine=openai accepts them.
    tool_choice: JSON of OpenAI's `tool_choice`. None: the model decides.
    logprobs: the reply has its tokens with their log-probabilities, and those of so many likeliest tokens per place.
    Only an engine with `lists_logprobs` has them.
    """

    prompt: Prompt
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    # JSON schema as text, which the reply must follow; see `Completion.flags`
    schema: str | None = None
    role: str = "reader"  # the experiment's model that answers
    thoughts: Literal["split", "keep"] = "split"
    tools: str | None = None
    tool_choice: str | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _check_prompt(self.prompt)

    def cut(self, text: str) -> str:
        """Return the text up to the first stop string."""
        return self.split_at_stop(text)[0]

    def split_at_stop(self, text: str) -> tuple[str, str]:
        """Return the text up to the first stop string, and this string, or "" if the text has none."""
        places = [(place, stop) for stop in self.stop if (place := text.find(stop)) >= 0]
        place, stop = min(places, default=(len(text), ""), key=itemgetter(0))
        return text[:place], stop


@dataclass(frozen=True, slots=True)
class Choose(Call[Choice]):
    """Compute the model's distribution over `options` (see `labels`) as the next text, normalized over the options."""

    prompt: Prompt
    options: tuple[str, ...]
    role: str = "selector"

    def __post_init__(self) -> None:
        _check_prompt(self.prompt)


@dataclass(frozen=True, slots=True)
class CountTokens(Call[int]):
    """Count the tokens of a text for the role's model, without special tokens."""

    text: str
    role: str = "reader"


@dataclass(frozen=True, slots=True)
class Rank(Call[tuple[float, ...]]):
    """Compute the relevance of each text to the query, in the order of `texts`. Higher is better.

    scorer: the group of the configuration, or "tfidf" for `retrieval.lexical`, which needs no configuration.
    """

    query: str
    texts: tuple[str, ...]
    scorer: Scorer = "ranker"


@dataclass(frozen=True, slots=True)
class Search(Call[tuple[Passage, ...]]):
    """Find the `k` best passages with the experiment's retriever, best first, or fewer if the scope has fewer.

    The scope is the complete corpus. With `titles` it is the passages with one of these titles. With `pool` it is these
    passages, as if they were the corpus. With `keywords` there is no retriever: the best passages contain the most
    keywords, see `retrieval.search`.
    facts: the start of a retriever of facts. None: it uses the best ones.
    positions: the passages at these places of the scope, from 0, instead of a search. Unknown places are left out.
    """

    query: str
    k: int
    titles: tuple[str, ...] | None = None
    pool: tuple[Passage, ...] | None = None
    keywords: tuple[str, ...] | None = None
    facts: tuple[Fact, ...] | None = None
    positions: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Locate(Call[tuple[int, ...]]):
    """Find the place of each passage in the corpus, from 0, or -1 for an unknown passage. pool: see `Search`."""

    passages: tuple[Passage, ...]
    pool: tuple[Passage, ...] | None = None


@dataclass(frozen=True, slots=True)
class Facts(Call[tuple[Fact, ...]]):
    """Find the `k` best facts with the experiment's retriever, best first. pool: see `Search`."""

    query: str
    k: int
    pool: tuple[Passage, ...] | None = None


@dataclass(frozen=True, slots=True)
class Triples(Call[tuple[Triple, ...]]):
    """Return the triples that were extracted from a passage, if any."""

    passage: Passage


@dataclass(frozen=True, slots=True)
class Neighbours(Call[tuple[Passage, ...]]):
    """Find the passages with an edge to `passage` in the experiment's graph, in the pool's order.

    pool: the passages of the graph. None: the complete corpus.
    """

    passage: Passage
    pool: tuple[Passage, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunAgent(Call[AgentReply]):
    """Run an agent that is no program of kgqa. While this call waits, the agent's calls are parts of the question.

    agent: the method that describes it, see `methods.outside`. name: for the trace.
    """

    agent: Any
    question: Question
    name: str


ModelCall = Generate | Choose
ModelReply = Completion | Choice


class Gather(Call[list[Any]]):
    """Run programs concurrently. The reply has the result of each, or the exception that ended it, in order."""

    __slots__ = ("programs",)

    def __init__(self, *programs: Program[Any]) -> None:
        self.programs = programs


async def settle(*awaitables: Awaitable[T]) -> list[T | Exception]:
    """Run concurrently, so that calls share batches. Return failures instead of raising them."""
    return await Gather(*(a if isinstance(a, Coroutine) else _program(a) for a in awaitables))


async def gather(*awaitables: Awaitable[T]) -> list[T]:
    """Run concurrently and wait for all. Raise the first failure by position, if any."""
    results: list[T] = []
    for result in await settle(*awaitables):
        if isinstance(result, Exception):
            raise result
        results.append(result)
    return results


async def rank(
    query: str, items: Sequence[T], text: Callable[[T], str], scorer: Scorer = "ranker"
) -> list[tuple[float, T]]:
    """Return the items with the relevance of their texts, best first, ties in the given order."""
    scores = await Rank(query, tuple(map(text, items)), scorer) if items else ()
    return sorted(zip(scores, items, strict=True), key=lambda ranked: -ranked[0])


def _check_prompt(prompt: object) -> None:
    if not isinstance(prompt, Prompt):
        raise TypeError(
            f"prompt must be a Prompt, such as kgqa.prompting.render returns, not {type(prompt).__name__}"
        )


async def _program(awaitable: Awaitable[T]) -> T:
    return await awaitable


LABELS = (
    *ascii_uppercase,
    *ascii_lowercase,
    *("".join(pair) for pair in product(ascii_uppercase, repeat=2)),
)


def labels(count: int) -> tuple[str, ...]:
    """Return option labels: A–Z, a–z, then AA, AB, …"""
    if count > len(LABELS):
        raise ValueError(f"{count} options are more than the maximum of {len(LABELS)}")
    return LABELS[:count]

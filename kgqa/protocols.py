"""The seams: what a dataset, a method, an engine and a ranker must offer. Structural, no base classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from kgqa.calls import ModelCall, ModelReply, Program, Rank
from kgqa.types import Answer, Json, Passage, Question, Triple


class Dataset(Protocol):
    """Questions in file order, each with the passages its file gives."""

    def questions(self) -> Iterator[Question]: ...


class Method(Protocol):
    """A program per question. `needs_triples`: the run extracts triples before it starts the method."""

    @property
    def needs_triples(self) -> bool: ...

    def answer(self, question: Question) -> Program[Answer]: ...


@runtime_checkable
class Engine(Protocol):
    """A model ready to answer. Nothing heavy is loaded before the first call needs it."""

    streaming: ClassVar[bool]

    def identity(self) -> Mapping[str, Json]:
        """Everything that can change a reply: weights' hash, chat template, backend, dtype, version of the adapter."""
        ...

    def render(self, call: ModelCall) -> str:
        """The exact text the model is given, special tokens included as text."""
        ...

    def count_tokens(self, text: str) -> int: ...

    def close(self) -> None:
        """Let go of memory, threads and processes; a call being answered may be cut short."""
        ...


class BatchEngine(Engine, Protocol):
    """Answers a list of calls at once. Slow where the list is short, so the scheduler fills it."""

    batch_size: int  # calls per forward pass

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        """A reply or that call's own error for each call, in order. Raising fails the whole batch."""
        ...


class StreamingEngine(Engine, Protocol):
    """Takes calls one by one and delivers each reply when it is ready."""

    @property
    def concurrency(self) -> int:
        """Calls it can work on at once; it is never given more."""
        ...

    def submit(self, call: ModelCall, deliver: Callable[[ModelReply | Exception], None]) -> None:
        """Returns at once; `deliver` is called exactly once, from any thread, unless the engine is closed first."""
        ...


class Ranker(Protocol):
    """Scores texts against a query."""

    def identity(self) -> Mapping[str, Json]: ...

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        """One tuple per call, one score per text, in the texts' order; higher is better."""
        ...


class TripleSource(Protocol):
    """Extracted triples by passage."""

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Empty where extraction found nothing.

        Raises:
            DataError: the passage was never extracted.
        """
        ...

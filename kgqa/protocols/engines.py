"""The interfaces of engines: batches or streams, with or without adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import ModelCall, ModelReply
from kgqa.types import Json


@runtime_checkable
class Engine(Protocol):
    """A model ready to answer. Nothing heavy is loaded before the first call needs it."""

    streaming: ClassVar[bool]

    @property
    def counts_freely(self) -> bool:
        """Return whether `count_tokens` is arithmetic on the text: done at once then, and not kept."""
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

    batch_size: int  # calls per forward pass

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
    def places(self) -> int:
        """Return calls it can work on at once; it is never given more. May change as the engine learns."""
        ...

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        """Return at once; `deliver` is called exactly once, from any thread, unless the engine is closed first."""
        ...

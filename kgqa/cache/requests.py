"""A call on its way to a service, and the reply on its way back."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple


class Request(NamedTuple):
    """A call on its way. Requests sort by the question's place and the call's place in its program."""

    order: tuple[int, ...]
    ticket: int
    call: Any  # a Call; each service knows its own kind
    since: float  # `time.monotonic()` when it was submitted


class ServiceReply(NamedTuple):
    """A reply on its way back."""

    ticket: int
    value: Any  # an exception is raised in the program
    cached: bool  # from the cache, or from an identical call that was in flight
    queued: float = 0.0  # seconds between submitting and the start of the work; 0 for a cached reply
    seconds: float = 0.0  # of work that is not a model's; calls answered together share it equally


Done = SimpleQueue[ServiceReply | Callable[[], None]]  # replies, and work to do before they come, such as a commit


def next_reply(done: Done) -> ServiceReply:
    """Wait for the next reply and do the work that is queued before it."""
    while not isinstance(item := done.get(), ServiceReply):
        item()
    return item

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
    since: float  # `time.monotonic()` when it was asked


class ServiceReply(NamedTuple):
    ticket: int
    value: Any  # an exception is raised in the program
    cached: bool  # nothing was paid for it: found in the cache, or asked by another program at the same time
    queued: float = 0.0  # seconds between asking and the start of the work; 0 for a cached reply
    seconds: float = 0.0  # the work itself where it is no model's; calls answered together share it equally


Done = SimpleQueue[ServiceReply | Callable[[], None]]  # what else is to be done before replies come, as committing them


def next_reply(done: Done) -> ServiceReply:
    """Waits for it, and does what is to be done before."""
    while not isinstance(told := done.get(), ServiceReply):
        told()
    return told

"""The causes for which kgqa waits, for progress lines: a failing server, a lock of another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

# of one wait, in a few words; "" while it does not wait
Describe = Callable[[], str]

_waits: list[Describe] = []


def add_wait(describe: Describe) -> None:
    """Show a wait until `remove_wait`."""
    _waits.append(describe)


def remove_wait(describe: Describe) -> None:
    """Stop showing a wait, if it is shown."""
    if describe in _waits:
        _waits.remove(describe)


@contextmanager
def waiting(cause: str) -> Iterator[None]:
    """Show a cause while the block runs."""

    wait = partial(str, cause)
    add_wait(wait)
    try:
        yield
    finally:
        remove_wait(wait)


def describe_waits() -> str:
    """Return the causes of all waits; "" if kgqa does not wait. Any thread can call it."""
    return " · ".join(dict.fromkeys(filter(None, (describe() for describe in tuple(_waits)))))

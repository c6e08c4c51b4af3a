"""What kgqa waits for, so that every progress line can show it: a server that fails, a lock of another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Describe = Callable[[], str]  # of one wait, in a few words; "" while it does not wait

_waits: list[Describe] = []


def add_wait(describe: Describe) -> None:
    """Show a wait until `remove_wait`."""
    _waits.append(describe)


def remove_wait(describe: Describe) -> None:
    """Show a wait no longer. Do nothing if it is not shown."""
    if describe in _waits:
        _waits.remove(describe)


@contextmanager
def waiting(cause: str) -> Iterator[None]:
    """Show a cause while the block runs."""

    def describe() -> str:
        return cause

    add_wait(describe)
    try:
        yield
    finally:
        remove_wait(describe)


def describe_waits() -> str:
    """Return the causes of all waits; "" if kgqa does not wait. Any thread can call it."""
    return " · ".join(dict.fromkeys(filter(None, (describe() for describe in tuple(_waits)))))

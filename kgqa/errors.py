"""Every error kgqa raises on purpose.

KgqaError
├── UsageError            the caller's mistake or the machine's state: one line, exit code 2
│   ├── ConfigError       a key, a value or a combination of them
│   ├── DataError         a data file or an artefact on disk
│   ├── BudgetSpent       what may be paid for is paid for: a sweep leaves the rest
│   └── StorageError      a disk that is full, read-only or broken
├── TrackerError          an experiment tracker took no copy of a run: a warning
└── EngineError           one call could not be answered: that question's error
    ├── PromptTooLong     a method may catch it and shorten
    └── EngineDied        no call can be answered any more: the run stops, exit code 3
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class KgqaError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(KgqaError):
    """Something the person at the keyboard can mend; the message says how."""


class ConfigError(UsageError):
    """A key, a value, or a combination of them is wrong."""


class DataError(UsageError):
    """A file is missing, broken, or not what its name says."""


class BudgetSpent(UsageError):
    """What may be paid for has been paid for; everything answered is saved."""


class StorageError(UsageError):
    """The disk refused to keep something."""


class TrackerError(KgqaError):
    """An experiment tracker did not take what it was told; the run is complete without it."""


class EngineError(KgqaError):
    """An engine could not answer one call."""


class PromptTooLong(EngineError):
    """Prompt and reply together exceed the model's context."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"prompt of {tokens} tokens does not fit the model's limit of {limit}")
        self.tokens, self.limit = tokens, limit

    def __reduce__(self) -> tuple[type[PromptTooLong], tuple[int, int]]:
        return PromptTooLong, (self.tokens, self.limit)


class EngineDied(EngineError):
    """The engine answers no call any more."""


def of_one_call(error: BaseException) -> KgqaError:
    """What an engine's library threw, as the error of the call it was answering; ours stay as they are."""
    return error if isinstance(error, KgqaError) else EngineError(f"{type(error).__name__}: {error}")


def note(error: BaseException, text: str) -> None:
    """Add a line that is told behind the error's own: `add_note`, which Python 3.10 lacks."""
    vars(error).setdefault("__notes__", []).append(text)


def notes(error: BaseException) -> tuple[str, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(vars(error).get("__notes__", ())))


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint to append to a message: the likeliest of `choices`, else all of them."""
    known = sorted(choices)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"choose from: {', '.join(known)}"

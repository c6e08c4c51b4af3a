"""The errors that kgqa raises.

KgqaError
├── UsageError            wrong input or the machine's state: one line, exit code 2
│   ├── ConfigError       a key, a value or a combination of them
│   │   ├── MissingWeights a model's weights are not on this machine
│   │   ├── SeveralRunsError a word of the command line means several runs
│   │   └── PromptError   a template is missing, wrong, or cannot be rendered
│   │       ├── NoMessage    it has no block for a message
│   │       └── UnknownValue it uses a value that the method does not pass
│   ├── DataError         a data file or an artifact on disk
│   ├── BudgetSpent       the budget is spent: a sweep skips the rest
│   └── StorageError      a disk that is full, read-only or broken
├── TrackerError          an experiment tracker failed: a warning
└── EngineError           one call failed: an error of its question
    ├── PromptTooLong     a method can catch it and shorten its prompt
    └── EngineDied        the engine crashed: the run stops, exit code 3
        └── ServerLost    a server does not answer: a sweep stops, too
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgqa.types import Usage


TOO_LONG = (
    "the prompt has {tokens:,} tokens, and there is room for {limit:,}. "
    "Increase engine.max_model_len, or use fewer passages."
)

# names in a message
MAX_LISTED = 50
# share of the calls of a step
MAX_FAILED = 0.05


class KgqaError(Exception):
    """The base of kgqa's errors."""


class UsageError(KgqaError):
    """An error that the user can fix. The message explains how."""


class ConfigError(UsageError):
    """A key, a value, or a combination of them is wrong."""


class MissingWeights(ConfigError):
    """The weights of a model are not on this machine."""


class DataError(UsageError):
    """A file is missing, damaged or has the wrong content."""


class InvalidScores(UsageError):
    """A run has answers, but its scores are not valid."""


class BudgetSpent(UsageError):
    """The budget is spent. All answers are saved."""


class SeveralRunsError(ConfigError):
    """A word of the command line means several runs. names: of the finished ones, newest first.

    needed: the number of runs that the command needs for this word. title: of the command with these runs.
    """

    def __init__(
        self, message: str, word: str, names: Sequence[str], needed: int = 1, title: str = ""
    ) -> None:
        super().__init__(message)
        self.word, self.names, self.needed, self.title = word, names, needed, title


class PromptError(ConfigError):
    """A template is missing, has wrong syntax, or cannot be rendered."""


class NoMessage(PromptError):
    """A template has no block for a message."""


class UnknownValue(PromptError):
    """A template uses a value that the method does not pass."""


class StorageError(UsageError):
    """The disk is full, read-only or broken."""


class TrackerError(KgqaError):
    """An experiment tracker failed. The run is complete without it."""


class EngineError(KgqaError):
    """A call to an engine failed. usage: the charged tokens, if any."""

    usage: Usage | None = None

    def charge(self, usage: Usage) -> None:
        """Add the usage of a part of the call."""
        if usage.tokens:
            self.usage = self.usage + usage if self.usage else usage


class PromptTooLong(EngineError):
    """Prompt and reply exceed the model's context. message: replaces the numbers if they are estimates."""

    def __init__(self, tokens: int, limit: int, message: str = "") -> None:
        super().__init__(message or TOO_LONG.format(tokens=tokens, limit=limit))
        self.tokens, self.limit, self.message = tokens, limit, message

    def __reduce__(self) -> tuple[type[PromptTooLong], tuple[int, int, str]]:
        return PromptTooLong, (self.tokens, self.limit, self.message)


class EngineDied(EngineError):
    """The engine crashed."""


class ServerLost(EngineDied):
    """A server has not answered any call for `engine.server_timeout` seconds."""


def as_call_error(error: BaseException) -> KgqaError:
    """Return kgqa's errors unchanged, and other exceptions as an EngineError."""
    return (
        error if isinstance(error, KgqaError) else EngineError(f"{type(error).__name__}: {error}")
    )


def has_too_many_failures(failed: int, attempted: int) -> bool:
    """Return whether more than 5 % of the calls of a step failed.

    One failure is allowed, because a server can reject a text for its content, but not if it is the only call.
    """
    return bool(failed) and failed > min(max(1, MAX_FAILED * attempted), attempted - 1)


def note(error: BaseException, text: str) -> None:
    """Add a line to print after the error, like `add_note` of Python 3.11."""
    vars(error).setdefault("__notes__", []).append(text)


def notes(error: BaseException) -> tuple[str, ...]:
    """Return the notes in their order, without duplicates."""
    return tuple(dict.fromkeys(vars(error).get("__notes__", ())))


# the hint at the names of an empty list
NO_CHOICES = "There are none."


def nearest(name: str, choices: Iterable[str], prefix: str = "") -> str:
    """Return a hint for a message: the choices closest to `name`, or all of them, each after the prefix."""
    options = sorted(choices)
    if not options:
        return NO_CHOICES
    spelled = {each.casefold(): each for each in options}
    if name.casefold() in spelled:
        return f"Did you mean {prefix}{spelled[name.casefold()]}?"
    start = _plain(name)
    longer = [each for each in spelled if start and _plain(each).startswith(start)]
    shorter = [each for each in spelled if len(each) > 2 and start.startswith(_plain(each))]
    # below this similarity, words have only a few letters in common
    close = get_close_matches(name.casefold(), spelled, n=3, cutoff=0.65)
    listed = [f"{prefix}{spelled[each]}" for each in dict.fromkeys((*longer, *shorter, *close))][:3]
    if listed:
        return f"Did you mean {' or '.join(listed)}?"
    names = [f"{prefix}{each}" for each in options[:MAX_LISTED]]
    more = f" and {len(options) - MAX_LISTED:,} more" if len(options) > MAX_LISTED else ""
    return f"Choose from: {', '.join(names)}{more}."


def _plain(name: str) -> str:
    """Return a name without capitals and punctuation: gpt-4o starts as gpt_4o_mini does."""
    return "".join(filter(str.isalnum, name.casefold()))

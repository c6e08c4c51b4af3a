"""Isolation of the call that makes a batch fail: the batch is halved until the call is alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kgqa.errors import EngineDied, EngineError, KgqaError
from kgqa.util.redaction import describe_error

MAX_FAILURES = 3  # calls in a row that fail alone, after which the engine counts as crashed


class BatchIsolator:
    """Answers batches with `answer`. Whatever it raises becomes an error of calls, because it runs in a thread.

    An exception that is no `Exception` (a panic of a library in Rust) means that the engine crashed. Interrupts and
    exits are passed on as they are.
    """

    def __init__(self, answer: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._answer = answer
        self._failures = 0  # in a row

    def __call__(self, calls: Sequence[Any]) -> list[Any]:
        try:
            replies = list(self._answer(calls))
            if len(replies) != len(calls):
                raise ValueError(f"{len(replies)} replies to {len(calls)} calls")  # noqa: TRY301 - as if it raised it
        except KgqaError as error:
            return [error] * len(calls)
        except Exception as error:  # noqa: BLE001 - whatever third-party code raises
            if len(calls) > 1:
                middle = len(calls) // 2
                return [*self(calls[:middle]), *self(calls[middle:])]
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                return [EngineDied(f"the engine crashed: {describe_error(error)}")]
            return [EngineError(describe_error(error))]
        except (KeyboardInterrupt, SystemExit) as stop:
            return [stop] * len(calls)
        except BaseException as error:  # noqa: BLE001 - a panic: the engine's state is unknown
            return [EngineDied(f"the engine crashed: {describe_error(error)}")] * len(calls)
        self._failures = 0
        return replies

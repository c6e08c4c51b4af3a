"""A batch that fails as a whole is halved until the call that spoils it stands alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kgqa.errors import EngineDied, EngineError, KgqaError
from kgqa.redaction import told


class Bisecting:
    """Answers batches with `answer`; whatever it throws becomes the error of calls, for nobody would hear a thread die.

    What is no `Exception` (a panic of a library in Rust) says that the engine died; an interrupt and an exit are handed
    on as they are.
    """

    def __init__(self, answer: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._answer = answer
        self._failures = 0  # calls in a row that failed without an error of their own

    def __call__(self, calls: Sequence[Any]) -> list[Any]:
        try:
            replies = list(self._answer(calls))
            if len(replies) != len(calls):
                raise ValueError(f"{len(replies)} replies to {len(calls)} calls")  # noqa: TRY301 - as one it throws
        except KgqaError as error:
            return [error] * len(calls)
        except Exception as error:  # noqa: BLE001 - whatever third-party code throws becomes an error of ours
            if len(calls) == 1:
                self._failures += 1
                died = self._failures >= 3  # alone, three times running: it is the engine
                reason = told(error)
                return [EngineDied(f"the engine died: {reason}") if died else EngineError(reason)]
            middle = len(calls) // 2
            return [*self(calls[:middle]), *self(calls[middle:])]
        except (KeyboardInterrupt, SystemExit) as stop:
            return [stop] * len(calls)
        except BaseException as error:  # noqa: BLE001 - a panic: what it left behind is not to be asked again
            return [EngineDied(f"the engine died: {told(error)}")] * len(calls)
        self._failures = 0
        return replies

"""Whatever is thrown while a batch is answered reaches the run, which would wait for ever otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kgqa.calls import Search
from kgqa.errors import EngineDied, EngineError
from kgqa.runtime.bisecting import Bisecting
from kgqa.runtime.cache import CallCache
from kgqa.runtime.requests import Done
from kgqa.runtime.scheduler import Scheduler
from kgqa.runtime.services import Worker
from kgqa.types import Passage


class Panic(BaseException):
    """As PyO3 throws it."""


def run_with(cache: CallCache, answer: Any) -> list[Any]:
    done = Done()
    worker = Worker(done, cache, {"engine": "test"}, answer)

    async def program() -> tuple[Passage, ...]:
        return await Search("harbour", 3)

    scheduler = Scheduler(lambda _: worker, done, width=4)
    try:
        return [ended.result for ended in scheduler.run((str(n), program()) for n in range(2))]
    finally:
        scheduler.stop(1)


@pytest.mark.parametrize(
    ("thrown", "raised"),
    [(Panic("slice"), EngineDied), (KeyboardInterrupt(), KeyboardInterrupt), (SystemExit(4), SystemExit)],
)
def test_what_is_no_exception_ends_the_run(
    cache: CallCache, thrown: BaseException, raised: type[BaseException]
) -> None:
    def answer(calls: Sequence[Any]) -> Sequence[Any]:
        raise thrown

    with pytest.raises(raised, match="engine died: Panic: slice" if raised is EngineDied else None):
        run_with(cache, answer)


def test_replies_that_are_too_few_are_an_error_of_their_calls(cache: CallCache) -> None:
    for result in run_with(cache, lambda calls: []):
        assert isinstance(result, EngineError)
        assert "0 replies to 1 calls" in str(result)


def test_a_panic_is_not_asked_again() -> None:
    asked = []

    def answer(calls: Sequence[Any]) -> Sequence[Any]:
        asked.append(len(calls))
        raise Panic("slice")

    assert [type(reply) for reply in Bisecting(answer)(["a", "b", "c"])] == [EngineDied] * 3
    assert asked == [3]

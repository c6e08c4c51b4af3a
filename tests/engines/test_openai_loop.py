"""What threads hand to the loop of a server's calls is done, or told not to be, or dropped when it closes."""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue

import pytest

from kgqa.engines.openai.loop import Loop
from kgqa.errors import EngineDied


async def nothing() -> None:
    """The end of a loop that leaves nothing open."""


def test_work_that_is_handed_over_while_the_loop_is_busy_is_begun_in_its_order() -> None:
    loop, free, done = Loop(), threading.Event(), threading.Event()
    began: list[int] = []

    async def work(number: int) -> None:
        began.append(number)
        if number == 0:
            free.wait(10)  # nothing else can begin meanwhile
        if number == 9:
            done.set()

    for number in range(10):
        loop.begin(work(number), lambda error: pytest.fail(str(error)))
    free.set()
    assert done.wait(10)
    assert began == list(range(10))
    loop.close(nothing)


def test_whatever_work_throws_is_told_to_who_waits_for_it() -> None:
    loop, told = Loop(), SimpleQueue[BaseException]()

    async def failing(error: BaseException) -> None:
        raise error

    for error in (ValueError("no"), BaseException("a panic")):
        loop.begin(failing(error), told.put)
        assert told.get(timeout=10) is error
    with pytest.raises(ValueError, match="yes"):
        loop.result(failing(ValueError("yes")))
    loop.close(nothing)


def test_closing_drops_what_is_under_way_and_takes_no_more() -> None:
    loop, begun, ended = Loop(), threading.Event(), list[str]()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def end() -> None:
        ended.append("closed")

    loop.begin(endless(), lambda error: ended.append(str(error)))
    assert begun.wait(10)
    loop.close(end)
    assert ended == ["cancelled", "closed"]
    with pytest.raises(EngineDied, match="closed"):
        loop.begin(endless(), lambda error: ended.append(str(error)))
    loop.close(end)
    assert ended == ["cancelled", "closed"]

"""A server that is held: one call tries it, and with each reply twice as many."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kgqa.engines.openai.hold import Hold, RetryPolicy, Turn
from kgqa.engines.openai.payloads import LOWEST, Token
from kgqa.util.waiting import describe_waits

AT_ONCE = RetryPolicy(timeout=1.0, retries=8, backoff=0.0, server_timeout=60.0)


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


class Calls:
    """Calls to one server that end when the test says so."""

    def __init__(self, hold: Hold, count: int) -> None:
        self.hold = hold
        self.turns: list[Turn] = []  # of attempts that have started and not ended
        self.tasks = [asyncio.create_task(self.enter()) for _ in range(count)]

    async def enter(self) -> None:
        turn = await self.hold.enter()
        self.turns.append(turn)


def test_calls_return_slowly() -> None:
    async def run() -> list[int]:
        hold = Hold("http://127.0.0.1:8000/v1", AT_ONCE)
        assert not hold.fail(None, "503", 0.0)
        calls, tried = Calls(hold, 16), []
        await settle()
        assert "503 from 127.0.0.1:8000, next try in 0 s, 16 calls wait" in describe_waits()
        hold.fail(calls.turns.pop(), "503", 0.0)  # the next one tries it
        await settle()
        while calls.turns:
            turns, calls.turns = calls.turns, []
            tried.append(len(turns))
            for turn in turns:
                hold.succeed(turn)
            await settle()
        await asyncio.gather(*calls.tasks)
        assert await hold.enter() is None
        return tried

    assert asyncio.run(run()) == [1, 2, 4, 8]
    assert describe_waits() == ""


def test_second_failure_closes_the_gate_again() -> None:
    async def run() -> None:
        hold = Hold("http://127.0.0.1:8000/v1", AT_ONCE)
        hold.fail(None, "503", 0.0)
        calls = Calls(hold, 16)
        await settle()
        hold.succeed(calls.turns.pop())
        await settle()
        assert len(calls.turns) == 2
        while calls.turns:
            hold.fail(calls.turns.pop(), "503", 0.0)
        await settle()
        assert len(calls.turns) == 1
        assert not hold.fail(None, "503", 0.0)  # an attempt from before shows nothing new
        await settle()
        assert len(calls.turns) == 1
        hold.close()
        for task in calls.tasks:
            task.cancel()

    asyncio.run(run())
    assert describe_waits() == ""


@pytest.mark.parametrize(("after", "is_over"), [(0.0, False), (59.0, False), (61.0, True), (math.inf, True)])
def test_long_pause_ends_the_wait(after: float, is_over: bool) -> None:
    async def run() -> bool:
        hold = Hold("http://127.0.0.1:8000/v1", AT_ONCE)
        try:
            return hold.fail(None, "429", after)
        finally:
            hold.close()

    assert asyncio.run(run()) is is_over


@given(st.none() | st.floats() | st.integers() | st.text(max_size=3) | st.booleans())
def test_log_probabilities_have_a_floor(value: Any) -> None:
    try:
        logprob = Token.model_validate({"token": "A", "logprob": value}).logprob
    except ValidationError:
        is_number = type(value) in (int, float)
        assert not is_number or math.isnan(value) or value > 0
    else:
        assert logprob is not None
        assert LOWEST <= logprob <= 1e-3

"""A server that is held: one call tries it until it answers."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kgqa.engines.openai.hold import Hold, RetryPolicy
from kgqa.engines.openai.payloads import LOWEST, Token
from kgqa.util.waiting import describe_waits

AT_ONCE = RetryPolicy(timeout=1.0, retries=8, backoff=0.0, server_timeout=60.0)


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def enter(hold: Hold) -> bool:
    """Start and end an attempt. Return whether it was a trial."""
    async with hold.turn() as is_trial:
        return is_trial


class Calls:
    """Calls to one server that end when the test says so."""

    def __init__(self, hold: Hold, count: int) -> None:
        self.hold = hold
        self.attempts: list[bool] = []  # that have started: whether each is a trial
        self.ends = asyncio.Semaphore(0)  # released once for each attempt that ends
        self.tasks = [asyncio.create_task(self.attempt()) for _ in range(count)]

    async def attempt(self) -> None:
        async with self.hold.turn() as is_trial:
            self.attempts.append(is_trial)
            await self.ends.acquire()


def test_one_call_tries_a_held_server() -> None:
    async def run() -> None:
        hold = Hold("http://127.0.0.1:8000/v1", AT_ONCE)
        assert not hold.fail("503", 0.0, is_trial=False)
        calls = Calls(hold, 16)
        await settle()
        assert calls.attempts == [True]
        assert "503 from 127.0.0.1:8000, next try in 0 s, 16 calls wait" in describe_waits()
        assert not hold.fail("503", 0.0, is_trial=False)  # an attempt from before shows nothing new
        hold.fail("503", 0.0, is_trial=True)
        calls.ends.release()  # the next one tries it
        await settle()
        assert calls.attempts == [True, True]
        hold.succeed(is_trial=True)
        for _ in calls.tasks:
            calls.ends.release()
        await asyncio.gather(*calls.tasks)
        assert calls.attempts == [True, True, *[False] * 14]
        assert not await enter(hold)

    asyncio.run(run())
    assert describe_waits() == ""


def test_held_server_that_answers_can_fail_again() -> None:
    async def run() -> None:
        hold = Hold("http://127.0.0.1:8000/v1", AT_ONCE)
        hold.fail("503", 0.0, is_trial=False)
        async with hold.turn() as is_trial:
            hold.succeed(is_trial=is_trial)
        hold.fail("503", 0.0, is_trial=False)
        calls = Calls(hold, 2)
        await settle()
        assert calls.attempts == [True]
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
            return hold.fail("429", after, is_trial=False)
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


def test_failure_after_the_end_is_not_shown() -> None:
    hold = Hold("http://127.0.0.1:1/v1", AT_ONCE)
    hold.close()
    hold.fail("a broken connection", 0.0, is_trial=False)
    assert asyncio.run(enter(hold))  # a call that waits
    assert describe_waits() == ""


@pytest.mark.parametrize("pause", [0.0, 60.0])
def test_cancelled_trial_lets_the_next_call_try(pause: float) -> None:
    async def succeed(hold: Hold) -> bool:
        async with hold.turn() as is_trial:
            assert hold.describe() == "503 from 127.0.0.1:1, next try in 0 s, 1 call waits"
            hold.succeed(is_trial=is_trial)
            return is_trial

    async def enter_twice() -> bool:
        hold = Hold("http://127.0.0.1:1/v1", RetryPolicy(1.0, 0, 0.0, 120.0))
        hold.fail("503", pause, is_trial=False)
        first = Calls(hold, 1).tasks[0]
        await settle()
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        hold._next = 0.0
        is_trial = await asyncio.wait_for(succeed(hold), 5)
        assert hold.describe() == ""
        return is_trial

    assert asyncio.run(enter_twice())

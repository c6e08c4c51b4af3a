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

from kgqa.engines.openai.access import find_limits
from kgqa.engines.openai.hold import Hold, RetryPolicy
from kgqa.engines.openai.responses import LOWEST, Token
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
        # that have started: whether each is a trial
        self.attempts: list[bool] = []
        # released once for each attempt that ends
        self.ends = asyncio.Semaphore(0)
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
        # an attempt from before shows nothing new
        assert not hold.fail("503", 0.0, is_trial=False)
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
        # a server that answered can fail again
        hold.fail("503", 0.0, is_trial=False)
        calls = Calls(hold, 2)
        await settle()
        assert calls.attempts == [True]
        hold.close()
        for task in calls.tasks:
            task.cancel()

    asyncio.run(run())
    assert describe_waits() == ""


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


@pytest.mark.parametrize(
    ("after", "is_over"),
    [
        pytest.param(0.0, False, id="no pause"),
        pytest.param(59.0, False, id="below a minute"),
        pytest.param(61.0, True, id="above a minute"),
        pytest.param(math.inf, True, id="for ever"),
    ],
)
def test_long_pause_ends_the_wait(after: float, is_over: bool) -> None:
    hold = Hold("http://127.0.0.1:1/v1", AT_ONCE)
    assert hold.fail("429", after, is_trial=False) is is_over
    hold.close()


@pytest.mark.parametrize(("is_closed", "is_over"), [(True, True), (False, False)])
def test_closed_port_has_its_own_limit(*, is_closed: bool, is_over: bool) -> None:
    policy = RetryPolicy(1.0, 0, 0.0, server_timeout=120.0, closed_timeout=0.0)
    hold = Hold("http://127.0.0.1:1/v1", policy)
    failure = hold.fail("no connection", 0.0, is_trial=False, is_closed=is_closed)
    assert failure is is_over
    hold.close()


@pytest.mark.parametrize(
    ("setting", "limits"), [(None, (120.0, 10.0)), (600.0, (600.0, 600.0)), (0.0, (0.0, 0.0))]
)
def test_own_seconds_hold_for_closed_ports_too(
    setting: float | None, limits: tuple[float, float]
) -> None:
    assert find_limits(setting) == limits


def test_canceled_trial_lets_the_next_call_try() -> None:
    hold = Hold("http://127.0.0.1:1/v1", AT_ONCE)
    hold.close()
    hold.fail("a broken connection", 0.0, is_trial=False)
    assert asyncio.run(enter(hold))  # a call that waits
    assert describe_waits() == ""

    async def enter_twice(pause: float) -> None:
        hold = Hold("http://127.0.0.1:1/v1", RetryPolicy(1.0, 0, 0.0, 120.0))
        hold.fail("503", pause, is_trial=False)
        first = Calls(hold, 1).tasks[0]
        await settle()
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        hold._next = 0.0
        async with hold.turn() as is_trial:
            assert hold.describe() == "503 from 127.0.0.1:1, next try in 0 s, 1 call waits"
            hold.succeed(is_trial=is_trial)
        assert is_trial
        assert hold.describe() == ""

    for pause in (0.0, 60.0):
        asyncio.run(asyncio.wait_for(enter_twice(pause), 5))

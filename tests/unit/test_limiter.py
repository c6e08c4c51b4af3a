"""The maximum number of parallel calls, at a server that is simulated call by call."""

from __future__ import annotations

import heapq

import pytest

from kgqa.engines.openai.concurrency import INITIAL_LIMIT, MAX_LIMIT, AdaptiveLimiter


def adapt(slots: int, calls: int, *, available: int = 10**9, slower: float = 0.0, disturbed: float = 0.0) -> int:
    """The limit after so many calls at a server with `slots`, first in, first out, a second each.

    slower: how much each other call slows a call down; available: parallel calls of the program; disturbed: seconds at
    the start in which a call takes three.
    """
    limiter, now, started = AdaptiveLimiter.of(None), 0.0, 0
    free = [0.0] * slots  # when each slot is free
    running: list[tuple[float, float, int]] = []  # end, start and limit
    while started < calls or running:
        while started < calls and len(running) < min(limiter.limit, available):
            limit = limiter.acquire()
            begin = max(now, heapq.heappop(free))
            end = begin + (1.0 if begin >= disturbed or begin < 2 else 3.0) + slower * min(slots, len(running) + 1)
            heapq.heappush(free, end)
            heapq.heappush(running, (end, now, limit))
            started += 1
        now, since, limit = heapq.heappop(running)
        limiter.release(limit, now - since)
    return limiter.limit


@pytest.mark.parametrize(
    ("slots", "options", "least", "most"),
    [
        *((slots, {}, INITIAL_LIMIT, 4.5 * INITIAL_LIMIT) for slots in (1, 8, 32)),
        *((slots, {}, 0.95 * slots, 4.5 * slots) for slots in (40, 200)),
        (256, {"slower": 0.004}, 200, 560),
        (256, {"available": 20}, INITIAL_LIMIT, INITIAL_LIMIT),
        (256, {"disturbed": 60.0}, 0.95 * 256, 4.5 * 256),
        (10_000, {}, MAX_LIMIT, MAX_LIMIT),
    ],
)
def test_server_is_filled_and_not_flooded(slots: int, options: dict[str, float], least: float, most: float) -> None:
    assert least <= adapt(slots, min(20 * slots + 1000, 20_000), **options) <= most  # type: ignore[arg-type]


def test_configured_or_reported_limit_stays() -> None:
    limiter = AdaptiveLimiter.of(7)
    limiter.set_slots(4)
    limiter.on_rate_limited()
    assert limiter.limit == 7
    limiter = AdaptiveLimiter.of(None)
    limiter.set_slots("many")
    assert limiter.adapts
    limiter.set_slots(4)
    limiter.on_rate_limited()
    assert (limiter.limit, limiter.adapts) == (4, False)


def test_rate_limits_lower_the_limit_once() -> None:
    limiter = AdaptiveLimiter.of(None)
    for _ in range(50):
        limiter.on_rate_limited()
    assert (limiter.limit, limiter.adapts) == (22, False)


def test_failed_calls_do_not_change_the_limit() -> None:
    limiter = AdaptiveLimiter.of(None)
    for _ in range(200):
        limiter.acquire()
    for _ in range(200):
        limiter.release(INITIAL_LIMIT, None)
    assert (limiter.limit, limiter.adapts) == (INITIAL_LIMIT, True)

"""The maximum number of parallel calls, at a server that is simulated call by call."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from kgqa.cache.store import CallCache
from kgqa.engines.openai.concurrency import INITIAL_LIMIT, MAX_LIMIT, AdaptiveLimiter
from kgqa.experiment.session import QUESTIONS_A_PLACE
from kgqa.runtime.scheduler import WIDTH
from tests.virtual_server import VirtualServer, chain, driven


def test_fast_replies_of_a_full_server_raise_the_limit() -> None:
    limiter = AdaptiveLimiter.of(None)
    limits = []
    for started, limit, seconds, tokens in [
        (32, 32, 1.0, 0),
        (0, 32, 1.0, 0),  # 31 calls are less than 90 % of 35
        (2, 35, 2.0, 0),  # twice the fastest is still fast
        (4, 38, 2.1, 0),
        (1, 20, 1.0, 0),  # a reply says nothing about limits above 1.5 times its own
        (1, 38, 4.0, 8),  # a prompt takes as long as eight tokens
        (5, 28, 0.1, 0),
    ]:
        for _ in range(started):
            limiter.acquire()
        limiter.release(limit, seconds, tokens)
        limits.append(limiter.limit)
    assert limits == [35, 35, 38, 38, 38, 41, 42]
    for before, running, after in ((MAX_LIMIT - 1, MAX_LIMIT - 1, MAX_LIMIT), (30, 27, 33)):
        limiter = AdaptiveLimiter(before, adapts=True)
        for _ in range(running):
            limiter.acquire()
        limiter.release(before, 1.0)
        assert limiter.limit == after


def test_only_a_reported_limit_or_rate_limits_change_it() -> None:
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
    limiter = AdaptiveLimiter.of(None)
    for _ in range(50):
        limiter.on_rate_limited()
    assert (limiter.limit, limiter.adapts) == (22, False)
    limiter = AdaptiveLimiter.of(None)
    for _ in range(200):
        limiter.acquire()
    for _ in range(200):
        limiter.release(INITIAL_LIMIT, None)
    assert (limiter.limit, limiter.adapts) == (INITIAL_LIMIT, True)


def thoughts(name: str) -> list[int]:
    """Tokens of two to four replies, the last one short: those of IRCoT at the race's endpoint."""
    count = 2 + crc32(name.encode()) % 3
    return [*(10 + crc32(f"{name} {step}".encode()) % 36 for step in range(count - 1)), 8]


def served(slots: int, questions: int, cache: CallCache, *, arranged: bool = True) -> VirtualServer:
    """After a run with kgqa's defaults, at a server that tells nothing of itself."""
    server = VirtualServer(slots, AdaptiveLimiter.of(None))
    names = [str(number) for number in range(questions)]
    programs = ((name, chain(name, thoughts(name))) for name in names)
    width = lambda: max(WIDTH, QUESTIONS_A_PLACE * server.max_concurrency)  # noqa: E731
    ended = driven(server, cache, programs, width, arranged=arranged)
    assert {each.key: each.result for each in ended} == {name: len(thoughts(name)) for name in names}
    return server


@pytest.mark.parametrize(("slots", "questions", "efficiency"), [(8, 100, 0.97), (32, 200, 0.95)])
def test_a_server_that_tells_nothing_of_itself_is_kept_full(
    slots: int, questions: int, efficiency: float, cache: CallCache, tmp_path: Path
) -> None:
    server, other = served(slots, questions, cache), CallCache(tmp_path / "other")
    assert server.efficiency >= efficiency
    assert server.limiter.limit <= max(2 * INITIAL_LIMIT, 3.3 * slots)
    if slots == 32:  # at the end, the least advanced question goes first
        by_place = served(slots, questions, other, arranged=False)
        assert server.full == pytest.approx(by_place.full)
        assert server.now < 0.98 * by_place.now
    other.close()


def test_a_server_with_one_slot_is_not_asked_for_what_would_wait_too_long(cache: CallCache) -> None:
    server = served(1, 100, cache)
    assert server.most < 2 * INITIAL_LIMIT
    assert server.efficiency > 0.99

"""How much of a server's time a run makes use of, in time that is counted and not waited for."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from kgqa.cache.store import CallCache
from kgqa.calls import gather
from kgqa.engines.openai.concurrency import INITIAL_LIMIT, AdaptiveLimiter
from kgqa.experiment.session import QUESTIONS_A_PLACE
from kgqa.runtime.scheduler import WIDTH
from tests.virtual_server import VirtualServer, chain, driven


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


@pytest.mark.parametrize(("slots", "questions", "efficiency"), [(8, 100, 0.97), (32, 200, 0.95), (256, 1000, 0.85)])
def test_a_server_that_tells_nothing_of_itself_is_kept_full(
    slots: int, questions: int, efficiency: float, cache: CallCache
) -> None:
    server = served(slots, questions, cache)
    assert server.efficiency >= efficiency
    assert server.limiter.limit <= max(2 * INITIAL_LIMIT, 3.3 * slots)


def test_at_the_end_the_least_advanced_question_goes_first(cache: CallCache, tmp_path: Path) -> None:
    arranged, other = served(32, 200, cache), CallCache(tmp_path / "other")
    by_place = served(32, 200, other, arranged=False)
    other.close()
    assert arranged.full == pytest.approx(by_place.full)
    assert arranged.now < 0.98 * by_place.now


def test_a_slow_server_with_one_slot_is_not_asked_for_what_would_wait_too_long(cache: CallCache) -> None:
    server = served(1, 100, cache)
    assert server.most < 2 * INITIAL_LIMIT
    assert server.efficiency > 0.99


def test_choices_asked_side_by_side_go_with_their_question_at_the_end(cache: CallCache) -> None:
    async def beams(name: str) -> int:
        for step in range(3):
            await gather(*(chain(f"{name} {step} {beam}", [1]) for beam in range(5)))
        return await chain(name, [9])

    server = VirtualServer(32, AdaptiveLimiter.of(32))
    ended = driven(server, cache, ((name, beams(name)) for name in map(str, range(100))), lambda: 128)
    assert len(ended) == 100
    assert server.efficiency >= 0.95

"""How many calls a server turns out to be good for, at one that is simulated call by call."""

from __future__ import annotations

import heapq

import pytest

from kgqa.engines.openai.concurrency import FIRST, MOST, Room


def learnt(slots: int, calls: int, *, at_once: int = 10**9, slower: float = 0.0, disturbed: float = 0.0) -> Room:
    """After so many calls at a server that works on `slots` of them, first in, first out, a second each; `slower`: a
    share that each further one makes all of them slower; `at_once`: what the program has to ask; until `disturbed`
    seconds have passed a call takes three."""
    room, now, started = Room.of(None), 0.0, 0
    free = [0.0] * slots  # when each slot is free
    under_way: list[tuple[float, int]] = []
    began = {}
    while started < calls or under_way:
        while started < calls and len(under_way) < min(room.limit, at_once):
            place = room.enter()
            begin = max(now, heapq.heappop(free))
            end = begin + (1.0 if begin >= disturbed or begin < 2 else 3.0) + slower * min(slots, len(under_way) + 1)
            heapq.heappush(free, end)
            heapq.heappush(under_way, (end, started))
            began[started] = (place, now)
            started += 1
        now, number = heapq.heappop(under_way)
        place, since = began.pop(number)
        room.leave(place, now - since)
    return room


@pytest.mark.parametrize("slots", [40, 64, 200, 256, 300, 700])
def test_a_large_server_is_filled_and_not_flooded(slots: int) -> None:
    room = learnt(slots, 20 * slots + 1000)
    assert 0.95 * slots <= room.limit <= 3.3 * slots  # the last may be a try


@pytest.mark.parametrize("slots", [1, 8, 32])
def test_a_small_server_gets_no_more_than_today(slots: int) -> None:
    assert FIRST <= learnt(slots, 500).limit <= 2 * FIRST


def test_a_server_that_slows_down_is_filled_as_long_as_that_pays() -> None:
    assert 200 <= learnt(256, 6000, slower=0.004).limit <= 560


def test_nothing_is_learnt_from_a_program_that_asks_little() -> None:
    room = learnt(256, 5000, at_once=20)
    assert room.limit == FIRST
    assert room.learning


def test_what_disturbed_it_does_not_count_for_ever() -> None:
    assert learnt(256, 300, disturbed=60).limit < 128
    assert learnt(256, 8000, disturbed=60).limit >= 0.95 * 256


def test_there_is_an_end() -> None:
    assert learnt(10_000, 20_000).limit == MOST


def test_what_is_set_or_told_stays() -> None:
    room = Room.of(7)
    room.told(4)
    room.crowded()
    assert room.limit == 7
    room = Room.of(None)
    room.told("many")
    assert room.learning
    room.told(4)
    room.crowded()
    assert (room.limit, room.learning) == (4, False)


def test_a_server_that_is_asked_too_often_gets_less_once() -> None:
    room = Room.of(None)
    for _ in range(50):
        room.crowded()
    assert (room.limit, room.learning) == (22, False)


def test_calls_without_a_reply_tell_nothing() -> None:
    room = Room.of(None)
    places = [room.enter() for _ in range(200)]
    for place in places:
        room.leave(place, None)
    assert (room.limit, room.learning) == (FIRST, True)

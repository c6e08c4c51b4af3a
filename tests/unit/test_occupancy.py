"""How busy an engine was, by a clock the test sets."""

from __future__ import annotations

import pytest

from kgqa.runtime import occupancy
from kgqa.runtime.occupancy import Occupancy


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(occupancy, "time", clock)
    return clock


def test_overlapping_calls_count_once_as_busy_and_each_as_a_call(clock: Clock) -> None:
    measured = Occupancy()
    for now, change, places in ((101.0, 1, 2), (102.0, 1, 2), (105.0, -1, 2), (106.0, -1, 2), (110.0, 4, 8)):
        clock.now = now
        measured.change(change, places)
    clock.now = 110.5
    occupied = measured.measured()
    assert occupied.busy == pytest.approx(5.0 + 0.5)
    assert occupied.calls == pytest.approx(1 + 2 * 3 + 1 + 4 * 0.5)
    assert occupied.places == pytest.approx(2 * 5 + 8 * 0.5)
    assert occupied.full == pytest.approx(3.0)


def test_an_idle_engine_has_no_busy_time(clock: Clock) -> None:
    measured = Occupancy()
    clock.now += 60
    assert measured.measured() == (0.0, 0.0, 0.0, 0.0)

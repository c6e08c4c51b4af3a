"""The utilization of an engine, by a clock that the test sets."""

from __future__ import annotations

import pytest

from kgqa.runtime import utilization
from kgqa.runtime.utilization import Utilization


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(utilization, "time", clock)
    return clock


def test_overlapping_calls_are_busy_once(clock: Clock) -> None:
    used = Utilization()
    for now, change, capacity in ((101.0, 1, 2), (102.0, 1, 2), (105.0, -1, 2), (106.0, -1, 2), (110.0, 4, 8)):
        clock.now = now
        used.change(change, capacity)
    clock.now = 110.5
    usage = used.usage()
    assert usage.busy == pytest.approx(5.0 + 0.5)
    assert usage.calls == pytest.approx(1 + 2 * 3 + 1 + 4 * 0.5)
    assert usage.capacity == pytest.approx(2 * 5 + 8 * 0.5)
    assert usage.full == pytest.approx(3.0)


def test_idle_engine_is_not_busy(clock: Clock) -> None:
    used = Utilization()
    clock.now += 60
    assert used.usage() == (0.0, 0.0, 0.0, 0.0)

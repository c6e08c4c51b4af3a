"""What long work says where nobody looks on: lines for a log."""

from __future__ import annotations

import io
import logging
from types import SimpleNamespace

import pytest

from kgqa.runtime import display
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import BYTES, QUIET, PlainLines, log_lines


def test_step_starts_with_a_line() -> None:
    assert _told_while_counting("passages") == ["reading passages", "indexing 3,000 passages"]


def test_step_has_a_line_per_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    _let_time_fly(monkeypatch)
    assert _told_while_counting("passages") == [
        "reading passages",
        "reading: 2,000",
        "indexing 3,000 passages",
        "indexing: 1,000 of 3,000",
        "indexing: 3,000 of 3,000",
    ]


def test_transfer_has_no_first_line() -> None:
    assert _told_while_counting(BYTES) == []


def test_single_step_is_named_by_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    _let_time_fly(monkeypatch)
    stream = io.StringIO()
    with PlainLines(stream).counting("questions") as advance:
        for _ in range(3):
            advance("", 1_000, None)
    assert stream.getvalue().splitlines() == ["questions: 2,000"]


def test_stage_ends_with_sums() -> None:
    stream = io.StringIO()
    with PlainLines(stream).stage("questions", 2, Ledger()) as stage:
        stage.finish(failed=False)
        stage.finish(failed=True)
    assert stream.getvalue().startswith("questions: 2 done · 0 model calls (0 % from the cache)")
    assert stream.getvalue().endswith("· 1 failed\n")


def test_interrupted_stage_has_no_sums() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), PlainLines(stream).stage("questions", 2, Ledger()):
        raise KeyboardInterrupt
    assert not stream.getvalue()


def test_logged_lines_are_shown_within_the_block() -> None:
    stream = io.StringIO()
    with log_lines(PlainLines(stream)):
        logging.getLogger("kgqa.engines").info("converting the weights")
    logging.getLogger("kgqa.engines").info("nobody listens")
    assert stream.getvalue() == "converting the weights\n"


def test_quiet_display_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    QUIET.line("a line", alarm=True)
    with QUIET.stage("questions", 1, Ledger()) as stage, QUIET.counting("passages") as advance:
        stage.record()
        stage.finish(failed=True)
        advance("reading", 1, None)
    assert not capsys.readouterr().out


def _told_while_counting(unit: str) -> list[str]:
    stream = io.StringIO()
    with PlainLines(stream).counting(unit) as advance:
        for _ in range(3):
            advance("reading", 1_000, None)
        for _ in range(3):
            advance("indexing", 1_000, 3_000)
    return stream.getvalue().splitlines()


def _let_time_fly(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 35))  # seconds, at each look
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: next(clock)))

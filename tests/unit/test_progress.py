"""What long work says where there is no terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from kgqa.experiment.prepare.indexes import passage_progress
from kgqa.report import progress


def _said_while_indexing() -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    with passage_progress(console) as advance:
        for _ in range(3):
            advance("reading", 1_000, None)
        for _ in range(3):
            advance("indexing", 1_000, 3_000)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_log_says_when_a_stage_begins() -> None:
    assert _said_while_indexing() == ["reading passages", "indexing 3,000 passages"]


def test_a_log_says_every_minute_how_far_a_stage_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 35))  # seconds, at each look
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert _said_while_indexing() == [
        "reading passages",
        "reading: 2,000",
        "indexing 3,000 passages",
        "indexing: 1,000 of 3,000",
        "indexing: 3,000 of 3,000",
    ]

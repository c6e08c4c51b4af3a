"""At 80 columns nothing that must be typed or compared is cut."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from kgqa.calls import Generate
from kgqa.cli.terminal.console import Terminal
from kgqa.cli.terminal.presets import show_presets
from kgqa.cli.terminal.progress import stage_bar
from kgqa.cli.terminal.sweep import _parts
from kgqa.config.files import groups
from kgqa.report.columns import Measured
from kgqa.report.matrix import Matrix
from kgqa.report.sweeps import CellRun, Entry, SweepTable
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import PlainLines, Tally
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Completion, Message, Prompt, Usage

CALL = Generate(Prompt("reader/answer", (Message("user", "Who?"),)), 5)
PAID = CallRecord((1,), CALL, Completion("Ann", "stop", Usage(10, 0, 1, 0.1)), cached=False)


def paid_ledger() -> Ledger:
    ledger = Ledger()
    ledger.add(PAID)
    return ledger


def test_the_bar_keeps_its_count_its_time_and_what_failed() -> None:
    screen = io.StringIO()
    with stage_bar(Console(file=screen, force_terminal=True, width=80), "questions", 500, paid_ledger()) as stage:
        stage.finish(failed=True)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    bars = [line for line in shown.replace("\r", "\n").splitlines() if " 1/500 " in line]
    assert bars
    assert all(re.search(r" 1/500 \d+:\d\d:\d\d 1 failed · 1 model calls", line) for line in bars)
    assert max(map(len, bars)) <= 80


def test_time_left_is_told_where_questions_take_longer_than_half_a_minute() -> None:
    tally = Tally("questions", 10, paid_ledger())
    assert tally.seconds_left() is None
    tally.paying_since -= 100
    tally.end(failed=False)
    tally.end(failed=False)
    assert tally.seconds_left() == pytest.approx(400, rel=0.01)
    assert "questions: 2/10 · about 0:06:40 left · 1 model calls" in tally.so_far()


def test_what_the_cache_answered_says_nothing_of_the_time_left() -> None:
    tally = Tally("questions", 10, Ledger())
    for _ in range(4):
        tally.end(failed=False)
    assert tally.seconds_left() is None
    tally.ledger.add(PAID)
    tally.paying_since = time.monotonic() - 60
    tally.end(failed=False)
    assert tally.seconds_left() == pytest.approx(300, rel=0.01)


def test_a_logs_sign_of_life_has_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgqa.runtime.display.SIGN_OF_LIFE", 0)
    stream = io.StringIO()
    with PlainLines(stream).stage("questions", 2, paid_ledger()) as stage:
        stage.finish(failed=False)
    assert "questions: 1/2 · about 0:00:00 left" in stream.getvalue()


def test_presets_keep_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    show_presets(Terminal(width=80))
    shown = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in shown if line.strip()}
    assert set(groups()["model"]) <= listed
    table = shown[: next(n for n, line in enumerate(shown) if line.startswith("In "))]
    assert max(map(len, table)) <= 80


def test_a_sweeps_table_is_parted_and_keeps_its_intervals() -> None:
    texts = [f"{number}.0 [{number}.0, 100.0]" for number in range(10, 17)]
    entries = [Entry("trace", "", False, None)]
    entries += [Entry(text, "best", True, Measured(10.0, 10.0, 100.0)) for text in texts]
    cell = CellRun(0, "method=trace", {}, "done", None, None)
    header = ("cell", "method", *(f"score {n}" for n in range(len(texts))))
    table = SweepTable("demo, 8 questions", header, [(cell, entries)], None, (), Matrix((), ()))
    screen = io.StringIO()
    drawn = _parts(table, 80)
    for part in drawn:
        Console(file=screen, width=80).print(part)
    shown = screen.getvalue()
    assert len(drawn) > 1
    assert all(f"{text}*" in shown for text in texts)
    assert max(map(len, shown.splitlines())) <= 80
    assert len(_parts(table, 300)) == 1


def test_a_pipe_in_a_terminal_is_as_wide_as_the_terminal() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    ended = subprocess.run(
        [sys.executable, "-m", "kgqa", "models"],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True, text=True,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    table = ended.stdout.partition("\nIn ")[0]
    assert "qwen3_8b" in table
    assert max(map(len, table.splitlines())) <= 80

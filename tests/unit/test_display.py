"""The display of long work in a log, its own log without secrets, and its heartbeat."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kgqa.calls import Choose, Rank
from kgqa.cli import terminal
from kgqa.cli.main import main
from kgqa.cli.terminal import _bars
from kgqa.errors import EngineDied, EngineError, StorageError, notes
from kgqa.report.run_report import cost_rows
from kgqa.runtime import display, monitor
from kgqa.runtime.costs import Ledger, Tally
from kgqa.runtime.display import QUIET, PlainLines, Stage, log_lines
from kgqa.runtime.monitor import LOG, log_event, monitor_work, read_heartbeats
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Choice, Message, Prompt, Usage
from kgqa.util.waiting import describe_waits, waiting


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LOG).read_text(encoding="ascii").splitlines()]


def test_log_has_events_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-Tr0ub4dor")
    monkeypatch.setenv("OTHER_TOKEN", "short")
    output = io.StringIO()
    with log_lines(PlainLines(output)):
        log_event("x", "no log is open")
        with monitor.work_log(tmp_path):
            log_event("x", "a reply with sk-Tr0ub4dor in it", field=["sk-Tr0ub4dor"])
            logging.getLogger("kgqa.engines").warning("for people: %s", "sk-Tr0ub4dor, short")
    logging.getLogger("kgqa.engines").info("nothing is open")
    assert [line["message"] for line in lines(tmp_path)] == [
        "a reply with [key] in it",
        "for people: [key], short",
    ]
    assert lines(tmp_path)[0]["field"] == ["[key]"]
    assert "a reply" not in output.getvalue()
    assert output.getvalue().startswith("for people: ")


def test_log_is_bounded_and_may_be_unwritable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(monitor, "LARGEST", 2_000)
    with monitor.work_log(tmp_path):
        for number in range(500):
            log_event("x", f"line {number}")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [
        LOG,
        *(f"{LOG}.{older}" for older in range(1, monitor.OLDER + 1)),
    ]
    assert all(file.stat().st_size <= 2_000 for file in files)
    assert lines(tmp_path)[-1]["message"] == "line 499"
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / LOG).symlink_to("/dev/full")
    for folder in (tmp_path / "file", tmp_path / "full"):
        with monitor.work_log(folder):
            log_event("x", "into a file that is no folder, and a full disk")
    assert capfd.readouterr() == ("", "")


def test_error_gets_notes_on_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/bin/kgqa", "run", "ids=[a, b]"])

    def work() -> None:
        with monitor_work(QUIET, "run", tmp_path) as monitor:
            (beat,) = read_heartbeats()
            assert (beat.is_running, beat.what) == (True, "run")
            with monitor.stage("questions", 7, Ledger()) as stage:
                stage.finish(failed=False)
                stage.finish(failed=True)
                raise EngineDied("it died")

    with pytest.raises(EngineDied) as died:
        work()
    assert notes(died.value) == (
        f"saved in {tmp_path}: 2 of 7 questions, and all replies in the call cache",
        "continue with: kgqa run 'ids=[a, b]'",
    )
    end = lines(tmp_path)[-1]
    assert end | {"outcome": "failed", "failed": 1, "message": "EngineDied: it died"} == end
    assert not read_heartbeats()


@pytest.mark.parametrize(
    ("what", "error", "stage", "saved"),
    [
        (
            "run",
            EngineDied("it died"),
            "steps",
            "saved in {}: 1 of 7 steps, and all replies in the call cache",
        ),
        ("run", StorageError("the disk is full"), "steps", "saved in {}: 1 of 7 steps"),
        ("run", StorageError("full"), "cell 2: steps", "saved in {}: 1 of 7 steps of cell 2"),
        ("index build", EngineDied("it died"), "steps", ""),
    ],
    ids=["engine", "disk", "cell", "index"],
)
def test_note_names_what_is_saved(
    tmp_path: Path, what: str, error: Exception, stage: str, saved: str
) -> None:

    def work() -> None:
        with (
            monitor_work(QUIET, what, tmp_path) as monitor,
            monitor.stage(stage, 7, Ledger()) as progress,
        ):
            progress.finish(failed=False)
            raise error

    with pytest.raises(type(error)) as raised:
        work()
    assert [each for each in notes(raised.value) if each.startswith("saved")] == [
        saved.format(tmp_path)
    ] * bool(saved)


def test_killed_process_is_not_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with monitor_work(QUIET, "run", tmp_path):
        (beat,) = read_heartbeats()
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        killed = beat.replace(pid=ended.pid)
        assert beat.is_running
        assert not killed.is_running
        assert killed.describe().startswith(f"stopped: no heartbeat from process {ended.pid} on ")


def test_interrupted_work_stays_listed_until_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/bin/kgqa", "run", "limit=3"])
    with pytest.raises(KeyboardInterrupt), monitor_work(QUIET, "run", tmp_path / "run"):
        raise KeyboardInterrupt
    (beat,) = read_heartbeats()
    assert (beat.is_running, beat.command) == (False, "kgqa run limit=3")
    assert beat.describe().startswith("interrupted ")
    with monitor_work(QUIET, "run", tmp_path / "run"):
        pass
    assert not read_heartbeats()


def test_stopped_work_without_folder_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt), monitor_work(QUIET, "run", tmp_path / "run"):
        raise KeyboardInterrupt
    shutil.rmtree(tmp_path / "run")
    assert not read_heartbeats()


def test_sweep_counts_the_calls_of_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(monitor, "BEAT", 0.01)
    with (
        monitor_work(QUIET, "sweep", tmp_path / "sweep") as sweep,
        sweep.stage("cells", 2, None),
    ):
        for name in ("first", "second"):
            with (
                monitor_work(sweep, "run", tmp_path / name) as run,
                run.stage("questions", 3, Ledger()) as stage,
            ):
                stage.ledger.paid["reader"] = Tally(2, Usage(90, 0, 10))
        deadline = time.monotonic() + 30
        while read_heartbeats()[0].calls < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        (beat,) = read_heartbeats()
    assert (beat.what, beat.calls, beat.tokens) == ("sweep", 4, 200)


class LongStage(Stage):
    def parts(self) -> list[str]:
        return ["37/60", "12 min left", "0.3 calls/s", "x" * 80]


def test_plain_lines_show_progress_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    with PlainLines(output).stage("questions", 3, Ledger()) as stage:
        stage.finish(failed=False)
        assert output.getvalue() == ""
        monkeypatch.setattr(display, "SIGN_OF_LIFE", -1.0)
        stage.finish(failed=True)
    progress, summary = output.getvalue().splitlines()
    assert progress.startswith("questions 2/3 · 1 failed")
    assert summary.startswith("questions: 3 in ")


def test_what_does_not_fit_is_cut_and_a_wait_is_whole() -> None:
    console = Console(width=80, file=io.StringIO())
    bars = _bars(console)
    bars.add_task("questions", total=60, stage=LongStage("questions", 60))
    with waiting("a lock"), waiting("a lock"), waiting("a server"):
        assert describe_waits() == "a lock · a server"
    assert describe_waits() == ""
    cause = "503 from 127.0.0.1, next attempt in 8 s, the second of the last ten minutes"
    with console.capture() as free:
        console.print(bars.get_renderable())
    with console.capture() as output, waiting(cause):
        console.print(bars.get_renderable())
    assert free.get().rstrip().endswith("…")
    assert "37/60 · 12 min left · 0.3 calls/s · xx" in free.get()
    assert " ".join(output.get().replace("━", "").split()).endswith(f"waiting: {cause}")


def test_stage_shows_its_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgqa.runtime.display.time.monotonic", lambda: 1_030.0)
    stage = Stage("passages", 478, started=1_000, paying_since=1_000)
    assert stage.describe() == "passages 0/478 · started 30 s ago"
    stage.ledger.method["extractor"] = stage.ledger.paid["extractor"] = Tally(1, Usage(90, 0, 9))
    stage.finish(failed=False)
    assert stage.describe().startswith(
        "passages 1/478 · 4.0 h left · 1 call, 0 % cached · 2.0 calls/min · 3.3 tokens/s"
    )
    stage.finish(failed=True)
    assert stage.describe().startswith("passages 2/478 · 1 failed · 2.0 h left · ")
    assert stage.summary().startswith("passages: 478 in 30 s · 1 failed · 2.0 calls/min")


def test_stage_counts_programs_in_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgqa.runtime.display.time.monotonic", lambda: 1_030.0)
    stage = Stage("questions", 478, started=1_000, paying_since=1_000)
    programs = stage.ledger.count_starts(["a", "b", "c"])
    assert (next(programs), next(programs)) == ("a", "b")
    assert stage.describe() == "questions 0/478 · 2 in work · started 30 s ago"
    stage.finish(failed=False)
    assert stage.parts()[:2] == ["1/478", "1 in work"]
    stage.finish(failed=False)
    assert "in work" not in stage.describe()


def test_calls_fit_next_to_the_bar_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgqa.runtime.display.time.monotonic", lambda: 1_030.0)
    stage = Stage("questions", 478, Ledger(starts=64), started=1_000, paying_since=1_000)
    call = Choose(Prompt("trace/select", (Message("user", "Which?"),)), ("A", "B"), role="reader")
    stage.ledger.add(CallRecord((0,), call, Choice((-0.1,), usage=Usage(90, 0, 9)), cached=False))
    bars = _bars(Console(width=80, file=io.StringIO()))
    bars.add_task("questions", total=478, stage=stage)
    console = Console(width=80, file=io.StringIO())
    with console.capture() as output:
        console.print(bars.get_renderable())
    assert "0/478 · 64 in work · started 30 s ago · 1 call" in output.get()


def test_failed_calls_are_not_shown_as_cached() -> None:
    stage = Stage("questions", 4)
    call = Choose(Prompt("trace/select", (Message("user", "Which?"),)), ("A", "B"), role="reader")
    reply = Choice((-0.1, -2.0), usage=Usage(90, 0, 9))
    charged = EngineError("no reply")
    charged.charge(Usage(90, 0, 9))
    for outcome, cached in (
        (reply, False),
        (reply, True),
        (EngineError("refused"), False),
        # it waited for the same call
        (EngineError("refused"), True),
        (charged, False),
    ):
        stage.ledger.add(CallRecord((0,), call, outcome, cached))
    assert stage.summary().endswith("5 calls, 3 failed, 20 % cached")
    costs = stage.ledger.costs(5)
    assert dict(cost_rows(costs))["model calls"] == "5 (1.0 per question, 1 new, 3 failed)"
    rows = dict(cost_rows(stage.ledger.costs(2), has_failed=True))
    assert rows["model calls"] == "5 (2.5 per answered question, 1 new, 3 failed)"
    rows = dict(cost_rows(stage.ledger.costs(0), has_failed=True))
    assert rows["model calls"] == "5 (1 new, 3 failed)"


def test_wait_is_shown_with_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgqa.runtime.display.time.monotonic", lambda: 1_030.0)
    stage = Stage("questions", 36, started=1_000)
    assert stage.describe_wait("a lock") == "0/36 · started 30 s ago · waiting: a lock"
    rank = Rank("Who?", ("a", "b"), "ranker")
    stage.ledger.add(CallRecord((0,), rank, (0.1, 0.2), cached=False))
    assert stage.describe() == "questions 0/36 · started 30 s ago · 2 texts ranked"
    choose = Choose(Prompt("trace/select", (Message("user", "Which?"),)), ("A", "B"))
    stage.ledger.add(CallRecord((1,), choose, Choice((-0.1, -2.0)), cached=True))
    assert (
        stage.describe_wait("31 calls for the ranker")
        == "0/36 · 1 call · 2 texts ranked · waiting: 31 calls for the ranker"
    )


def test_only_the_inner_stage_shows_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LOOK", 0.01)
    output = io.StringIO()
    log = PlainLines(output)
    with log.stage("cells", 4, None) as cells, log.stage("questions", 36, None) as questions:
        assert (cells.has_inner, questions.has_inner) == (True, False)
        with waiting("a lock"):
            deadline = time.monotonic() + 30
            while not output.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)
    assert not cells.has_inner
    assert re.fullmatch(r"questions 0/36 · started .* ago · waiting: a lock\n", output.getvalue())


def test_bar_of_the_outer_stage_shows_no_wait() -> None:
    console = Console(width=80, file=io.StringIO())
    bars = _bars(console)
    bars.add_task("cells", total=4, stage=Stage("cells", 4, has_inner=True))
    bars.add_task("questions", total=36, stage=Stage("questions", 36))
    with console.capture() as output, waiting("a lock"):
        console.print(bars.get_renderable())
    assert output.get().count("waiting: a lock") == 1


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_shows_what_kgqa_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SILENCE", 0.0)
    monkeypatch.setattr(terminal, "TICK", 0.01)
    screen = Tty()
    view = terminal.Terminal(screen)
    with view.showing_work(), waiting("a server"):
        deadline = time.monotonic() + 30
        while "waiting: a server" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "waiting: a server" in screen.getvalue()


def test_text_is_printed_without_the_line_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SILENCE", 0.0)
    monkeypatch.setattr(terminal, "TICK", 0.01)
    screen = Tty()
    view = terminal.Terminal(screen)
    with view.showing_work():
        deadline = time.monotonic() + 30
        while "working" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        monkeypatch.setattr(terminal, "SILENCE", 1e9)
        view.line("first")
        view.table(("metric", "mean"), [("EM", "50.0")])
        shown = screen.getvalue()
    assert "working" in shown.partition("first")[0]
    assert "working" not in shown.partition("first")[2]


def test_command_at_the_end_of_a_text_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream, command = Tty(), "kgqa run -m method=golden,no_context dataset=demo limit=36"
    text = f"Warning: the pilot has 4 questions. Run them on all: {command}"
    terminal.Terminal(stream).line(text)
    shown = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()).splitlines()
    assert shown[-1] == f"  {command}"
    assert all(len(line) <= 30 for line in shown[:-1])


def test_warning_on_a_terminal_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stderr", Tty())
    terminal.Terminal(io.StringIO()).warn(["2 cells of outputs/sweeps/NAME have no results"])
    assert isinstance(sys.stderr, Tty)
    assert sys.stderr.getvalue().splitlines() == [
        "warning: 2 cells of",
        "outputs/sweeps/NAME have no",
        "results",
    ]


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
def test_error_is_broken_on_a_terminal_only(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    errors = Tty() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    assert main(["report", "run_that_is_missing", "--open"]) == 2
    lines = errors.getvalue().splitlines()
    assert (len(lines) > 1) is is_terminal
    words = " ".join(lines).split()
    assert words[:2] == ["kgqa:", "run_that_is_missing:"]

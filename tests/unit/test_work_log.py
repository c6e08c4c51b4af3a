"""The log of long work: one JSON object a line, bounded, without secrets, and no part of what is logged to others."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kgqa.errors import EngineDied, notes
from kgqa.runtime import work_log
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import QUIET, PlainLines, log_lines
from kgqa.runtime.heartbeat import read_heartbeats
from kgqa.runtime.monitor import RunMonitor, command_line, monitor_work
from kgqa.runtime.work_log import LOG, log_event


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LOG).read_text(encoding="ascii").splitlines()]


def test_secrets_are_not_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", 'sk-Tr0ub4dor"ä')
    monkeypatch.setenv("OTHER_TOKEN", "short")
    with work_log.work_log(tmp_path):
        log_event("x", 'a reply with sk-Tr0ub4dor"ä in it', field=['sk-Tr0ub4dor"ä'])
        logging.getLogger("kgqa.engines").warning("for people: %s", 'sk-Tr0ub4dor"ä, short')
    assert [line["message"] for line in lines(tmp_path)] == [
        "a reply with [SOME_API_KEY] in it",
        "for people: [SOME_API_KEY], short",
    ]
    assert lines(tmp_path)[0]["field"] == ["[SOME_API_KEY]"]


def test_repeated_trouble_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with work_log.work_log(tmp_path):
        for _ in range(1000):
            log_event("retry", "again", cause="429")
            log_event("retry", "again", cause="500")
        monkeypatch.setattr(work_log, "REPEATED", 0.0)
        log_event("retry", "again", cause="429")
    assert [(line["cause"], line.get("times")) for line in lines(tmp_path)] == [
        ("429", None),
        ("500", None),
        ("429", 1000),
    ]


def test_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_log, "LARGEST", 2_000)
    with work_log.work_log(tmp_path):
        for number in range(500):
            log_event("x", f"line {number}")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [LOG, *(f"{LOG}.{older}" for older in range(1, work_log.OLDER + 1))]
    assert all(file.stat().st_size <= 2_000 for file in files)
    assert lines(tmp_path)[-1]["message"] == "line 499"


def test_events_are_not_shown(tmp_path: Path) -> None:
    shown = io.StringIO()
    with log_lines(PlainLines(shown)):
        log_event("x", "nobody listens")
        with work_log.work_log(tmp_path):
            log_event("x", "for the log")
            logging.getLogger("kgqa.engines").info("for both")
        log_event("x", "nobody listens")
    assert [line["message"] for line in lines(tmp_path)] == ["for the log", "for both"]
    assert shown.getvalue() == "for both\n"


def test_unwritable_log_stops_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with work_log.work_log(tmp_path / "file"):
        log_event("x", "into a file that is no folder")
    assert capfd.readouterr() == ("", "")


def test_error_gets_notes_on_how_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/bin/kgqa", "run", "ids=[a, b]"])

    def work() -> None:
        with monitor_work(QUIET, "run", tmp_path) as display:
            (beat,) = read_heartbeats()
            assert (beat.is_running, beat.what) == (True, "run")
            with display.stage("questions", 7, Ledger()) as stage:
                stage.finish(failed=False)
                stage.finish(failed=True)
                raise EngineDied("it died")

    with pytest.raises(EngineDied) as died:
        work()
    assert notes(died.value) == (
        f"saved: 2 of 7 questions in {tmp_path}, and every reply in the call cache",
        "continue with: kgqa run 'ids=[a, b]'",
    )
    assert (
        lines(tmp_path)[-1] | {"outcome": "failed", "failed": 1, "message": "EngineDied: it died"}
        == lines(tmp_path)[-1]
    )
    assert not read_heartbeats()


def test_heartbeat_has_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kgqa.runtime.monitor.BEAT", 0.02)
    monkeypatch.setattr("kgqa.runtime.monitor.PROGRESS", 0.05)
    with monitor_work(QUIET, "run", tmp_path) as display, display.stage("questions", 100, Ledger()) as stage:
        assert isinstance(display, RunMonitor)
        time.sleep(0.1)
        for _ in range(50):
            stage.finish(failed=False)
        until = time.monotonic() + 10
        while not read_heartbeats()[0].per_minute and time.monotonic() < until:
            time.sleep(0.02)
        beat = read_heartbeats()[0]
        assert beat.per_minute
        assert beat.count == 100
        time.sleep(0.2)
    progress = [line for line in lines(tmp_path) if line["event"] == "progress"]
    assert len(progress) >= 2
    assert progress[-1]["ended"] == 50


def test_command_line_of_another_program_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/pytest/__main__.py", "-q"])
    assert command_line() == ""
    monkeypatch.setattr("sys.argv", ["/somewhere/kgqa/__main__.py", "runs"])
    assert command_line() == "kgqa runs"


def test_full_disk_stops_no_work(tmp_path: Path) -> None:
    (tmp_path / LOG).symlink_to("/dev/full")
    with work_log.work_log(tmp_path):
        log_event("x", "more than there is room for")

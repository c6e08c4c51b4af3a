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
from kgqa.runtime.at_work import found_claims
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import QUIET, PlainLines, log_lines
from kgqa.runtime.watch import Watch, command_line, watched
from kgqa.runtime.work_log import LOG, tell


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LOG).read_text(encoding="ascii").splitlines()]


def test_a_secret_of_the_environment_is_never_in_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", 'sk-Tr0ub4dor"ä')
    monkeypatch.setenv("OTHER_TOKEN", "short")
    with work_log.work_log(tmp_path):
        tell("x", 'a reply with sk-Tr0ub4dor"ä in it', field=['sk-Tr0ub4dor"ä'])
        logging.getLogger("kgqa.engines").warning("for people: %s", 'sk-Tr0ub4dor"ä, short')
    assert [line["message"] for line in lines(tmp_path)] == [
        "a reply with [SOME_API_KEY] in it",
        "for people: [SOME_API_KEY], short",
    ]
    assert lines(tmp_path)[0]["field"] == ["[SOME_API_KEY]"]


def test_the_same_trouble_of_many_calls_is_one_line_with_its_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with work_log.work_log(tmp_path):
        for _ in range(1000):
            tell("retry", "again", cause="429")
            tell("retry", "again", cause="500")
        monkeypatch.setattr(work_log, "REPEATED", 0.0)
        tell("retry", "again", cause="429")
    assert [(line["cause"], line.get("times")) for line in lines(tmp_path)] == [
        ("429", None),
        ("500", None),
        ("429", 1000),
    ]


def test_a_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_log, "LARGEST", 2_000)
    with work_log.work_log(tmp_path):
        for number in range(500):
            tell("x", f"line {number}")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [LOG, *(f"{LOG}.{older}" for older in range(1, work_log.OLDER + 1))]
    assert all(file.stat().st_size <= 2_000 for file in files)
    assert lines(tmp_path)[-1]["message"] == "line 499"


def test_what_is_for_logs_alone_is_not_shown(tmp_path: Path) -> None:
    shown = io.StringIO()
    with log_lines(PlainLines(shown)):
        tell("x", "nobody listens")
        with work_log.work_log(tmp_path):
            tell("x", "for the log")
            logging.getLogger("kgqa.engines").info("for both")
        tell("x", "nobody listens")
    assert [line["message"] for line in lines(tmp_path)] == ["for the log", "for both"]
    assert shown.getvalue() == "for both\n"


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with work_log.work_log(tmp_path / "file"):
        tell("x", "into a file that is no folder")
    assert capfd.readouterr() == ("", "")


def test_an_error_that_ends_watched_work_says_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/bin/kgqa", "run", "ids=[a, b]"])

    def work() -> None:
        with watched(QUIET, "run", tmp_path) as display:
            (claimed,) = found_claims()
            assert (claimed.state, claimed.claim.what) == ("working", "run")
            with display.stage("questions", 7, Ledger()) as stage:
                stage.finished(failed=False)
                stage.finished(failed=True)
                raise EngineDied("it died")

    with pytest.raises(EngineDied) as died:
        work()
    assert notes(died.value) == (
        f"kept: 2 of 7 questions in {tmp_path}, and every reply in the call cache",
        "go on with: kgqa run 'ids=[a, b]'",
    )
    assert (
        lines(tmp_path)[-1] | {"outcome": "failed", "failed": 1, "message": "EngineDied: it died"}
        == lines(tmp_path)[-1]
    )
    assert not found_claims()


def test_work_that_stands_still_shows_signs_of_life_and_its_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kgqa.runtime.watch.BEAT", 0.02)
    monkeypatch.setattr("kgqa.runtime.watch.PROGRESS", 0.05)
    with watched(QUIET, "run", tmp_path) as display, display.stage("questions", 100, Ledger()) as stage:
        assert isinstance(display, Watch)
        time.sleep(0.1)
        for _ in range(50):
            stage.finished(failed=False)
        until = time.monotonic() + 10
        while not found_claims()[0].claim.per_minute and time.monotonic() < until:
            time.sleep(0.02)
        claim = found_claims()[0].claim
        assert claim.per_minute
        assert claim.seconds_left is not None
        time.sleep(0.2)
    progress = [line for line in lines(tmp_path) if line["event"] == "progress"]
    assert len(progress) >= 2
    assert progress[-1]["ended"] == 50


def test_another_program_has_no_command_to_go_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/pytest/__main__.py", "-q"])
    assert command_line() == ""
    monkeypatch.setattr("sys.argv", ["/somewhere/kgqa/cli.py", "runs"])
    assert command_line() == "kgqa runs"


def test_a_log_that_the_disk_does_not_take_stops_no_work_when_it_is_closed(tmp_path: Path) -> None:
    (tmp_path / LOG).symlink_to("/dev/full")
    with work_log.work_log(tmp_path):
        tell("x", "more than there is room for")

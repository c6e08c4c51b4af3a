"""What leaves the program: nothing unforeseen is a traceback, nothing that others wrote is an order to the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from kgqa.cli import main as cli
from tests.e2e.conftest import QUICK, Kgqa
from tests.unit.test_inert import ORDERS


class Panic(BaseException):
    """As libraries written in Rust raise."""


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), MemoryError(), RecursionError("deep"), Panic("index"), OSError(5, "I/O"), BrokenPipeError(32, "x")],
    ids=lambda error: type(error).__name__,
)
def test_an_unforeseen_error_is_one_line_and_a_file(
    error: BaseException, kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> NoReturn:
        raise error

    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-indeed")
    monkeypatch.setattr(cli, "_run", fails)
    ran = kgqa("run", "tracker.uri=http://me:password@host/", "x=sk-very-secret-indeed")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    (file,) = (tmp_path / "home" / "errors").iterdir()
    assert str(file) in ran.err
    assert file.stat().st_mode & 0o777 == 0o600
    told = file.read_text()
    assert "Traceback (most recent call last)" in told
    assert type(error).__name__ in told
    assert "kgqa run tracker.uri=http" in told
    assert "Python 3." in told
    assert "password" not in told + ran.err
    assert "very-secret" not in told + ran.err


def test_where_no_file_can_be_written_the_line_says_so(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    nothing: dict[str, int] = {}
    monkeypatch.setattr(cli, "_run", lambda _: nothing["missing"])
    ran = kgqa("runs")
    assert ran.code == 1
    assert "KeyError: 'missing'); its traceback could not be written" in ran.err


def started(*arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "kgqa", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **more}
    return subprocess.run(command, capture_output=True, env=environment, check=False)


@pytest.mark.parametrize(
    "terminal",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ASCII", "Latin-1", "C"],
)
def test_help_and_errors_are_read_on_any_terminal(terminal: dict[str, str]) -> None:
    helped, refused = started("--help", **terminal), started("show", "caf\xe9", os.fsdecode(b"\xff"), **terminal)
    assert (helped.returncode, helped.stderr) == (0, b"")
    assert refused.returncode == 2
    assert refused.stderr.count(b"\n") == 1


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m kgqa --help | true; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(["bash", "-c", command], capture_output=True, env=environment, check=False)
    assert (ended.stdout, ended.stderr) == (b"0\n", b"")


def test_questions_of_others_are_shown_without_orders(kgqa: Kgqa) -> None:
    hostile = "\x1b[31m \x9b2J \x7f \u202ereversed =1+1 \x07"
    passage = {"idx": 0, "title": f"Title {hostile}", "paragraph_text": f"Ann. {hostile}", "is_supporting": True}
    record = {"id": f"q{hostile}", "question": f"=Who? {hostile}", "answer": f"=Ann {hostile}", "paragraphs": [passage]}
    Path("q.jsonl").write_text(json.dumps(record) + "\n")
    asked = ("run", "method=no_context", "dataset=musique", "dataset.path=q.jsonl", *QUICK)
    ran = kgqa(*asked, "out=run")
    again = kgqa(*asked, "seed=1", "out=other")
    said = [ran, again, kgqa("show", "run"), kgqa("show", "run", record["id"]), kgqa("runs"), kgqa("runs", "--json")]
    said += [kgqa("compare", "run", "other"), kgqa("report", "run"), kgqa("show", "run", "q\x1b[31m")]
    said += [kgqa("run", f"method={hostile}"), kgqa("run", f"name=\u202e{hostile}", *QUICK), kgqa(hostile)]
    assert [each.code for each in said] == [0] * 8 + [2] * 4
    assert not [each for each in said if ORDERS.search(each.out + each.err)]
    assert "\\x1b[31m" in said[3].out
    kgqa("report", "run", "--format", "csv")
    assert ",'=Who? " in Path("run/report.csv").read_text(encoding="utf-8")

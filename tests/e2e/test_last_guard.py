"""What leaves the program: an unforeseen error is no traceback, and no text of others controls the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from kgqa.cli import main as cli
from tests.e2e.conftest import QUICK, Kgqa
from tests.unit.test_commands import CONTROL


class Panic(BaseException):
    """As libraries written in Rust raise."""


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), Panic("index"), OSError(5, "I/O")], ids=repr)
def test_an_unforeseen_error_is_one_line_and_a_file(
    error: BaseException, kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> NoReturn:
        raise error

    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-indeed")
    monkeypatch.setattr(cli, "_run", fails)
    ran = kgqa("run", "tracker.uri=http://me:password@host/", "x=sk-very-secret-indeed")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    (file,) = (tmp_path / "home" / "errors").iterdir()
    assert str(file) in ran.err
    assert file.stat().st_mode & 0o777 == 0o600
    report = file.read_text()
    for part in ("Traceback (most recent call last)", type(error).__name__, "kgqa run tracker.uri=http", "Python 3."):
        assert part in report
    assert not [secret for secret in ("password", "very-secret") if secret in report + ran.err]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert "Its traceback could not be written" in kgqa("runs").err


def test_questions_of_others_are_shown_without_orders(kgqa: Kgqa) -> None:
    hostile = "\x1b[31m \x9b2J \x7f \u202ereversed =1+1 \x07"
    passage = {"idx": 0, "title": f"Title {hostile}", "paragraph_text": f"Ann. {hostile}", "is_supporting": True}
    record = {"id": f"q{hostile}", "question": f"=Who? {hostile}", "answer": f"=Ann {hostile}", "paragraphs": [passage]}
    Path("q.jsonl").write_text(json.dumps(record) + "\n")
    command = ("run", "method=no_context", "dataset=musique", "dataset.path=q.jsonl", *QUICK)
    said = [kgqa(*command, "output_dir=run"), kgqa(*command, "seed=1", "output_dir=other")]
    said += [kgqa("show", "run"), kgqa("show", "run", record["id"]), kgqa("runs"), kgqa("runs", "--json")]
    said += [kgqa("compare", "run", "other"), kgqa("report", "run"), kgqa("show", "run", "q\x1b[31m")]
    said += [kgqa("run", f"method={hostile}"), kgqa("run", f"run_name=\u202e{hostile}", *QUICK), kgqa(hostile)]
    assert [each.code for each in said] == [0] * 8 + [2] * 4
    assert not [each for each in said if CONTROL.search(each.out + each.err)]
    assert "\\x1b[31m" in said[3].out
    kgqa("report", "run", "--format", "csv")
    assert ",'=Who? " in Path("run/report.csv").read_text(encoding="utf-8")

"""Runs of the command line in a folder of their own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.metrics import METRICS
from kgqa.cli.main import main
from kgqa.engines.scripted import Scripted
from kgqa.runtime.display import QUIET
from kgqa.runtime.monitor import monitor_work

DEMO = Path(__file__).parents[2] / "kgqa/datasets/demo.jsonl"
QUICK = ("engine=scripted", "ranker=lexical", "demonstrations_ranker=lexical")  # no weights


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def folder(self) -> Path:
        return Path(self.out.strip().splitlines()[-1])

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def json(self, name: str) -> Any:
        return json.loads(self.text(name))


Kgqa = Callable[..., Ran]


@pytest.fixture
def kgqa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Kgqa:
    """Run one command line in an empty folder: `kgqa("run", "limit=3")`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGQA_CACHE", raising=False)

    def run(*arguments: str) -> Ran:
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def run_in(folder: Path, *arguments: str) -> Ran:
    """Run one command line in a folder. Fixtures of a module use it for runs that tests only look at."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.delenv("KGQA_CACHE", raising=False)
        code = main(arguments)
    return Ran(code, out.getvalue(), err.getvalue())


def interrupt_run(folder: Path, run: Path, *arguments: str) -> None:
    """Leave the files of a finished run in a folder as if Ctrl-C had stopped this command."""
    (folder / run / METRICS).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["kgqa", *arguments])
        with pytest.raises(KeyboardInterrupt), monitor_work(QUIET, "run", run):
            raise KeyboardInterrupt


def refused(ran: Ran, message: str) -> None:
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.out + ran.err
    assert message in ran.err


def before_each_call(
    monkeypatch: pytest.MonkeyPatch, react: Callable[[Scripted, Any], Exception | None]
) -> None:
    """Let `react` see each call of the scripted engine. An error that it returns stands for the reply."""
    reply = Scripted._reply
    monkeypatch.setattr(
        Scripted,
        "_reply",
        lambda engine, call, *rest: react(engine, call) or reply(engine, call, *rest),
    )


def write_file(file: str | Path, text: str) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text, encoding="utf-8")


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write_lines(file: Path, records: Iterable[Any]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def write_rules(rules: Iterable[tuple[str, Any]], file: str | Path = "rules.jsonl") -> str:
    """Return the override for an engine that gives these replies. One that is no text is written as JSON."""
    pairs = [
        (match, reply if isinstance(reply, str) else json.dumps(reply)) for match, reply in rules
    ]
    write_lines(Path(file), ({"match": match, "reply": reply} for match, reply in pairs))
    return f"engine.rules={file}"


TWO = ["run", "-m", "method=golden,no_context", "limit=2", *QUICK]


def result(folder: Path, number: int) -> Any:
    return json.loads((folder / f"cells/{number:03}.json").read_text())


def statuses(folder: Path) -> list[str]:
    return [
        json.loads(file.read_text())["status"] for file in sorted((folder / "cells").glob("*.json"))
    ]

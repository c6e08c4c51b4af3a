"""Runs of the command line in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kgqa.cli.main import main

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

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))


Kgqa = Callable[..., Ran]


@pytest.fixture
def kgqa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kgqa:
    """Run one command line in an empty folder: `kgqa("run", "limit=3")`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGQA_CACHE", raising=False)

    def run(*arguments: str) -> Ran:
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


TWO = ["run", "-m", "method=golden,no_context", "limit=2", *QUICK]


def result(folder: Path, number: int) -> Any:
    return json.loads((folder / f"cells/{number:03}.json").read_text())


def statuses(folder: Path) -> list[str]:
    return [json.loads(file.read_text())["status"] for file in sorted((folder / "cells").glob("*.json"))]

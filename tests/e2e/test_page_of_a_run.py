"""The page that a run writes of what it remembers is the one that `kgqa report` makes of its trace."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from zlib import crc32

import pytest

from kgqa.calls import ModelCall
from kgqa.cli.main import main
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from kgqa.report import html
from kgqa.report.writing import write_report
from tests.e2e.conftest import QUICK


@pytest.mark.parametrize("method", ["trace", "ircot"])
def test_both_pages_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Of questions that failed, too."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest's workers send no half characters
    monkeypatch.chdir(tmp_path)
    folder, answer = tmp_path / "run", Scripted.answer

    def refused(call: ModelCall) -> bool:
        return "extract" not in call.prompt.name and crc32(call.prompt.messages[-1].content.encode()) % 17 == 0

    def failing(engine: Scripted, calls: Sequence[ModelCall]) -> list[object]:
        replies = answer(engine, calls)
        return [EngineError("half \ud800") if refused(call) else r for call, r in zip(calls, replies, strict=True)]

    monkeypatch.setattr(Scripted, "answer", failing)
    with monkeypatch.context() as patched:
        patched.setattr(html, "load_reported_questions", lambda _: pytest.fail("the trace was read"))
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert main(["run", f"method={method}", "limit=6", "max_failure_rate=1", *QUICK, f"out={folder}"]) == 0
    written = (folder / "report.html").read_bytes()
    again = write_report(folder, "html", tmp_path / "again.html").read_bytes()
    assert written == again
    assert '"error": "EngineError' in (folder / "predictions.jsonl").read_text(encoding="utf-8")

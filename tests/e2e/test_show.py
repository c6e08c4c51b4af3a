"""`kgqa show` finds what went wrong, at 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kgqa.calls import ModelCall
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from kgqa.types import Completion, Usage
from tests.e2e.conftest import QUICK, Kgqa

ANSWERS = {"architect of the Candle": "Pellery", "opened first": "Candle", "Who founded": None}  # None: fails


@pytest.fixture
def run(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> str:
    def answer(self: Scripted, calls: Sequence[ModelCall]) -> list[Completion | Exception]:
        replies: list[Completion | Exception] = []
        for call in calls:
            asked = call.prompt.messages[-1].content
            reply = next(reply for part, reply in ANSWERS.items() if part in asked)
            usage = Usage(10, 0, 1, 0.0)
            replies.append(EngineError("no reply") if reply is None else Completion(reply, "stop", usage))
        return replies

    monkeypatch.setattr(Scripted, "answer", answer)
    monkeypatch.setattr("kgqa.cli.terminal.WIDTH", 80)
    return str(kgqa("run", "method=golden", "limit=3", "max_failure_rate=1", *QUICK).folder)


def test_questions_stand_in_the_files_order_options_choose_among_them_and_one_is_short(kgqa: Kgqa, run: str) -> None:
    shown = kgqa("show", run).out.splitlines()
    rows = [line.split() for line in shown if "hop" in line.split(" ")[0]]
    assert [row[:3] for row in rows] == [
        ["2hop__demo_01", "right", "100.0"],
        ["2hop__demo_02", "wrong", "66.7"],
        ["3hop1__demo_03", "failed", "0.0"],
    ]
    assert max(map(len, shown)) <= 80
    assert shown[-1] == "3 questions: 1 right, 1 wrong, 1 failed (by exact match)"
    brief, calls = (kgqa("show", run, "2hop__demo_02", *more).out for more in ((), ("--calls",)))
    assert "scores: EM 0.0 · F1 66.7 (musique profile)" in brief
    hidden = "Saddlers' Bridge"  # neither gold nor used
    assert [(f"{hidden}:" in page, "[user]" in page) for page in (brief, calls)] == [(False, False), (True, True)]
    assert hidden in brief
    for options, ids, limited in [
        ("--wrong", ["2hop__demo_02"], []),
        ("--failed", ["3hop1__demo_03"], []),
        ("--wrong --failed --limit 1", ["2hop__demo_02"], ["1 of 2 shown. All: --limit 2"]),
        ("--limit 2", ["2hop__demo_01", "2hop__demo_02"], ["2 of 3 shown. All: --limit 3"]),
    ]:
        shown = kgqa("show", run, *options.split()).out.splitlines()
        assert [word for line in shown for word in line.split()[:1] if "hop" in word] == ids
        assert [line for line in shown if " shown. All: " in line] == limited

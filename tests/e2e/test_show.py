"""`kgqa show` finds what went wrong."""

from __future__ import annotations

import pytest

from kgqa.errors import EngineError
from tests.e2e.conftest import QUICK, Kgqa, before_each_call, refused, write_rules


@pytest.fixture
def run(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the folder of a run with a right answer, a wrong one and a failed call."""
    error = EngineError("no reply")
    before_each_call(
        monkeypatch, lambda engine, call: error if "Who founded" in engine.render(call) else None
    )
    rules = write_rules([("architect of the Candle", "Pellery"), ("opened first", "Candle")])
    return str(kgqa("run", "method=golden", "limit=3", "max_failure_rate=1", rules, *QUICK).folder)


def test_long_answer_is_cut_without_calls(kgqa: Kgqa) -> None:
    answer = "x" * 100_000
    rules = write_rules([(".", answer)])
    folder = str(kgqa("run", "method=golden", "limit=1", rules, *QUICK).folder)
    listed, brief, calls = (
        kgqa("show", folder, *more).out
        for more in ((), ("2hop__demo_01",), ("2hop__demo_01", "--calls"))
    )
    assert len(listed) < 5_000
    assert len(brief) < 15_000
    assert "more characters)" in brief
    assert calls.count("x") > 100_000
    assert len(kgqa("report", folder).out) < 1_000


def test_unknown_question_has_close_ids(kgqa: Kgqa, run: str) -> None:
    message = (
        f"demo_03: no such question among the 3 of {run}. "
        f"The closest ids: 3hop1__demo_03, 2hop__demo_02, 2hop__demo_01. List all: kgqa show {run}"
    )
    refused(kgqa("show", run, "demo_03"), message)


def test_show_lists_questions_in_the_order_of_the_file(kgqa: Kgqa, run: str) -> None:
    lines = kgqa("show", run).out.splitlines()
    rows = [line.split() for line in lines if "hop" in line.split(" ")[0]]
    assert [row[:3] for row in rows] == [
        ["2hop__demo_01", "right", "100.0"],
        ["2hop__demo_02", "wrong", "66.7"],
        ["3hop1__demo_03", "failed", "0.0"],
    ]
    assert lines[-1] == "3 questions: 1 right, 1 wrong by exact match, 1 failed"
    brief, calls = (kgqa("show", run, "2hop__demo_02", *more).out for more in ((), ("--calls",)))
    assert "scores: EM 0.0 · F1 66.7 (musique profile)" in brief
    title = "Saddlers' Bridge"  # neither gold nor used
    assert [(f"{title}:" in page, "[user]" in page) for page in (brief, calls)] == [
        (False, False),
        (True, True),
    ]
    assert title in brief
    for options, ids, limited in [
        ("--wrong", ["2hop__demo_02"], []),
        ("--failed", ["3hop1__demo_03"], []),
        ("--wrong --failed --limit 1", ["2hop__demo_02"], ["1 of 2 shown. All: --limit 2"]),
        ("--limit 2", ["2hop__demo_01", "2hop__demo_02"], ["2 of 3 shown. All: --limit 3"]),
    ]:
        lines = kgqa("show", run, *options.split()).out.splitlines()
        assert [word for line in lines for word in line.split()[:1] if "hop" in word] == ids
        assert [line for line in lines if " shown. All: " in line] == limited


def test_passages_from_the_corpus_are_shown(kgqa: Kgqa) -> None:
    """Not only those that come with the question."""
    folder = str(kgqa("run", "method=retrieve_read", "limit=1", *QUICK).folder)
    lines = kgqa("show", folder, "2hop__demo_01").out.splitlines()
    ranks = {
        word for line in lines for word in line.split() if word in ("#1", "#2", "#3", "#4", "#5")
    }
    assert len(ranks) == 5
    assert lines[lines.index("── 0 search: 5 results") + 3] == "… (4 more)"


def test_folder_of_something_else_is_no_run(kgqa: Kgqa, run: str) -> None:
    refused(kgqa("show", "outputs"), "outputs: not the folder of a run. List runs: kgqa runs")

"""Errors never become scores: a run that lost too many questions says so, and its exit code does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from tests.e2e.conftest import QUICK, Kgqa

RUN = ("run", "method=no_context", "limit=4", *QUICK)
Fail = Callable[[int], None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """The first calls of each batch are refused."""
    answer = Scripted.answer

    def failing(first: int) -> None:
        def some(self: Scripted, calls: Any) -> Any:
            return [EngineError("no reply")] * len(calls[:first]) + list(answer(self, calls[first:]))

        monkeypatch.setattr(Scripted, "answer", some)

    return failing


def test_a_run_that_lost_every_question_has_no_score_and_fails(kgqa: Kgqa, fail: Fail) -> None:
    fail(4)
    ran = kgqa(*RUN)
    assert ran.code == 2
    assert "4 of 4 questions failed, above max_failure_rate=0.05" in ran.out + ran.err
    assert "EngineError: no reply" in ran.out + ran.err
    assert not [line for line in (ran.out + ran.err).splitlines() if line.startswith(("EM ", "F1 "))]
    metrics = ran.json("metrics.json")
    assert (metrics["failed"], {score["mean"] for score in metrics["scores"].values()}) == (4, {None})
    assert "| EM |" not in (ran.folder / "report.md").read_text()
    assert "every question of this run failed. Run its command again" in kgqa("evaluate", str(ran.folder)).err
    fail(0)
    again = kgqa(*RUN, "max_failure_rate=0.5")
    assert (again.code, again.folder, again.json("metrics.json")["failed"]) == (0, ran.folder, 0)


@pytest.mark.parametrize(("limit", "code"), [("0.24", 2), ("0.25", 0), ("1", 0), ("0", 2)])
def test_max_failure_rate_is_the_share_that_may_fail(kgqa: Kgqa, fail: Fail, limit: str, code: int) -> None:
    fail(1)
    ran = kgqa(*RUN, f"max_failure_rate={limit}")
    swept = kgqa("run", "-m", *RUN[1:], "seed=1,2", f"max_failure_rate={limit}")
    assert (ran.code, swept.code) == (code, code)
    for each in (ran, swept):
        assert ("1 of 4 questions failed, above max_failure_rate" in each.out + each.err) == (code == 2)
    assert "answered 3 of 4: 4 (1 failed and count as wrong, 0 empty answers)" in ran.out + ran.err
    assert ran.json("metrics.json")["scores"]["em"]["n"] == 4


@pytest.mark.parametrize("failed", [3, 4])
def test_retrieval_is_measured_unless_every_question_failed(kgqa: Kgqa, fail: Fail, failed: int) -> None:
    fail(failed)
    ran = kgqa("run", "method=retrieve_read", "limit=4", "max_failure_rate=1", *QUICK)
    assert ran.json("metrics.json")["failed"] == failed
    assert ("retrieval" in ran.json("metrics.json")) == (failed < 4)


def test_failed_questions_are_named_with_every_score(kgqa: Kgqa, fail: Fail) -> None:
    fail(1)
    ran = kgqa(*RUN, "max_failure_rate=1", "run_name=a")
    metrics = ran.json("metrics.json")
    assert (metrics["scores"]["em"]["n"], metrics["answered"]["em"]["n"]) == (4, 3)
    assert "of all, " in ran.out + ran.err
    report = (ran.folder / "report.md").read_text(encoding="utf-8")
    assert "answered 3 of 4" in report.splitlines()[0]
    assert "The second value is of the answered 3 of 4 only" in report
    page = (ran.folder / "report.html").read_text(encoding="utf-8")
    assert '<div class="wrong"><dt>failed</dt><dd>1 <small>of 4</small></dd></div>' in page
    assert page.partition("<h2>Failed questions</h2>")[2].partition("</section>")[0].count('<li><a href="#q=') == 1
    swept = kgqa("run", "-m", *RUN[1:], "seed=1,2", "max_failure_rate=1", "sweep.name=s")
    assert swept.code == 0
    assert "1 of 4" in Path("outputs/sweeps/s/report.md").read_text(encoding="utf-8")
    assert "answered 3 of 4" in Path("outputs/sweeps/s/report.md").read_text(encoding="utf-8")
    fail(0)
    sound = kgqa(*RUN, "run_name=b", "seed=3").folder
    compared = kgqa("compare", str(ran.folder), str(sound))
    assert (
        "A answered 3 of 4, B answered 4 of 4. Each pair is compared on the questions that both answered"
        in compared.out
    )
    again = kgqa("run", "-m", *RUN[1:], "seed=1,2", "max_failure_rate=1", "sweep.name=s")
    assert "2 done" in again.out
    assert "answered" not in kgqa("compare", str(sound), str(sound)).out


def test_failed_extraction_is_named_and_tried_again(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, refused = Scripted.answer, list[Any]()

    def refuse_first(self: Scripted, calls: Any) -> Any:
        first = [call for call in calls if call.role == "extractor"][:1] if not refused else []
        refused.extend(first)
        others = [call for call in calls if call not in first]
        replies = iter(answer(self, others) if others else ())
        return [EngineError("no reply") if call in first else next(replies) for call in calls]

    monkeypatch.setattr(Scripted, "answer", refuse_first)
    monkeypatch.setattr("kgqa.kg.graph.MAX_FAILED", 1.0)
    command = ("run", "method=trace", "experiment=quick", "limit=2", "run_name=a", *QUICK)
    first = kgqa(*command)
    assert first.json("metrics.json")["graph"]["failed"] == 1
    assert "The knowledge graph is incomplete: the extraction of 1 of" in (first.folder / "report.md").read_text()
    again = kgqa(*command)
    assert again.json("metrics.json")["graph"]["failed"] == 0
    assert "incomplete" not in (again.folder / "report.md").read_text()
    assert "already complete" in kgqa(*command).out

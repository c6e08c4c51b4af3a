"""What a run says of failed questions, tokens and money. Errors never become scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Choose
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


@pytest.mark.parametrize(("limit", "code"), [("0.24", 2), ("0.25", 0)])
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


PRICES = "model.prices={input: 1.0, cached: 0.5, output: 2.0}"


def test_dollars_are_shown_where_prices_are_known_and_nowhere_else(kgqa: Kgqa) -> None:
    unpriced = kgqa("run", "method=no_context", "limit=2", *QUICK)
    assert unpriced.json("metrics.json")["cost"]["method"]["usd"] is None
    assert "USD" not in unpriced.out
    priced = kgqa("run", "method=no_context", "limit=2", PRICES, *QUICK)
    cost = priced.json("metrics.json")["cost"]["method"]
    assert cost["usd"] == pytest.approx((cost["prompt_tokens"] + 2 * cost["output_tokens"]) / 1e6)
    assert "USD" in priced.out
    assert priced.folder == unpriced.folder  # prices change no answer


def test_flags_of_model_calls_are_shown_with_their_share(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Scripted.answer

    def flagging(self: Scripted, calls: Sequence[Any]) -> Any:
        """What an engine does that gives conversations to a base model."""
        return [replace(reply, flags=("no_template",)) for reply in answer(self, calls)]  # type: ignore[type-var]

    kgqa("run", "method=no_context", "limit=3", *QUICK)
    monkeypatch.setattr(Scripted, "answer", flagging)
    ran = kgqa("run", "method=no_context", "limit=4", *QUICK)  # three of four replies are from the cache, unflagged
    reader = ran.json("metrics.json")["cost"]["method"]["by_role"]["reader"]
    assert reader["flags"] == {"no_template": {"calls": 1, "share": 0.25}}
    assert "| reader | no_template | 1 | 25.0 % |" in (ran.folder / "report.md").read_text(encoding="utf-8")
    assert "no_template 1 (25.0 %)" in ran.out
    last = json.loads((ran.folder / "predictions.jsonl").read_text().splitlines()[-1])["question_id"]
    assert "no_template" in kgqa("show", str(ran.folder), last).out


def test_failing_selector_call_is_an_error_of_its_question(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, bad = Scripted.answer, "architect of the Candle Bridge"

    def fail(self: Scripted, calls: Sequence[Any]) -> Any:
        fails = [isinstance(call, Choose) and bad in self.render(call).rpartition("Question:")[2] for call in calls]
        replies = answer(self, calls)
        return [EngineError("no reply") if failed else reply for failed, reply in zip(fails, replies, strict=True)]

    monkeypatch.setattr(Scripted, "answer", fail)
    ran = kgqa("run", "method=trace", "limit=3", "max_failure_rate=0.5", *QUICK)
    first, *others = map(json.loads, (ran.folder / "predictions.jsonl").read_text().splitlines())
    assert (ran.code, first["answer"], first["error"]) == (0, None, "EngineError: no reply")
    assert all(other["error"] is None for other in others)
    metrics = ran.json("metrics.json")
    assert (metrics["questions"], metrics["failed"], metrics["answerless"]) == (3, 1, 0)

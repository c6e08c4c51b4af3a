"""What a run says about tokens, time and money."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Choose
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from tests.e2e.conftest import QUICK, Kgqa

PRICES = "model.prices={input: 1.0, cached: 0.5, output: 2.0}"


def test_a_run_reports_rates_and_the_engine_of_its_roles(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=trace", "limit=3", "engine.delay=0.02", *QUICK)
    measured = ran.json("metrics.json")["throughput"]
    [engine] = measured["engines"]
    assert engine["engine"] == "smollm2_135m@scripted"
    assert engine["roles"] == ["reader", "selector"]
    cost = ran.json("metrics.json")["cost"]
    assert measured["tokens_per_second"]["prompt"] == pytest.approx(
        cost["paid"]["prompt_tokens"] / measured["seconds"], rel=0.01
    )
    assert cost["paid"]["queue_seconds"] > 0
    assert "tokens per second" in ran.out


def test_dollars_are_shown_where_prices_are_known_and_nowhere_else(kgqa: Kgqa) -> None:
    unpriced = kgqa("run", "method=no_context", "limit=2", *QUICK)
    assert unpriced.json("metrics.json")["cost"]["method"]["usd"] is None
    assert "USD" not in unpriced.out
    priced = kgqa("run", "method=no_context", "limit=2", PRICES, *QUICK)
    cost = priced.json("metrics.json")["cost"]["method"]
    assert cost["usd"] == pytest.approx((cost["prompt_tokens"] + 2 * cost["output_tokens"]) / 1e6)
    assert "USD" in priced.out


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


def test_prices_change_no_answer_so_they_change_no_folder(kgqa: Kgqa) -> None:
    first = kgqa("run", "method=no_context", "limit=1", *QUICK)
    assert kgqa("run", "method=no_context", "limit=1", PRICES, *QUICK).folder == first.folder

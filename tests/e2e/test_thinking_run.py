"""A whole run of a model that thinks: what it answered is scored, what it thought is kept, counted and shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Kgqa
from tests.engines.misbehaving import Misbehaving, answer

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
pytest.importorskip("llguidance", reason="engine openai needs llguidance")
RUN = ("run", "method=no_context", "limit=1", "model=gpt_4o_mini", "model.thinking=low", "engine=openai")
COUNTED: dict[str, Any] = {"completion_tokens": 125, "completion_tokens_details": {"reasoning_tokens": 100}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Misbehaving]:
    server = Misbehaving(always=answer({"content": "Pellery", "reasoning": "It lies in the north."}, **COUNTED))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    yield server
    server.stop()


def test_the_answer_is_scored_and_the_thought_kept_counted_and_shown(kgqa: Kgqa, server: Misbehaving) -> None:
    ran = kgqa(*RUN)
    assert ran.code == 0, ran.err
    metrics = ran.json("metrics.json")
    assert metrics["scores"]["em"]["mean"] == 100
    cost = metrics["cost"]["method"]
    assert (cost["output_tokens"], cost["reasoning_tokens"]) == (125, 100)
    assert cost["usd"] == pytest.approx((10 * 0.15 + 125 * 0.6) / 1e6, abs=1e-6)  # a thought is paid as output
    assert "125 generated, 100 for reasoning" in ran.out
    assert "Output tokens for reasoning: reader 100." in (ran.folder / "report.md").read_text()
    shown = kgqa("show", str(ran.folder), "2hop__demo_01").out
    assert "reasoning 'It lies in the north.', then 'Pellery'" in shown
    assert "100 of them reasoning" in shown

    again = kgqa(*RUN, "run_name=again").json("metrics.json")["cost"]  # from the cache, thought and all
    assert again["paid"]["calls"] == 0
    assert again["method"] == cost


def test_a_thought_that_took_all_is_said_in_the_report(kgqa: Kgqa, server: Misbehaving) -> None:
    server.always = answer({"content": None, "reasoning": "It lies"}, "length", **COUNTED)
    ran = kgqa(*RUN)
    metrics = ran.json("metrics.json")
    assert metrics["answerless"] == 1
    assert metrics["cost"]["method"]["flags"]["thought_out"] == {"calls": 1, "share": 1.0}
    assert "thought_out 1 (100.0 %)" in ran.out


def test_a_dry_run_expects_the_whole_thought(kgqa: Kgqa, server: Misbehaving) -> None:
    planned = {word: kgqa(*RUN, f"model.thinking={word}", "dry_run=true").out for word in ("off", "low")}
    generated = {word: int(_row(out)[-1].replace(",", "")) for word, out in planned.items()}
    assert generated["low"] == generated["off"] + 1024
    assert not server.asked


def _row(out: str) -> list[str]:
    """The cells of the reader's row in the table."""
    return next(line for line in out.splitlines() if line.startswith("reader ")).split()

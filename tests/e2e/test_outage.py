"""A server that fails for a while, and has all questions right otherwise: all are answered, or the run stops.

KGQA_OUTAGE=1000 runs it with more questions.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.conftest import Kgqa
from tests.e2e.processes import replies_kept
from tests.engines.misbehaving import Body, Conversation, Fault, Misbehaving, prompt, refuse, reply, reset

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
QUESTIONS = int(os.environ.get("KGQA_OUTAGE", "60"))
RUN = (
    "run", "method=no_context", "dataset=musique", "dataset.path=questions.jsonl", "model=gpt_4o_mini", "engine=openai",
    "ranker=lexical", "run_name=outage", "engine.backoff=0.01", "engine.retries=2",
)  # fmt: skip


class Omniscient(Misbehaving):
    """Knows all answers. After a third of them come the `outage`'s faults, one per request."""

    def __init__(self, outage: list[Fault]) -> None:
        self.outage = outage
        super().__init__(always=self.answer)

    def answer(self, conversation: Conversation, body: Body) -> None:
        if self.outage and len(self.answered) >= QUESTIONS // 3:
            fault = self.outage.pop()
            fault(conversation, body)
        else:
            self.answered[prompt(body)] += 1
            number = re.findall(r"\d+", prompt(body))[-1]
            conversation.answer(200, reply(body, f"town {number}"))


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    paragraph = {"idx": 0, "title": "T", "paragraph_text": "One.", "is_supporting": False}
    records = [
        {
            "id": f"2hop__{number}", "question": f"Which town is number {number}?", "answer": f"town {number}",
            "answer_aliases": [], "answerable": True, "paragraphs": [paragraph], "question_decomposition": [],
        }
        for number in range(QUESTIONS)
    ]  # fmt: skip
    (tmp_path / "questions.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))


@pytest.mark.usefixtures("questions")
def test_outage_that_ends_in_time_costs_no_question(kgqa: Kgqa) -> None:
    server = Omniscient([refuse(503), refuse(500), reset, refuse(429), refuse(401), refuse(403), refuse(502)])
    ran = kgqa(*RUN, f"engine.base_url={server.url}", "engine.server_timeout=60")
    server.stop()
    assert ran.code == 0, ran.err
    metrics = ran.json("metrics.json")
    assert (metrics["questions"], metrics["failed"], metrics["scores"]["em"]["mean"]) == (QUESTIONS, 0, 100)


@pytest.mark.usefixtures("questions")
@pytest.mark.parametrize("status", [401, 503])
def test_lasting_outage_stops_the_run(kgqa: Kgqa, tmp_path: Path, status: int) -> None:
    server = Omniscient([refuse(status)] * 1000)
    run = (*RUN, f"engine.base_url={server.url}", "engine.server_timeout=1")
    ran = kgqa(*run)
    assert ran.code == 3
    assert f"kgqa: {server.url} has not answered any call for 1 s: {status} no" in ran.err
    assert not (tmp_path / "outputs/musique/outage/metrics.json").exists()
    kept = replies_kept(tmp_path)
    assert QUESTIONS // 3 <= kept < QUESTIONS
    server.outage.clear()
    # a busy machine can take longer than a second for a reply
    again = kgqa(*run[:-1], "engine.server_timeout=60")
    server.stop()
    assert again.code == 0, again.err
    metrics = again.json("metrics.json")
    assert (metrics["failed"], metrics["scores"]["em"]["mean"]) == (0, 100)
    assert metrics["cost"]["paid"]["calls"] == QUESTIONS - kept
    assert Counter(server.answered.values()) == {1: QUESTIONS}


@pytest.mark.usefixtures("questions")
def test_lasting_outage_stops_a_sweep_at_its_first_cell(kgqa: Kgqa, tmp_path: Path) -> None:
    server = Omniscient([refuse(503)] * 1000)
    keys = [word for word in RUN if not word.startswith(("run", "method"))]
    sweep = ("run", "-m", "method=no_context,retrieve_read", *keys, "sweep.name=lost", f"engine.base_url={server.url}")
    ran = kgqa(*sweep, "engine.server_timeout=1")
    assert ran.code == 3
    assert f"kgqa: {server.url} has not answered any call for 1 s" in ran.err
    assert "questions, and all replies in the call cache" in ran.err
    assert [file.name for file in (tmp_path / "outputs/sweeps/lost/cells").glob("*.json")] == ["000.json"]
    server.outage.clear()
    again = kgqa(*sweep, "engine.server_timeout=1")
    server.stop()
    assert again.code == 0, again.err
    assert "cells: 2 done" in again.out

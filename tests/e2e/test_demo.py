"""`kgqa demo`: three methods side by side, gone on with and shown again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kgqa.artifacts.trace import read_trace
from kgqa.engines.scripted import Scripted
from kgqa.experiment.demo import leading_chain
from tests.e2e.conftest import Kgqa

SMALL = ("demo", "engine=scripted", "ranker=lexical")  # no weights


def test_three_methods_answer_the_same_questions_and_trace_shows_its_chain(kgqa: Kgqa) -> None:
    ran = kgqa(*SMALL)
    assert (ran.code, ran.err) == (0, "")
    rows = [line.split() for line in ran.out.splitlines() if re.match(r"\w+ +\d+\.\d +\d+\.\d +\d", line)]
    assert [row[0] for row in rows] == ["no_context", "all_documents", "trace"]
    for method, em, f1, *_ in rows:
        (file,) = Path("outputs/demo", method).rglob("metrics.json")
        scores = json.loads(file.read_text(encoding="utf-8"))["scores"]
        assert [float(em), float(f1)] == pytest.approx([scores["em"]["mean"], scores["f1"]["mean"]], abs=0.051)
    assert ran.out.count("  gold ") == 3
    assert "3 questions show how answers are found, not how good a method is" in ran.out
    (trace,) = Path("outputs/demo/trace").glob("*/*")
    for traced in read_trace(trace):
        for head, relation, tail in leading_chain(traced):
            assert f"{head} — {relation} → {tail}" in ran.out
    assert f"kgqa show {trace} ID" in ran.out


def test_a_second_demo_is_read_from_its_folders(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kgqa(*SMALL)
    monkeypatch.setattr(Scripted, "answer", lambda *_: pytest.fail("a model was asked again"))
    again = kgqa(*SMALL)
    assert again.code == 0
    assert again.out.count("already complete") == 3
    assert again.out.partition("method ")[2] == first.out.partition("method ")[2]


def test_keys_reach_all_three_and_those_of_trace_only_trace(kgqa: Kgqa) -> None:
    assert kgqa(*SMALL, "limit=2", "method.beam=1", "method.chains=1", "seed=7").code == 0
    configs = {file.parts[2]: file.read_text() for file in Path("outputs/demo").glob("*/*/*/config.yaml")}
    assert len(configs) == 3
    assert all("seed: 7\n" in config and "limit: 2\n" in config for config in configs.values())
    assert "beam: 1\n" in configs["trace"]

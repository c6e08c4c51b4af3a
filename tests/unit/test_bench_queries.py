"""`scripts/bench_queries.py`: the searches that follow a method's first reply, and the gold passages they add."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Question
from scripts.bench_queries import ALONE, MORE, SEARCHED, WITH, next_searches, scores

OPERA = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes.")
QUESTION = Question("q", "In which town was the composer of The Herring Queen born?", ("Fauskenes",), (OPERA, COMPOSER))
SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_queries.py"
PAIRS = " No\nExplore:\n- The Herring Queen | composer\n- Fauskenes | mayor"


def searched(method: str, text: str) -> tuple[list[str], int]:
    """The queries after this first reply, and how often the model was asked."""
    asked: list[Generate] = []

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, Generate):
            asked.append(call)
        return {Search: (OPERA,), CountTokens: 3}.get(type(call), Completion(text))

    program = build(compose([f"method={method}", "dataset=musique"])["method"], "method").answer(QUESTION)
    return [search.query for search in drive(next_searches(program), reply)], len(asked)


@pytest.mark.parametrize(
    ("method", "text", "queries"),
    [
        ("knowtrace", PAIRS, ["The Herring Queen composer", "Fauskenes mayor"]),
        ("knowtrace", " Yes\nThought: It is known.\nAnswer: Fauskenes", []),
        ("ircot", "It is by Asbjarne Lyngholt. He was born", ["It is by Asbjarne Lyngholt."]),
        ("ircot", "So the answer is: Fauskenes.", []),
    ],
)
def test_searches_after_the_first_reply(method: str, text: str, queries: list[str]) -> None:
    assert searched(method, text) == (queries, 1)


def test_further_gold_is_what_the_question_does_not_find() -> None:
    gold = frozenset({OPERA.id, COMPOSER.id})
    assert scores((OPERA,), [(OPERA,), (COMPOSER,)], gold) == {SEARCHED: 1.0, ALONE: 0.5, WITH: 1.0, MORE: 1.0}
    assert scores((OPERA,), [(OPERA,)], gold) == {SEARCHED: 1.0, ALONE: 0.5, WITH: 0.5, MORE: 0.0}
    assert scores((), [], gold) == {SEARCHED: 0.0, ALONE: 0.0, WITH: 0.0, MORE: 0.0}


def test_prompts_are_compared_on_the_same_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # the index is made in outputs/
    rules = tmp_path / "rules.jsonl"
    rules.write_text(json.dumps({"match": "Sufficient:", "reply": PAIRS}))
    words = f"method=knowtrace engine=scripted engine.rules={rules} --questions 3 --prompt a --prompt b"
    command = [sys.executable, str(SCRIPT), *words.split()]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.startswith("3 questions; ")
    assert f"| {SEARCHED} | 100.0 [100.0, 100.0] | 100.0 [100.0, 100.0] | +0.0 [+0.0, +0.0] |" in told

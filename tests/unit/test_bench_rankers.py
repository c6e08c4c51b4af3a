"""`scripts/bench_rankers.py`: gold passages among the first of a question's own, for several rankers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kgqa.types import Passage, Question
from scripts.bench_rankers import found

ROOT = Path(__file__).parents[2]
PASSAGES = tuple(Passage.of(f"Page {number}", f"Text {number}.") for number in range(4))
QUESTION = Question("q", "Which?", ("1",), PASSAGES, support=frozenset({PASSAGES[1].id, PASSAGES[3].id}))


def test_gold_among_the_first() -> None:
    relevance = (0.1, 0.9, 0.5, 0.2)
    assert [found(QUESTION, relevance, first) for first in (1, 2, 3)] == [0.5, 0.5, 1.0]
    assert found(QUESTION, (1.0, 1.0, 1.0, 1.0), 2) == 0.5  # equal ones keep their order


def measured(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/bench_rankers.py"), "dataset=demo", "--questions=3", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_ranker_is_as_good_as_itself() -> None:
    ran = measured("--ranker", "ranker=lexical", "--ranker", "ranker=lexical", "seed=1")
    assert ran.returncode == 0, ran.stderr
    row = next(line for line in ran.stdout.splitlines() if line.startswith("| gold among the first 10"))
    assert row.endswith("| 100.0 [100.0, 100.0] | 100.0 [100.0, 100.0] | +0.0 [+0.0, +0.0] |")
    assert "ranker=lexical seed=1: " in ran.stdout


def test_a_ranker_that_does_not_exist_is_one_line() -> None:
    ran = measured("--ranker", "ranker=lexcal")
    assert ran.returncode == 1
    assert ran.stderr.startswith("bench_rankers: ranker=lexcal: ")
    assert len(ran.stderr.splitlines()) == 1

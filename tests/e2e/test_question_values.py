"""Values of single questions: they give the figures of metrics.json, their intervals, and the order of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.reproduce.question_values import add_interval, compare_rows
from kgqa.scoring.published_delta import Metric, Ours, read_measured_value
from tests.e2e.conftest import QUICK, Kgqa

PATHS = {
    "context_tokens": "tokens",
    "cost.method.prompt_tokens / questions": "tokens",
    "cost.method.by_role.reader.prompt_tokens - cost.method.by_role.reader.cached_tokens / questions": "tokens",
    "cost.method.calls_per_question": "calls",
    "chains.length": "triples",
    "chains.documents_per_question": "documents",
}


@pytest.fixture
def runs(kgqa: Kgqa) -> list[Path]:
    given = ("run", "dataset=demo", "model=smollm2_135m", *QUICK)
    return [kgqa(*given, f"method={method}").folder for method in ("trace", "no_context")]


def test_means_have_bootstrap_intervals_over_questions(runs: list[Path]) -> None:
    metrics = Metrics.read(runs[0]).json()
    for path, unit in PATHS.items():
        metric = Metric("", path, unit, "")
        ours = read_measured_value(metrics, metric)
        assert ours, path
        ours = add_interval(ours, runs[0], metric)
        assert ours.low is not None, path
        assert ours.high is not None, path
        assert ours.low <= ours.mean <= ours.high, path


def test_a_value_that_the_questions_do_not_give_has_no_interval(runs: list[Path]) -> None:
    ours = Ours(1e6, None, None, 36)
    assert add_interval(ours, runs[0], Metric("", "context_tokens", "tokens", "")) == ours
    assert add_interval(ours, runs[0].parent, Metric("", "context_tokens", "tokens", "")) == ours


def test_rows_are_ordered_by_their_paired_difference(runs: list[Path]) -> None:
    tokens = Metric("", "context_tokens", "tokens", "")
    trace, bare = runs
    assert compare_rows([trace], [bare], tokens) == 1
    assert compare_rows([bare], [trace], tokens) == -1
    assert compare_rows([trace], [trace], tokens) == 0

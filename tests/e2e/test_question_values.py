"""Values of single questions: they give the figures of metrics.json, their intervals, and the order of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.reproduce.question_values import add_interval, compare_rows, pool_values
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


def test_pooled_values_are_over_all_questions(runs: list[Path], kgqa: Kgqa) -> None:
    few = kgqa("run", "method=trace", "limit=5", *QUICK).folder
    metric = Metric("", "cost.method.prompt_tokens / questions", "tokens", "")
    metrics = [Metrics.read(folder).json() for folder in (runs[0], few)]
    values = [read_measured_value(each, metric) for each in metrics]
    pooled = pool_values([value for value in values if value], [runs[0], few], metric)
    tokens, questions = (sum(f(each) for each in metrics) for f in (_tokens, _questions))
    assert pooled.questions == questions == 36 + 5
    assert pooled.mean == pytest.approx(tokens / questions)
    assert pooled.low is not None
    assert pooled.low < pooled.mean


def _tokens(metrics: Any) -> float:
    return float(metrics["cost"]["method"]["prompt_tokens"])


def _questions(metrics: Any) -> int:
    return int(metrics["questions"])


def test_values_that_questions_do_not_show_are_weighted(tmp_path: Path) -> None:
    judged = Metric("", "judge.accuracy", "%", "")
    pooled = pool_values([Ours(80.0, 70.0, 90.0, 10), Ours(50.0, 45.0, 55.0, 30)], [tmp_path, tmp_path], judged)
    assert (pooled.mean, pooled.questions) == (57.5, 40)
    assert (pooled.low, pooled.high) == pytest.approx((57.5 - 4.507, 57.5 + 4.507), abs=0.01)

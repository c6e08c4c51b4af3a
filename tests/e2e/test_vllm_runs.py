"""Runs on vLLM, from the command line to the end or to a sudden one. In vLLM's own environment, see the Makefile."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "vllm", reason="vLLM has an environment of its own: make test-engines runs its tests there"
)

from kgqa.config.building import build
from kgqa.config.composing import compose
from tests.e2e.conftest import QUICK
from tests.e2e.processes import replies_kept, started, wait_for_replies
from tests.e2e.test_real_models import TRACE, WEIGHTS, finish_run
from tests.engines.tiny import tiny
from tests.vllm_processes import below, gone

pytestmark = WEIGHTS
VLLM = (*TRACE, "engine=vllm", "engine.cache=1", *QUICK[1:])


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A run that takes even a small model minutes: one long answer after the other."""
    folder = tiny(
        tmp_path_factory.mktemp("tiny"), build(compose(["model=smollm2_135m"])["model"], "model")
    )
    weights = (f"model.path={folder}", "model.sha256=null", "model.packages=[]")
    slow = (
        "method=no_context",
        "method.max_answer_tokens=400",
        "engine.max_num_seqs=1",
        "engine.cache=1",
    )
    return ("run", "dataset=demo", "engine=vllm", "model=smollm2_135m", *slow, *weights)


def under_way(arguments: tuple[str, ...], folder: Path) -> tuple[subprocess.Popen[str], Any]:
    """A run that has two replies already, and vLLM's processes below it."""
    running = started(arguments, folder)
    wait_for_replies(folder, 2)
    return running, below(running.pid)


def test_the_demo_runs_on_vllm_and_then_from_the_cache(tmp_path: Path) -> None:
    _, metrics = finish_run((*VLLM, "limit=1", "method.max_length=2"), tmp_path)
    assert metrics["failed"] == 0
    assert metrics["graph"]["triples"] > 0
    assert metrics["cost"]["paid"]["cached_tokens"] > 0
    _, again = finish_run(
        (*VLLM, "limit=1", "method.max_length=2", "run_name=again"), tmp_path
    )  # a finished one asks nobody
    assert again["cost"]["paid"]["calls"] == 0


def test_crash_of_the_engine_stops_and_saves_the_run(
    tmp_path: Path, slow_run: tuple[str, ...]
) -> None:
    running, engine = under_way(slow_run, tmp_path)
    next(process for process in engine if process.name().startswith("VLLM::EngineCore")).kill()
    _, err = running.communicate(timeout=180)
    assert running.returncode == 3
    assert "vLLM crashed" in err
    assert "continue with: kgqa run" in err
    assert "Traceback" not in err
    assert replies_kept(tmp_path) >= 2
    assert gone(engine, 20)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_whatever_ends_a_run_ends_vllm_with_it(
    tmp_path: Path, slow_run: tuple[str, ...], how: signal.Signals, code: int
) -> None:
    running, engine = under_way(slow_run, tmp_path)
    assert engine
    running.send_signal(how)
    _, err = running.communicate(timeout=180)
    assert running.returncode == code
    assert "Traceback" not in err
    assert replies_kept(tmp_path) >= 2
    assert gone(engine, 20)


def test_two_models_have_their_own_servers(tmp_path: Path, slow_run: tuple[str, ...]) -> None:
    """The judge's vLLM starts next to that of the reader, with its own keys."""
    small = ("limit=1", "engine.cache=0.5", "engine.max_model_len=2048")
    judge = ("roles.judge=smollm2_135m@vllm", "roles.judge.engine.max_model_len=4096")
    _, metrics = finish_run(
        (*slow_run, "method.max_answer_tokens=8", *small, "judge=three_way", *judge), tmp_path
    )
    assert metrics["judge"]["models"] == {"judge": "smollm2_135m@vllm"}
    assert metrics["judge"]["cost"]["paid"]["calls"] > 0

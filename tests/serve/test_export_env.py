"""`kgqa export env` writes a package with the questions, the agent and its settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.cli.main import main

FILES = {
    "README.md",
    "pyproject.toml",
    *(f"kgqa_demo/{name}.py" for name in ("__init__", "harness", "taskset")),
}


@pytest.mark.usefixtures("own_folder")
def test_environment_has_questions_and_agent() -> None:
    Path("agent.py").write_text("print('Ann')", encoding="utf-8")
    assert main(["export", "env", "dataset=demo", "limit=2", "retriever=bm25", "--out", "env"]) == 0
    files = {str(file.relative_to("env")) for file in Path("env").rglob("*") if file.is_file()}
    package = Path("env/kgqa_demo")
    assert files >= FILES | {"kgqa_demo/agent/agent.py"}
    assert len((package / "questions.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    settings = json.loads((package / "environment.json").read_text(encoding="utf-8"))
    assert settings == {"profile": "musique", "command": ["python", "agent.py"]}
    assert "kgqa serve dataset=demo retriever=bm25" in Path("env/README.md").read_text(
        encoding="utf-8"
    )
    for file in package.glob("*.py"):
        compile(file.read_text(encoding="utf-8"), str(file), "exec")


@pytest.mark.usefixtures("own_folder")
def test_folder_with_files_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    Path("agent.py").write_text("print('Ann')", encoding="utf-8")
    Path("env").mkdir()
    Path("env/mine").touch()
    assert main(["export", "env", "dataset=demo", "--out", "env"]) == 2
    assert "this folder has files" in capsys.readouterr().err

"""A folder of a person's own: what `kgqa new` writes there runs, is swept over, and is run again when it changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kgqa.cli.system import FIRST_RUNS

# as the installed `kgqa` starts: without the working directory among the places that Python looks for modules
SCRIPT = "import sys\nfrom kgqa.cli.main import main\nsys.exit(main())\n"
Kgqa = Callable[[str], str]


@pytest.fixture
def kgqa(tmp_path: Path) -> Kgqa:
    """Runs a command line in an own folder and gives its output."""
    script = tmp_path / "bin" / "start.py"
    script.parent.mkdir()
    script.write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "own").mkdir()

    def run(line: str) -> str:
        ended = subprocess.run(
            [sys.executable, str(script), *line.split()],
            cwd=tmp_path / "own", capture_output=True, text=True, check=False,
        )  # fmt: skip
        return ended.stdout + ended.stderr

    return run


@pytest.mark.parametrize(
    ("group", "files"),
    [
        ("method", ["conf/method/mine.yaml", "mine.py", "prompts/mine/answer.j2", "test_mine.py"]),
        ("dataset", ["conf/dataset/mine.yaml", "data/mine.jsonl", "mine.py", "test_mine.py"]),
        ("retriever", ["conf/retriever/mine.yaml", "mine.py", "test_mine.py"]),
    ],
)
def test_what_kgqa_new_writes_runs_and_passes_its_test(
    group: str, files: list[str], kgqa: Kgqa, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    said = kgqa(f"new {group} mine")
    assert sorted(str(file.relative_to(own)) for file in own.rglob("*") if file.is_file()) == files
    told = FIRST_RUNS[group].format(name="mine")
    assert told in said
    folder = own / kgqa(told.removeprefix("kgqa ")).splitlines()[-1]
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["questions"] > 1
    assert metrics["failed"] == 0
    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    ended = subprocess.run(tested, cwd=own, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "mine: there is one already" not in said
    assert kgqa(f"new {group} mine") == f"kgqa: {group}=mine: there is one already; choose another name\n"


def test_passages_of_an_own_dataset_are_searched(kgqa: Kgqa, tmp_path: Path) -> None:
    kgqa("new dataset mine")
    folder = tmp_path / "own" / kgqa("run method=retrieve_read dataset=mine engine=scripted").splitlines()[-1]
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert (metrics["failed"], metrics["retrieval"]["recall"]["15"]["mean"]) == (0, 100.0)
    (tmp_path / "own" / "data" / "mine.jsonl").unlink()
    assert "no mine.jsonl (plain or .gz) in" in (said := kgqa("run method=golden dataset=mine engine=scripted"))
    assert "put it in one of these folders" in said


def test_files_that_are_there_are_left_alone(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "own" / "mine.py").write_text("mine", encoding="utf-8")
    assert kgqa("new method mine") == "kgqa: mine.py: is there already; choose another name\n"
    assert [file.name for file in (tmp_path / "own").iterdir()] == ["mine.py"]
    assert "no name for a module" in kgqa("new method Mine")
    assert "an installed module has this name" in kgqa("new method json")


def test_a_changed_module_or_prompt_runs_again_in_a_sweep(kgqa: Kgqa, tmp_path: Path) -> None:
    sweep = "run -m method=mine,golden dataset=demo engine=scripted limit=2 sweep.name=s"
    kgqa("new method mine")
    kgqa(sweep)
    assert "cells: 2 skipped" in kgqa(sweep)
    # a template may be any method's
    for name, ran in {"mine.py": "1 done, 1 skipped", "prompts/mine/answer.j2": "2 done"}.items():
        file = tmp_path / "own" / name
        file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        assert f"cells: {ran}" in kgqa(sweep)
    (tmp_path / "own" / "mine.py").write_text("class Mine:\n  uses =\n", encoding="utf-8")
    assert "mine.py:2: invalid syntax" in kgqa(sweep)

"""The same command on a finished run makes no calls and writes nothing, unless something can differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.experiment.experiment import Experiment
from tests.e2e.conftest import QUICK, Kgqa

PRICES = "model.prices={input: 1.0, cached: 0.5, output: 2.0}"
COMMAND = ("run", "method=all_documents", *QUICK)


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}


def test_a_finished_run_is_shown_and_stays_as_it_is(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kgqa(*COMMAND)
    before = files(first.folder)
    Path("outputs/.cache/calls.sqlite").unlink()
    monkeypatch.setattr(Experiment, "_sample", lambda *_: pytest.fail("read the questions"))
    again = kgqa(*COMMAND, "max_parallel_questions=3")
    assert (again.code, again.folder) == (0, first.folder)
    assert "already complete" in again.out
    assert files(first.folder) == before
    scores = [[line for line in ran.out.splitlines() if line.startswith(("EM", "F1"))] for ran in (first, again)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    "change", ["scoring=drop", PRICES, "report.html", "trace.jsonl.zst", "settings.json", "seed=3"]
)
def test_a_change_of_settings_or_files_runs_again(kgqa: Kgqa, change: str) -> None:
    folder = kgqa(*COMMAND, "run_name=a").folder
    if "=" not in change:
        (folder / change).unlink()
    name = "run_name=b" if change.startswith("seed") else "run_name=a"
    again = kgqa(*COMMAND, name, *([change] if "=" in change else []))
    assert again.code == 0
    assert "already complete" not in again.out
    assert (again.folder / "report.html").is_file()


def test_other_data_in_the_same_file_is_another_run(kgqa: Kgqa, tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "kgqa/datasets/demo.jsonl"
    first, second = demo.read_text(encoding="utf-8").splitlines()[:2]
    file = tmp_path / "questions.jsonl"
    command = ("run", "method=no_context", "dataset=musique", f"dataset.path={file}", *QUICK)
    file.write_text(f"{first}\n{second}", encoding="utf-8")
    folder = kgqa(*command).folder
    assert "already complete" in kgqa(*command).out
    file.write_text(json.dumps({**json.loads(first), "question": "Who else?"}) + f"\n{second}", encoding="utf-8")
    again = kgqa(*command)
    assert "already complete" not in again.out
    assert again.folder != folder


def test_failed_questions_are_tried_again(kgqa: Kgqa) -> None:
    folder = kgqa(*COMMAND).folder
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    (folder / "metrics.json").write_text(json.dumps({**metrics, "failed": 1}), encoding="utf-8")
    for name in ("settings.json", "report.md", "report.html"):
        (folder / name).touch()
    assert "already complete" not in kgqa(*COMMAND).out
    assert "already complete" in kgqa(*COMMAND).out

"""The same command on a finished run: nothing is asked or written, unless something could come out otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.experiment.session.experiment import Experiment
from tests.e2e.conftest import QUICK, Kgqa

PRICES = "model.prices={input: 1.0, cached: 0.5, output: 2.0}"
COMMAND = ("run", "method=all_documents", *QUICK)


def kept(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}


def test_a_finished_run_is_shown_and_stays_as_it_is(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kgqa(*COMMAND)
    before = kept(first.folder)
    Path("outputs/.cache/calls.sqlite").unlink()
    monkeypatch.setattr(Experiment, "_sample", lambda *_: pytest.fail("read the questions"))
    again = kgqa(*COMMAND)
    assert (again.code, again.folder) == (0, first.folder)
    assert "finished with this code, data and settings" in again.out
    assert kept(first.folder) == before
    assert [line for line in first.out.splitlines() if line.startswith(("EM", "F1", "model calls"))] == [
        line for line in again.out.splitlines() if line.startswith(("EM", "F1", "model calls"))
    ]


@pytest.mark.parametrize(
    "change",
    [
        "profile=drop",
        PRICES,
        "report.html",
        "trace.jsonl.zst",
        "settings.json",
        "seed=3",
    ],
)
def test_what_could_come_out_otherwise_is_run(kgqa: Kgqa, change: str) -> None:
    folder = kgqa(*COMMAND, "name=a").folder
    if "=" not in change:
        (folder / change).unlink()
    again = kgqa(*COMMAND, "name=b" if change.startswith("seed") else "name=a", *([change] if "=" in change else []))
    assert again.code == 0
    assert "finished with" not in again.out
    assert (again.folder / "report.html").is_file()


def test_predictions_that_somebody_changed_are_made_anew(kgqa: Kgqa) -> None:
    file = kgqa(*COMMAND).folder / "predictions.jsonl"
    before = file.read_bytes()
    file.write_bytes(before.replace(b'"evidence":', b'"evidence" :'))
    assert kgqa(*COMMAND).code == 0
    assert file.read_bytes() == before


def test_other_data_under_the_same_name_is_asked(kgqa: Kgqa, tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "kgqa/datasets/demo.jsonl"
    lines, file = demo.read_text(encoding="utf-8").splitlines()[:2], tmp_path / "questions.jsonl"
    command = ("run", "method=no_context", "dataset=musique", f"dataset.path={file}", *QUICK)
    file.write_text("\n".join(lines), encoding="utf-8")
    first = kgqa(*command)
    assert "finished with" in kgqa(*command).out
    changed = {**json.loads(lines[0]), "question": "Who else?"}
    file.write_text("\n".join([json.dumps(changed), lines[1]]), encoding="utf-8")
    again = kgqa(*command)
    assert "finished with" not in again.out
    assert again.folder != first.folder


def test_a_failed_question_is_asked_again(kgqa: Kgqa) -> None:
    command = (*COMMAND, "engine.batch_size=1")
    folder = kgqa(*command).folder
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    (folder / "metrics.json").write_text(json.dumps({**metrics, "failed": 1}), encoding="utf-8")
    for name in ("settings.json", "report.md", "report.html"):
        (folder / name).touch()
    assert "finished with" not in kgqa(*command).out
    assert "finished with" in kgqa(*command).out

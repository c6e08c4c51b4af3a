"""Sweeps whose cells fail, die or are interrupted: the others go on, and what was done is kept."""

from __future__ import annotations

import csv
import io
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.scripted import Scripted
from kgqa.experiment.run.executing import Executed, execute
from kgqa.experiment.session.session import Session
from kgqa.runtime.display import Display
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import replies_kept, started, wait_for_replies
from tests.e2e.sweeping import TWO, result


def test_a_cell_that_nobody_runs_any_more_is_interrupted(kgqa: Kgqa) -> None:
    folder = kgqa(*TWO).folder
    (folder / "cells/001.json").write_text(json.dumps({**result(folder, 1), "status": "running"}))  # as kill -9 does
    kgqa("report", str(folder), "--format", "md")
    assert (
        "| 1 | method=no_context | interrupted | no command works on this sweep now"
        in (folder / "report.md").read_text()
    )


def test_ctrl_c_ends_a_sweep_with_130_and_keeps_what_was_done(kgqa: Kgqa, tmp_path: Path) -> None:
    slow = ["run", "-m", "method=golden,no_context,all_documents", "limit=4", "engine.delay=3", *QUICK]
    running = started(slow, tmp_path)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("outputs/sweeps/*/cells/001.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    said = [line for line in err.splitlines() if line]
    assert said[0] == "kgqa: interrupted; the same command goes on from here"
    assert any(line.startswith("kgqa: saved: 1 of 3 cells in outputs/sweeps/") for line in said)
    assert said[-1] == f"kgqa: continue with: kgqa {' '.join(slow)}"
    (folder,) = (tmp_path / "outputs/sweeps").iterdir()
    assert kgqa("report", str(folder), "--format", "csv").code == 0
    rows = list(csv.DictReader(io.StringIO((folder / "report.csv").read_text())))
    assert [row["status"] for row in rows] == ["done", "interrupted", "waiting"]
    assert "cells: 1 skipped, 2 done" in kgqa(*slow).out


def test_a_failed_cell_stops_no_other_and_is_named(kgqa: Kgqa) -> None:
    ran = kgqa(
        "run", "-m", "method=golden", "model=qwen3_8b", "model.path=no.gguf", "engine=llamacpp,scripted", "limit=1"
    )
    assert ran.code == 2
    assert "cell 0 failed: engine=llamacpp: model.path=no.gguf" in ran.out
    assert "Cells without figures" in (ran.folder / "report.md").read_text()
    assert [result(ran.folder, number)["status"] for number in range(2)] == ["failed", "done"]


def test_a_defect_in_one_cell_stops_no_other_and_is_in_its_log(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(session: Session, display: Display) -> Executed:
        if session.experiment.name("method") == "golden":
            raise KeyError("a defect")
        return execute(session, display)

    monkeypatch.setattr("kgqa.sweeps.running.execute", stumbles)
    ran = kgqa(*TWO)
    assert ran.code == 2
    assert [result(ran.folder, number)["status"] for number in range(2)] == ["failed", "done"]
    assert "cell 0 failed: method=golden: KeyError: 'a defect'; its traceback is in" in ran.out
    assert "Traceback" not in ran.out + ran.err
    assert "in stumbles" in (ran.folder / "cells/000.log").read_text()


def test_a_cell_in_which_too_many_questions_fail_has_failed(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    from kgqa.errors import EngineError

    answer = Scripted.answer

    def refuses(self: Scripted, calls: Any) -> Any:
        return [EngineError("no reply") for _ in calls]

    with monkeypatch.context() as patch:
        patch.setattr(Scripted, "answer", refuses)
        ran = kgqa(*TWO)
    assert ran.code == 2
    assert "2 of 2 questions" in result(ran.folder, 0)["error"]
    assert answer is Scripted.answer
    assert "cells: 2 done" in kgqa(*TWO).out


def test_what_a_cell_had_paid_before_its_engine_died_counts(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    from kgqa.errors import EngineDied

    answer = Scripted.answer
    asked = []

    def dies_later(self: Scripted, calls: Any) -> Any:
        asked.extend(calls)
        if len(asked) == 2:
            raise EngineDied("out of memory")
        return answer(self, calls)

    monkeypatch.setattr(Scripted, "answer", dies_later)
    one_by_one = ("engine.batch_size=1", "max_parallel_questions=1", "limit=2")
    ran = kgqa("run", "-m", "method=golden,no_context", *one_by_one, *QUICK, "budget=1tokens")
    assert [result(ran.folder, number)["status"] for number in range(2)] == ["failed", "not run"]
    assert "the budget is spent: budget=1tokens" in ran.out


def test_two_processes_started_together_do_not_share_a_sweep(tmp_path: Path) -> None:
    slow = ["run", "-m", "method=golden,no_context", "limit=3", "engine.delay=1", *QUICK]
    running = [started(slow, tmp_path) for _ in range(2)]
    ended = [(run, *run.communicate(timeout=120)) for run in running]
    assert sorted(run.returncode for run, *_ in ended) == [0, 2]
    refused = next(err for run, _, err in ended if run.returncode == 2)
    assert "another kgqa process is working on this sweep" in refused


TWELVE = ["run", "-m", "method=trace,no_context", "seed=range(0,6)", "limit=2", "engine.batch_size=4", *QUICK]


def test_a_sweep_killed_twice_resumes_to_the_same_report(kgqa: Kgqa, tmp_path: Path) -> None:
    """No call that was kept is asked again, and every byte of the report is that of an undisturbed sweep."""
    slow = [*TWELVE, "engine.delay=0.05"]
    for _ in range(2):
        kept = replies_kept(tmp_path)
        running = started(slow, tmp_path)
        wait_for_replies(tmp_path, kept + 30)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert running.returncode == -signal.SIGKILL
    kept = replies_kept(tmp_path)
    resumed = kgqa(*slow)
    assert resumed.code == 0
    cells = resumed.json("sweep.json")["cells"]
    assert len(cells) == 12
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    whole = started(slow, elsewhere)
    out, _ = whole.communicate(timeout=240)
    assert whole.returncode == 0
    assert replies_kept(tmp_path) == replies_kept(elsewhere)
    folder = Path(out.strip().splitlines()[-1])
    assert folder == resumed.folder
    assert (resumed.folder / "report.md").read_bytes() == (elsewhere / folder / "report.md").read_bytes()
    assert kept < replies_kept(tmp_path)
    assert "cells: 12 skipped" in kgqa(*slow).out


def test_a_spent_budget_leaves_the_rest_for_the_next_command(kgqa: Kgqa) -> None:
    five = ["run", "-m", "method=no_context", "seed=range(0,5)", "limit=2", *QUICK]
    ran = kgqa(*five, "budget=1tokens")
    assert ran.code == 2
    assert "cells: 1 done, 4 not run" in ran.out
    assert "the budget is spent: budget=1tokens" in ran.out
    assert "cells: 1 skipped, 4 done" in kgqa(*five, "budget=100000tokens").out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_cell_whose_log_the_disk_does_not_take_fails_in_a_line_and_stops_no_other(kgqa: Kgqa) -> None:
    folder = kgqa(*TWO).folder
    for run in Path("outputs/demo").glob("*/*/*/metrics.json"):
        run.unlink()  # so that both cells are run again
    (folder / "cells/001.log").unlink()
    (folder / "cells/001.log").symlink_to("/dev/full")
    again = kgqa(*TWO)
    assert again.code == 2
    assert "001.log: No space left on device; make room" in result(folder, 1)["error"]
    assert result(folder, 0)["status"] == "done"


@pytest.mark.parametrize("content", [None, "", "{}"])
def test_a_cell_that_a_full_disk_left_without_its_settings_is_made_whole(kgqa: Kgqa, content: str | None) -> None:
    assert kgqa(*TWO).code == 0
    settings = sorted(Path("outputs/demo").rglob("settings.json"))
    before = [file.read_bytes() for file in settings]
    spoilt = settings[0]
    spoilt.unlink()
    if content is not None:
        spoilt.write_text(content, encoding="utf-8")
    again = kgqa(*TWO)
    assert again.code == 0, again.err
    assert [file.read_bytes() for file in settings] == before

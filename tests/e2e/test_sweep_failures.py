"""Sweeps with cells that fail, crash or are interrupted: the others run, and finished cells stay."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineDied, EngineError
from kgqa.experiment.run import Executed, execute
from kgqa.experiment.session import Session
from kgqa.runtime.display import Display
from tests.e2e.conftest import QUICK, TWO, Kgqa, result, statuses
from tests.e2e.processes import replies_kept, started, wait_for_replies


def test_ctrl_c_ends_a_sweep_with_130_and_keeps_finished_cells(kgqa: Kgqa, tmp_path: Path) -> None:
    slow = ["run", "-m", "method=golden,no_context,all_documents", "limit=2", "engine.delay=2", *QUICK]
    running = started(slow, tmp_path)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("outputs/sweeps/*/cells/001.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    said = [line for line in err.splitlines() if line]
    assert said[0] == "kgqa: interrupted. Run the same command again to continue"
    assert any(line.startswith("kgqa: saved in outputs/sweeps/") and "1 of 3 cells" in line for line in said)
    assert said[-1] == f"kgqa: continue with: kgqa {' '.join(slow)}"
    (folder,) = (tmp_path / "outputs/sweeps").iterdir()
    assert kgqa("report", str(folder), "--format", "csv").code == 0
    rows = list(csv.DictReader(io.StringIO((folder / "report.csv").read_text())))
    assert [row["status"] for row in rows] == ["done", "interrupted", "waiting"]
    assert "cells: 1 skipped, 2 done" in kgqa(*slow).out


def test_failed_cell_stops_no_other_and_is_named(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of the configuration, and a defect, which is in the log of its cell."""
    ran = kgqa(
        "run", "-m", "method=golden", "model=qwen3_8b", "model.path=no.gguf", "engine=llamacpp,scripted", "limit=1"
    )
    assert ran.code == 2
    assert "cell 0 failed: engine=llamacpp: model.path=no.gguf" in ran.out
    assert "Cells without results" in (ran.folder / "report.md").read_text()
    assert statuses(ran.folder) == ["failed", "done"]

    def stumbles(session: Session, display: Display) -> Executed:
        if session.experiment.name("method") == "golden":
            raise KeyError("a defect")
        return execute(session, display)

    monkeypatch.setattr("kgqa.sweeps.running.execute", stumbles)
    ran = kgqa(*TWO)
    assert ran.code == 2
    assert statuses(ran.folder) == ["failed", "done"]
    assert "cell 0 failed: method=golden: KeyError: 'a defect'. Its traceback is in" in ran.out
    assert "Traceback" not in ran.out + ran.err
    assert "in stumbles" in (ran.folder / "cells/000.log").read_text()


def test_failed_questions_of_a_cell_are_tried_again(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that `max_failure_rate` allows, as in a single run."""
    allowed = (*TWO, "max_failure_rate=1")
    with monkeypatch.context() as patch:
        patch.setattr(Scripted, "answer", lambda self, calls: [EngineError("no reply") for _ in calls])
        failed = kgqa(*TWO)
        assert failed.code == 2
        assert "2 of 2 questions" in result(failed.folder, 0)["error"]
        assert "cells: 2 done" in kgqa(*allowed).out
    ran = kgqa(*allowed)
    assert "cells: 2 done" in ran.out
    assert result(ran.folder, 0)["error"] is None
    assert "cells: 2 skipped" in kgqa(*allowed).out


def test_paid_calls_before_an_engine_crashed_count(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Scripted.answer
    seen: list[Any] = []

    def dies_later(self: Scripted, calls: Any) -> Any:
        seen.extend(calls)
        if len(seen) == 2:
            raise EngineDied("out of memory")
        return answer(self, calls)

    monkeypatch.setattr(Scripted, "answer", dies_later)
    one_by_one = ("engine.batch_size=1", "max_parallel_questions=1", "limit=2")
    ran = kgqa("run", "-m", "method=golden,no_context", *one_by_one, *QUICK, "budget=1tokens")
    assert statuses(ran.folder) == ["failed", "not run"]
    assert "the budget is spent: budget=1tokens" in ran.out


def test_spent_budget_leaves_the_rest_for_the_next_command(kgqa: Kgqa) -> None:
    five = ["run", "-m", "method=no_context", "seed=range(0,5)", "limit=2", *QUICK]
    ran = kgqa(*five, "budget=1tokens")
    assert ran.code == 2
    assert "cells: 1 done, 4 not run" in ran.out
    assert "cells: 1 skipped, 4 done" in kgqa(*five, "budget=100000tokens").out


SWEEP = ["run", "-m", "method=trace,no_context", "limit=2", "engine.batch_size=4", *QUICK]


def test_sweep_killed_twice_resumes_to_the_same_report(kgqa: Kgqa, tmp_path: Path) -> None:
    """No stored call is repeated, and every byte of the report is that of an undisturbed sweep."""
    slow = [*SWEEP, "engine.delay=0.05"]
    for _ in range(2):
        before = replies_kept(tmp_path)
        running = started(slow, tmp_path)
        wait_for_replies(tmp_path, before + 10)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert running.returncode == -signal.SIGKILL
    before = replies_kept(tmp_path)
    resumed = kgqa(*slow)
    assert resumed.code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    whole = started(slow, elsewhere)
    out, _ = whole.communicate(timeout=240)
    assert whole.returncode == 0
    assert before < replies_kept(tmp_path) == replies_kept(elsewhere)
    folder = Path(out.strip().splitlines()[-1])
    assert folder == resumed.folder
    assert (resumed.folder / "report.md").read_bytes() == (elsewhere / folder / "report.md").read_bytes()
    assert "cells: 2 skipped" in kgqa(*slow).out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_unfinished_cells_are_completed(kgqa: Kgqa) -> None:
    """Without its settings, without a process, and with a log on a full disk."""
    folder = kgqa(*TWO).folder
    settings = sorted(Path("outputs/demo").rglob("settings.json"))
    before = [file.read_bytes() for file in settings]
    settings[0].unlink()
    assert kgqa(*TWO).code == 0
    assert [file.read_bytes() for file in settings] == before
    (folder / "cells/001.json").write_text(json.dumps({**result(folder, 1), "status": "running"}))  # as kill -9 does
    kgqa("report", str(folder), "--format", "md")
    text = (folder / "report.md").read_text()
    assert "| 1 | method=no_context | interrupted | no command is running this sweep" in text
    for run in Path("outputs/demo").glob("*/*/*/metrics.json"):
        run.unlink()  # so that both cells run again
    (folder / "cells/001.log").unlink()
    (folder / "cells/001.log").symlink_to("/dev/full")
    assert kgqa(*TWO).code == 2
    assert "001.log: No space left on device. Free disk space" in result(folder, 1)["error"]
    assert statuses(folder) == ["done", "failed"]


FULL = "kgqa: standard output: No space left on device. Free disk space or redirect it"


def ended(words: tuple[str, ...], redirected: str, folder: Path, **more: str) -> tuple[int, list[str]]:
    """Exit code and lines on stderr of a command in a shell."""
    command = f'{sys.executable} -m kgqa "$@" {redirected}; exit ${{PIPESTATUS[0]}}'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **more}
    shell = subprocess.run(
        ["bash", "-c", command, "bash", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return shell.returncode, shell.stderr.splitlines()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_full_disk_behind_the_output_is_one_line(tmp_path: Path) -> None:
    for words, unbuffered in ((("--help",), ""), (("data", "list"), "1")):
        code, (line,) = ended(words, "> /dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
        assert (code, line.startswith(FULL)) == (2, True)
    assert ended(("show", "nothing"), "> /dev/full 2> /dev/full", tmp_path) == (2, [])


@pytest.mark.parametrize("redirected", ["| true", ">&- 2>&-"])
def test_a_sweep_that_nobody_watches_is_done_all_the_same(redirected: str, tmp_path: Path) -> None:
    """A closed stream's number goes to no file, into which others would print."""
    assert ended((*TWO, "sweep.name=s"), redirected, tmp_path) == (0, [])
    assert len(list(tmp_path.glob("outputs/demo/*/*/*/report.html"))) == 2
    assert (tmp_path / "outputs/sweeps/s/report.html").is_file()

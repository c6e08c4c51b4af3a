"""Cells of a sweep in processes of their own, through Hydra's launchers."""

from __future__ import annotations

import os
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import started
from tests.e2e.sweeping import TWO, result


def test_a_launcher_is_not_started_for_finished_cells(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=golden", "limit=2", *QUICK)
    launched: list[int] = []
    monkeypatch.setattr("kgqa.sweeps.launching.launch", lambda sweep, numbers, hydra: launched.extend(numbers))
    ran = kgqa(*TWO, "hydra/launcher=joblib")
    assert launched == [1]
    assert "cells: 1 skipped, 1 not run" in ran.out
    kgqa(*TWO)
    assert "cells: 2 skipped" in kgqa(*TWO, "hydra/launcher=joblib").out
    assert launched == [1]


def test_a_launched_cell_can_give_a_role_a_model_of_its_own(kgqa: Kgqa) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs kgqa[joblib]")
    ran = kgqa(*TWO, "roles.reader=smollm2_135m", "hydra/launcher=joblib")
    assert ran.code == 0, ran.err
    assert "cells: 2 done" in ran.out


def test_a_single_run_has_no_launcher(kgqa: Kgqa) -> None:
    ran = kgqa("run", "hydra/launcher=joblib", "limit=1", *QUICK)
    assert (ran.code, ran.err) == (
        2,
        "kgqa: hydra/launcher=joblib: only for several runs, that is with kgqa run -m and kgqa reproduce\n",
    )


@pytest.mark.skipif(find_spec("hydra_plugins") is None, reason="needs kgqa[joblib]")
def test_joblib_runs_cells_in_processes_of_their_own(kgqa: Kgqa, tmp_path: Path) -> None:
    here = kgqa(*TWO)
    other = tmp_path / "other"
    other.mkdir()
    running = started([*TWO, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], other)
    out, err = running.communicate(timeout=240)
    assert running.returncode == 0, err
    folder = Path(out.strip().splitlines()[-1])
    assert (other / folder / "report.csv").exists() is False
    for number in range(2):
        run = Path(result(here.folder, number)["run"])
        assert result(other / folder, number)["run"] == str(run)
        assert (other / run / "predictions.jsonl").read_bytes() == (run / "predictions.jsonl").read_bytes()
    assert not list(other.rglob(".hydra"))
    assert not list((other / "outputs/demo").rglob("*.yaml.new"))
    assert {file.parent.name for file in other.rglob("multirun.yaml")} == {"launcher"}  # within the sweep's own folder


@pytest.mark.skipif(find_spec("hydra_plugins") is None, reason="needs kgqa[joblib]")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers in /proc")
def test_a_killed_worker_leaves_its_cells_not_run_and_a_report(tmp_path: Path) -> None:
    slow = [*TWO, "engine.delay=60", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    running = started(slow, tmp_path)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("outputs/sweeps/*/cells/00?.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split():
        if b"popen_loky_posix" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)
            break
    out, err = running.communicate(timeout=240)
    assert running.returncode == 2, err
    assert "cells: 2 not run" in out
    assert "Traceback" not in err
    folder = tmp_path / out.strip().splitlines()[-1]
    assert "not run | its process ended before it" in (folder / "report.md").read_text()

"""Sweeps: cells frozen at launch, run with loaded models, skipped when finished, planned and reported together."""

from __future__ import annotations

import csv
import io
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from kgqa.artifacts.sweep import SweepPlan
from kgqa.engines.scripted import Scripted
from kgqa.experiment.engines import Pool
from kgqa.experiment.session import Runner
from kgqa.sweeps.cells import Cell
from kgqa.sweeps.running import run_cell
from tests.e2e.conftest import QUICK, TWO, Kgqa, result, statuses
from tests.e2e.processes import replies_kept, started


def test_every_combination_runs_and_is_reported(kgqa: Kgqa) -> None:
    sweep = ("run", "-m", "method=glob([golden,no_c*])", "++seed=range(0,2)", "sweep.name=mine", *QUICK)
    ran = kgqa(*sweep, "limit=3")
    assert ran.code == 0
    assert ran.folder == Path("outputs/sweeps/mine")
    cells = ran.json("sweep.json")["cells"]
    assert [cell["name"] for cell in cells] == [
        "method=golden ++seed=0", "method=golden ++seed=1", "method=no_context ++seed=0", "method=no_context ++seed=1",
    ]  # fmt: skip
    assert statuses(ran.folder) == ["done"] * 4
    for cell in cells:
        assert (Path(cell["run"]) / "metrics.json").is_file()
        assert cell["run"] in (ran.folder / "report.md").read_text().replace("../../", "outputs/")
    (ran.folder / "cells/003.json").unlink()  # as if the sweep were still running
    for form, name in (("html", "report.html"), ("md", "report.md"), ("csv", "report.csv"), ("latex", "report.tex")):
        written = kgqa("report", str(ran.folder), "--format", form)
        assert (written.code, written.folder) == (0, ran.folder / name)
    rows = list(csv.DictReader(io.StringIO((ran.folder / "report.csv").read_text())))
    assert [row["status"] for row in rows] == ["done", "done", "done", "waiting"]
    assert rows[3]["EM"] == ""
    metrics = json.loads((Path(rows[0]["run"]) / "metrics.json").read_text())
    assert float(rows[0]["F1"]) == metrics["scores"]["f1"]["mean"]
    assert float(rows[0]["F1 low"]) == metrics["scores"]["f1"]["low"]
    page = (ran.folder / "report.html").read_text()
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    fewer = kgqa("run", "-m", "method=golden", "limit=2", "sweep.name=mine", *QUICK)
    assert fewer.code == 2
    assert "outputs/sweeps/mine contains another sweep: 4 cells, not 1" in fewer.err


def test_finished_cells_are_skipped_unless_their_code_changed(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kgqa(*TWO)
    reports = {form: (first.folder / f"report.{form}").read_bytes() for form in ("md", "html")}
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "run", lambda *_: pytest.fail("a finished cell starts a stage"))
        patch.setattr(Scripted, "answer", lambda *_: pytest.fail("a finished cell calls its model"))
        second = kgqa(*TWO)
    assert (second.code, second.folder) == (0, first.folder)
    assert "cells: 2 skipped" in second.out
    assert {form: (first.folder / f"report.{form}").read_bytes() for form in reports} == reports
    before = replies_kept(tmp_path)
    for module in ("run", "manifest"):
        monkeypatch.setattr(f"kgqa.experiment.{module}.code_hash", lambda config: "another")
    assert "cells: 2 done" in kgqa(*TWO).out
    assert replies_kept(tmp_path) == before
    assert "cells: 2 skipped" in kgqa(*TWO).out


def test_sweeps_and_single_runs_share_folders(kgqa: Kgqa) -> None:
    single = kgqa("run", "method=golden", "limit=2", *QUICK)
    first = kgqa(*TWO)
    assert "cells: 1 skipped, 1 done" in first.out
    assert first.json("sweep.json")["cells"][0]["run"] == str(single.folder)
    kgqa("run", "method=golden", "limit=3", *QUICK)
    kgqa("report", str(first.folder), "--format", "md")
    written = (first.folder / "report.md").read_text()
    assert "| 0 | method=golden | changed | another command has run its questions with another selection" in written
    assert "1 of 2 cells" in written
    assert "cells: 1 done, 1 skipped" in kgqa(*TWO).out
    assert "cells: 2 done" in kgqa("run", "-m", "method=golden,no_context", "limit=4", *QUICK).out


def test_cells_run_their_frozen_configuration(kgqa: Kgqa) -> None:
    ran = kgqa(*TWO)
    frozen = ran.folder / "cells/001.yaml"
    frozen.write_text(frozen.read_text().replace("max_answer_tokens: 25", "max_answer_tokens: 7"))
    cell = Cell.read(ran.folder, SweepPlan.read(ran.folder).cells[1])
    assert cell.experiment.config["method"]["max_answer_tokens"] == 7
    run_cell(cell, ran.folder, Pool())
    assert cell.status == "done"
    assert cell.run is not None
    assert "max_answer_tokens: 7" in (cell.run / "config.yaml").read_text()


def test_judge_judges_every_cell(kgqa: Kgqa) -> None:
    Path("rules.jsonl").write_text(json.dumps({"match": "Compare an answer", "reply": '{"verdict": "correct"}'}))
    judged = ("engine.rules=rules.jsonl", "judge=three_way")
    ran = kgqa(*TWO, *judged)
    assert ran.code == 0
    assert "| judge |" in (ran.folder / "report.md").read_text()
    for cell in ran.json("sweep.json")["cells"]:
        assert (Path(cell["run"]) / "verdicts.jsonl").is_file()
    assert "cells: 2 skipped" in kgqa(*TWO, *judged).out
    assert "cells: 2 done" in kgqa(*TWO, judged[0], "judge=kgp").out  # the same runs, judged again


def planned_calls(out: str) -> tuple[int, int]:
    """Return the calls and the new ones of the line for all cells."""
    line = next(line for line in out.splitlines() if line.startswith("all "))
    calls, new, *_ = re.findall(r"  ([\d,]+)(?=  )", line)
    return int(calls.replace(",", "")), int(new.replace(",", ""))


def test_dry_run_counts_every_cell_and_calls_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    """Calls that cells share are counted once: both read the triples of 12 passages."""
    pair = ["run", "-m", "method=trace", "method.beam=5,6", "limit=2", *QUICK]
    planned = kgqa(*pair, "dry_run=true")
    assert planned.code == 0
    assert "no call of smollm2_135m@scripted is in the call cache" in planned.out
    new = planned_calls(planned.out)[1]
    judged = planned_calls(kgqa(*pair, "dry_run=true", "judge=three_way").out)[1]
    assert judged == new + 8  # a judge is asked twice if need be
    alone = planned_calls(kgqa(*pair[:3], "method.beam=5", *pair[4:], "dry_run=true").out)[1]
    assert alone < new < 2 * alone
    assert replies_kept(tmp_path) == 0
    assert not (tmp_path / "outputs/sweeps").exists()
    paid = 0
    for cell in kgqa(*pair).json("sweep.json")["cells"]:
        cost = json.loads((Path(cell["run"]) / "metrics.json").read_text())["cost"]
        paid += cost["paid"]["calls"] + cost["extraction_paid"]["calls"]
    assert paid <= new
    finished = kgqa(*pair, "dry_run=true").out
    assert planned_calls(finished) == (0, 0)
    assert "finished" in finished
    assert "calls of 2 finished runs of trace" in kgqa(*pair, "dry_run=true", "limit=9").out


def test_launcher_is_not_started_for_finished_cells(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=golden", "limit=2", *QUICK)
    launched: list[int] = []
    monkeypatch.setattr("kgqa.sweeps.launching.launch", lambda sweep, numbers, hydra: launched.extend(numbers))
    ran = kgqa(*TWO, "hydra/launcher=joblib")
    assert launched == [1]
    assert "cells: 1 skipped, 1 not run" in ran.out
    assert "not run | its process ended early" in (ran.folder / "report.md").read_text()
    kgqa(*TWO)
    assert "cells: 2 skipped" in kgqa(*TWO, "hydra/launcher=joblib").out
    assert launched == [1]


@pytest.mark.skipif(find_spec("hydra_plugins") is None, reason="needs kgqa[joblib]")
def test_joblib_runs_cells_in_separate_processes(kgqa: Kgqa, tmp_path: Path) -> None:
    pair = [*TWO, "roles.reader=smollm2_135m@scripted"]  # a model of a role is composed again in the job
    here = kgqa(*pair)
    other = tmp_path / "other"
    other.mkdir()
    running = started([*pair, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], other)
    out, err = running.communicate(timeout=240)
    assert running.returncode == 0, err
    folder = Path(out.strip().splitlines()[-1])
    for number in range(2):
        run = Path(result(here.folder, number)["run"])
        assert result(other / folder, number)["run"] == str(run)
        assert (other / run / "predictions.jsonl").read_bytes() == (run / "predictions.jsonl").read_bytes()
    assert not list(other.rglob(".hydra"))
    assert {file.parent.name for file in other.rglob("multirun.yaml")} == {"launcher"}  # within the sweep's folder

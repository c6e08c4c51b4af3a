"""Sweeps: cells frozen at launch, run with warm models, skipped when finished, reported together."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kgqa.engines.scripted import Scripted
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import replies_kept, started, wait_for_replies

TWO = ["run", "-m", "method=golden,no_context", "limit=2", *QUICK]


def result(folder: Path, number: int) -> Any:
    return json.loads((folder / f"cells/{number:03}.json").read_text())


def test_every_combination_is_run_and_reported(kgqa: Kgqa) -> None:
    ran = kgqa("run", "-m", "method=golden,no_context", "seed=range(0,2)", "limit=3", "sweep.name=mine", *QUICK)
    assert ran.code == 0
    assert ran.folder == Path("outputs/sweeps/mine")
    cells = ran.json("sweep.json")["cells"]
    assert [cell["name"] for cell in cells] == [
        "method=golden seed=0", "method=golden seed=1", "method=no_context seed=0", "method=no_context seed=1",
    ]  # fmt: skip
    assert all(result(ran.folder, number)["status"] == "done" for number in range(4))
    for cell in cells:
        assert (Path(cell["run"]) / "metrics.json").is_file()
        assert cell["run"] in (ran.folder / "report.md").read_text().replace("../../", "outputs/")


def test_glob_sweeps_over_names(kgqa: Kgqa) -> None:
    ran = kgqa("run", "-m", "method=glob([golden,no_c*])", "limit=1", *QUICK)
    assert [cell["name"] for cell in ran.json("sweep.json")["cells"]] == ["method=golden", "method=no_context"]


def test_finished_cells_are_skipped_and_need_no_engine(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kgqa(*TWO)
    reports = {form: (first.folder / f"report.{form}").read_bytes() for form in ("md", "html")}
    monkeypatch.setattr(Scripted, "identity", lambda self: pytest.fail("a finished cell asked its engine"))
    second = kgqa(*TWO)
    assert second.code == 0
    assert second.folder == first.folder
    assert "cells: 2 skipped" in second.out
    assert {form: (first.folder / f"report.{form}").read_bytes() for form in reports} == reports


def test_a_run_of_other_code_is_not_finished_and_takes_its_replies_from_the_cache(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kgqa(*TWO)
    kept = replies_kept(tmp_path)
    for module in ("finished", "manifest"):
        monkeypatch.setattr(f"kgqa.experiment.run.{module}.code_hash", lambda: "another")
    assert "cells: 2 done" in kgqa(*TWO).out
    assert replies_kept(tmp_path) == kept
    assert "cells: 2 skipped" in kgqa(*TWO).out


def test_a_launcher_is_not_started_for_finished_cells(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=golden", "limit=2", *QUICK)
    launched: list[int] = []
    monkeypatch.setattr(
        "kgqa.experiment.sweep.launching.launch", lambda sweep, numbers, hydra: launched.extend(numbers)
    )
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
        "kgqa: hydra/launcher=joblib: only kgqa run -m and kgqa reproduce, which make several runs, read it\n",
    )


def test_a_run_that_another_command_asked_other_questions_is_not_shown_as_the_cell(kgqa: Kgqa) -> None:
    first = kgqa(*TWO)
    kgqa("run", "method=golden", "limit=3", *QUICK)
    kgqa("report", str(first.folder), "--format", "md")
    written = (first.folder / "report.md").read_text()
    assert "| 0 | method=golden | changed | another command has asked its run other questions since" in written
    assert "1 of 2 cells" in written
    assert "cells: 1 done, 1 skipped" in kgqa(*TWO).out


def test_a_cell_that_nobody_runs_any_more_is_interrupted(kgqa: Kgqa) -> None:
    folder = kgqa(*TWO).folder
    (folder / "cells/001.json").write_text(json.dumps({**result(folder, 1), "status": "running"}))  # as kill -9 does
    kgqa("report", str(folder), "--format", "md")
    assert (
        "| 1 | method=no_context | interrupted | no command works on this sweep now"
        in (folder / "report.md").read_text()
    )


def test_ctrl_c_ends_a_sweep_with_130_and_keeps_what_was_done(kgqa: Kgqa, tmp_path: Path) -> None:
    slow = ["run", "-m", "method=golden,no_context,all_documents", "limit=4", "engine.delay=1", *QUICK]
    running = started(slow, tmp_path)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("outputs/sweeps/*/cells/001.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err.strip() == "kgqa: interrupted; the same command goes on from here"
    (folder,) = (tmp_path / "outputs/sweeps").iterdir()
    assert kgqa("report", str(folder), "--format", "csv").code == 0
    rows = list(csv.DictReader(io.StringIO((folder / "report.csv").read_text())))
    assert [row["status"] for row in rows] == ["done", "interrupted", "waiting"]
    assert "cells: 1 skipped, 2 done" in kgqa(*slow).out


def test_an_axis_that_adds_or_forces_a_key_has_its_column(kgqa: Kgqa) -> None:
    ran = kgqa("run", "-m", "method=golden", "++seed=1,2", "limit=1", *QUICK)
    assert "| cell | seed | EM |" in (ran.folder / "report.md").read_text()


def test_a_sweep_shares_the_runs_of_another_and_of_single_commands(kgqa: Kgqa) -> None:
    single = kgqa("run", "method=golden", "limit=2", *QUICK)
    ran = kgqa(*TWO)
    assert "cells: 1 skipped, 1 done" in ran.out
    assert ran.json("sweep.json")["cells"][0]["run"] == str(single.folder)


def test_more_questions_than_a_finished_run_has_are_asked(kgqa: Kgqa) -> None:
    kgqa(*TWO)
    ran = kgqa("run", "-m", "method=golden,no_context", "limit=3", *QUICK)
    assert "cells: 2 done" in ran.out


def test_a_failed_cell_stops_no_other_and_is_named(kgqa: Kgqa) -> None:
    ran = kgqa(
        "run", "-m", "method=golden", "model=qwen3_8b", "model.path=no.gguf", "engine=llamacpp,scripted", "limit=1"
    )
    assert ran.code == 2
    assert "cell 0 failed: engine=llamacpp: model.path=no.gguf" in ran.out
    assert "Cells without figures" in (ran.folder / "report.md").read_text()
    assert [result(ran.folder, number)["status"] for number in range(2)] == ["failed", "done"]


def test_a_defect_in_one_cell_stops_no_other_and_is_in_its_log(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    from kgqa.experiment.run.executing import execute

    def stumbles(session: Any) -> Any:
        if session.name("method") == "golden":
            raise KeyError("a defect")
        return execute(session)

    monkeypatch.setattr("kgqa.experiment.sweep.running.execute", stumbles)
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
    one_by_one = ("engine.batch_size=1", "width=1", "limit=2")
    ran = kgqa("run", "-m", "method=golden,no_context", *one_by_one, *QUICK, "budget=1tokens")
    assert [result(ran.folder, number)["status"] for number in range(2)] == ["failed", "not run"]
    assert "the budget is spent: budget=1tokens" in ran.out


def test_models_are_loaded_once_for_cells_that_share_them(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models alternate in the grid; their cells run next to each other, and results stay in cell order."""
    made: Counter[str] = Counter()
    begin = Scripted.__post_init__

    def counted(self: Scripted) -> None:
        made[self.model.name] += 1
        begin(self)

    monkeypatch.setattr(Scripted, "__post_init__", counted)
    ran = kgqa(
        "run", "-m", "seed=1,2,3", "model=smollm2_135m,qwen2_5_coder_1_5b", "method=no_context", "limit=1", *QUICK
    )  # fmt: skip
    assert ran.code == 0
    placing = 6  # each cell's folder is asked for once before the first starts, which builds no engine
    assert set(made.values()) == {1}, f"{made} with {placing} cells"


def test_cells_run_what_was_frozen_though_the_configuration_changed(kgqa: Kgqa) -> None:
    from kgqa.experiment.sweep.running import read_cell, run_cell

    ran = kgqa(*TWO)
    frozen = ran.folder / "cells/001.yaml"
    frozen.write_text(frozen.read_text().replace("max_answer_tokens: 25", "max_answer_tokens: 7"))
    cell = read_cell(ran.folder, ran.json("sweep.json")["cells"][1])
    assert cell.config["method"]["max_answer_tokens"] == 7
    again = run_cell(cell, ran.folder)
    assert again.status == "done"
    assert again.run is not None
    assert "max_answer_tokens: 7" in (again.run / "config.yaml").read_text()


def test_a_report_is_written_at_any_time_and_in_every_form(kgqa: Kgqa) -> None:
    ran = kgqa("run", "-m", "method=golden,no_context,all_documents", "limit=4", *QUICK)
    (ran.folder / "cells/002.json").unlink()  # as if the sweep were still running
    for form, name in (("html", "report.html"), ("md", "report.md"), ("csv", "report.csv"), ("latex", "report.tex")):
        written = kgqa("report", str(ran.folder), "--format", form)
        assert written.code == 0
        assert written.folder == ran.folder / name
    rows = list(csv.DictReader(io.StringIO((ran.folder / "report.csv").read_text())))
    assert [row["status"] for row in rows] == ["done", "done", "waiting"]
    assert rows[2]["EM"] == ""
    metrics = json.loads((Path(rows[0]["run"]) / "metrics.json").read_text())
    assert float(rows[0]["F1"]) == metrics["scores"]["f1"]["mean"]
    assert float(rows[0]["F1 low"]) == metrics["scores"]["f1"]["low"]
    page = (ran.folder / "report.html").read_text()
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "<svg" in page


def test_what_a_user_writes_is_escaped_in_the_report(kgqa: Kgqa) -> None:
    ran = kgqa("run", "-m", "name='<b>x',y", "method=golden", "limit=1", *QUICK)
    assert "&lt;b&gt;x" in (ran.folder / "report.html").read_text()
    assert "<b>x" not in (ran.folder / "report.html").read_text()


def test_a_judge_judges_every_cell(kgqa: Kgqa) -> None:
    Path("rules.jsonl").write_text(json.dumps({"match": "Compare an answer", "reply": '{"verdict": "correct"}'}))
    judged = ("engine.rules=rules.jsonl", "judge=three_way")
    ran = kgqa(*TWO, *judged)
    assert ran.code == 0
    assert "| judge |" in (ran.folder / "report.md").read_text()
    for cell in ran.json("sweep.json")["cells"]:
        assert (Path(cell["run"]) / "verdicts.jsonl").is_file()
    assert "cells: 2 skipped" in kgqa(*TWO, *judged).out
    assert "cells: 2 done" in kgqa(*TWO, judged[0], "judge=kgp").out  # the same runs, judged anew


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["method=tracee,golden"], "did you mean trace"),
        (["method.nothing=1,2"], "unknown key"),
        (["method=golden", "limit=2,5"], "they differ in limit"),
        (["method=golden", "seed=range("], "cannot be read as a sweep"),
        (["method=golden", "seed=interval(1,2)"], "has no list of values"),
        (["seed=1,2", "seed=3"], "given twice"),
        (["sweep.names=x"], "did you mean sweep.name"),
        (["sweep.name=a/b"], "plain folder name"),
        (["budget=3euro"], "expected dollars or tokens"),
        (["hydra/launcher=joblb"], "did you mean joblib"),
        (["hydra/sweeper=grid"], "no such sweeper"),
        (["budget=3usd", "hydra/launcher=joblib"], "do not see each other's cost"),
        (["limit=0"], "limit=0: must be at least 1"),
        (["hydra.launcher.n_jobs=4"], "nothing reads it"),
        (["hydra.sweeper.n_trials=4", "hydra/launcher=joblib"], "nothing reads it"),
        (["sweep.metric=f1"], "only hydra/sweeper=optuna raises a score"),
    ],
)
def test_bad_input_ends_in_one_line_and_leaves_nothing(
    kgqa: Kgqa, tmp_path: Path, arguments: list[str], said: str
) -> None:
    ran = kgqa("run", "-m", *arguments, *QUICK)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "outputs/sweeps").exists()


def test_another_sweep_in_a_named_folder_is_refused(kgqa: Kgqa) -> None:
    assert kgqa(*TWO, "sweep.name=mine").code == 0
    ran = kgqa("run", "-m", "method=golden,all_documents", "limit=2", "sweep.name=mine", *QUICK)
    assert ran.code == 2
    assert "outputs/sweeps/mine holds another sweep: another configuration in cell 1" in ran.err
    assert "3 cells" not in ran.err
    fewer = kgqa("run", "-m", "method=golden", "limit=2", "sweep.name=mine", *QUICK)
    assert "2 cells, not 1" in fewer.err


def test_a_sweep_folder_of_an_older_version_is_refused(kgqa: Kgqa) -> None:
    folder = kgqa(*TWO).folder
    old = {**json.loads((folder / "sweep.json").read_text()), "format": 0}
    (folder / "sweep.json").write_text(json.dumps(old))
    for ran in (kgqa(*TWO), kgqa("report", str(folder))):
        assert ran.code == 2
        assert "a sweep of format 0, this version of kgqa writes format 1" in ran.err


def test_two_processes_started_together_do_not_share_a_sweep(tmp_path: Path) -> None:
    slow = ["run", "-m", "method=golden,no_context", "limit=3", "engine.delay=1", *QUICK]
    running = [started(slow, tmp_path) for _ in range(2)]
    ended = [(run, *run.communicate(timeout=120)) for run in running]
    assert sorted(run.returncode for run, *_ in ended) == [0, 2]
    refused = next(err for run, _, err in ended if run.returncode == 2)
    assert "another kgqa process is working on this sweep" in refused


TWELVE = ["run", "-m", "method=trace,no_context", "seed=range(0,6)", "limit=2", "engine.batch_size=4", *QUICK]


@pytest.mark.slow
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


def test_a_dry_run_counts_every_cell_and_asks_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    planned = kgqa(*TWO, "dry_run=true", "budget=9tokens")
    assert planned.code == 0
    assert "time: not known, no finished run here with smollm2_135m@scripted" in planned.out
    assert "budget=9tokens may not cover all of it" in planned.out
    assert (
        "budget=1usd stops nothing: none of these models has a price" in kgqa(*TWO, "dry_run=true", "budget=1usd").out
    )
    assert replies_kept(tmp_path) == 0
    assert not (tmp_path / "outputs/sweeps").exists()
    kgqa(*TWO)
    assert planned_calls(kgqa(*TWO, "dry_run=true").out) == (0, 0)
    assert "finished" in kgqa(*TWO, "dry_run=true").out


def test_a_dry_run_counts_what_two_cells_share_once(kgqa: Kgqa) -> None:
    """Both read the same triples: 12 passages are extracted once."""
    pair = ["run", "-m", "method=trace", "method.beam=5,6", "limit=2", *QUICK]
    _, asked = planned_calls(kgqa(*pair, "dry_run=true").out)
    alone = [planned_calls(kgqa(*pair[:3], f"method.beam={n}", *pair[4:], "dry_run=true").out)[1] for n in (5, 6)]
    assert asked < sum(alone)
    ran = kgqa(*pair)
    paid = 0
    for cell in ran.json("sweep.json")["cells"]:
        cost = json.loads((Path(cell["run"]) / "metrics.json").read_text())["cost"]
        paid += cost["paid"]["calls"] + cost["extraction_paid"]["calls"]
    assert paid <= asked
    assert "from the rates of" in kgqa(*pair, "dry_run=true", "limit=9").out


def test_a_dry_run_counts_the_judge(kgqa: Kgqa) -> None:
    without = planned_calls(kgqa(*TWO, "dry_run=true").out)[1]
    assert planned_calls(kgqa(*TWO, "dry_run=true", "judge=three_way").out)[1] == without + 8  # asked twice if need be
    assert "judge" in kgqa("run", "method=golden", "limit=2", "dry_run=true", "judge=three_way", *QUICK).out


def planned_calls(out: str) -> tuple[int, int]:
    """Calls and those to be asked, of the line for all cells."""
    line = next(line for line in out.splitlines() if "cells that can run" in line)
    calls, asked = line.split("cells that can run")[1].split()[:2]
    return int(calls.replace(",", "")), int(asked.replace(",", ""))


def test_a_spent_budget_leaves_the_rest_for_the_next_command(kgqa: Kgqa) -> None:
    five = ["run", "-m", "method=no_context", "seed=range(0,5)", "limit=2", *QUICK]
    ran = kgqa(*five, "budget=1tokens")
    assert ran.code == 2
    assert "cells: 1 done, 4 not run" in ran.out
    assert "the budget is spent: budget=1tokens" in ran.out
    assert "cells: 1 skipped, 4 done" in kgqa(*five, "budget=100000tokens").out

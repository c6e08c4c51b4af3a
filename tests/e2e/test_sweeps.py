"""Sweeps: cells frozen at launch, run with warm models, skipped when finished, reported together."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest

from kgqa.engines.scripted import Scripted
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import replies_kept
from tests.e2e.sweeping import TWO, result


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
        monkeypatch.setattr(f"kgqa.experiment.run.{module}.code_hash", lambda config: "another")
    assert "cells: 2 done" in kgqa(*TWO).out
    assert replies_kept(tmp_path) == kept
    assert "cells: 2 skipped" in kgqa(*TWO).out


def test_a_run_that_another_command_asked_other_questions_is_not_shown_as_the_cell(kgqa: Kgqa) -> None:
    first = kgqa(*TWO)
    kgqa("run", "method=golden", "limit=3", *QUICK)
    kgqa("report", str(first.folder), "--format", "md")
    written = (first.folder / "report.md").read_text()
    assert "| 0 | method=golden | changed | another command has asked its run other questions since" in written
    assert "1 of 2 cells" in written
    assert "cells: 1 done, 1 skipped" in kgqa(*TWO).out


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
    from kgqa.artifacts.sweep import SweepPlan
    from kgqa.experiment.session.engines import Pool
    from kgqa.sweeps.cells import read_cell
    from kgqa.sweeps.running import run_cell

    ran = kgqa(*TWO)
    frozen = ran.folder / "cells/001.yaml"
    frozen.write_text(frozen.read_text().replace("max_answer_tokens: 25", "max_answer_tokens: 7"))
    cell = read_cell(ran.folder, SweepPlan.read(ran.folder).cells[1])
    assert cell.experiment.config["method"]["max_answer_tokens"] == 7
    again = run_cell(cell, ran.folder, Pool())
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

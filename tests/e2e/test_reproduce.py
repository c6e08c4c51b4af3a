"""`kgqa reproduce` as a person runs it, without weights."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa

SOME = ("reproduce", "trace/table1", "dataset=demo", "only=w/o documents,TRACE-Triple,HotPotQA", *QUICK)


def test_published_values_stand_beside_ours_with_what_differs(kgqa: Kgqa) -> None:
    ran = kgqa(*SOME, "limit=2")
    assert ran.code == 0
    table = ran.json("table.json")
    shown = {(line["row"], line["metric"]["name"]): line for line in table["lines"]}
    assert set(shown) == {(row, name) for row in ("w/o documents", "TRACE-Triple") for name in ("Tokens", "EM", "F1")}
    assert shown["TRACE-Triple", "EM"]["published"]["number"] == 53.05
    for cell in table["cells"]:
        run = json.loads((Path(cell["run"]) / "metrics.json").read_text(encoding="utf-8"))
        assert shown[cell["row"], "EM"]["ours"]["mean"] == run["scores"]["em"]["mean"]
        tokens = shown[cell["row"], "Tokens"]["ours"]
        assert tokens["low"] <= tokens["mean"] == run["context_tokens"] <= tokens["high"]
    assert {line["delta"]["verdict"] for line in table["lines"]} == {"cannot tell"}
    markdown = (ran.folder / "report.md").read_text(encoding="utf-8")
    assert "| dataset | hotpotqa | dataset=demo |" in markdown
    assert "| ranker | E5-Mistral (§4.1) | ranker=lexical |" in markdown
    assert "2 per cell" in markdown
    assert "kgqa run model=llama3_8b_instruct scoring=trace method=no_context" in markdown
    assert (ran.folder / "report.html").is_file()
    assert (ran.folder / "report.tex").is_file()


def test_a_second_time_asks_nothing_and_says_the_same(kgqa: Kgqa) -> None:
    first = kgqa(*SOME, "limit=2")
    table = first.json("table.json")
    written = [(Path(cell["run"]) / "metrics.json").stat().st_mtime_ns for cell in table["cells"]]
    again = kgqa(*SOME, "limit=2")
    assert again.folder == first.folder
    assert {key: again.json("table.json")[key] for key in ("lines", "cells")} == {
        key: table[key] for key in ("lines", "cells")
    }
    assert [(Path(cell["run"]) / "metrics.json").stat().st_mtime_ns for cell in table["cells"]] == written


def test_several_cells_at_once_give_the_same_table(kgqa: Kgqa) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs kgqa[joblib]")
    ran = kgqa(*SOME, "limit=2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert ran.code == 0
    at_once = ran.json("table.json")
    shutil.rmtree("outputs")
    alone = kgqa(*SOME, "limit=2").json("table.json")
    for table in (at_once, alone):
        assert {cell["state"] for cell in table["cells"]} == {"done"}
    assert at_once["lines"] == alone["lines"]
    assert at_once["cells"] == alone["cells"]


def test_the_cost_counts_the_judge(kgqa: Kgqa) -> None:
    ran = kgqa("reproduce", "kgp/table1", "only=None,HotpotQA", "dataset=demo", "collection=null", "limit=2", *QUICK)
    (cell,) = (each for each in ran.json("table.json")["cells"] if each["run"])
    metrics = json.loads((Path(cell["run"]) / "metrics.json").read_text(encoding="utf-8"))
    calls = metrics["cost"]["method"]["calls"], metrics["judge"]["cost"]["method"]["calls"]
    assert min(calls) > 0
    assert f"1 run: {sum(calls)} model calls" in dict(ran.json("table.json")["cost"])["so far"]


def test_a_failed_cell_stops_no_other_and_is_told(kgqa: Kgqa) -> None:
    ran = kgqa(*SOME, "limit=1", "engine.rules=nowhere.jsonl")
    assert ran.code == 2
    assert ran.out.count("failed: ") >= 2
    assert "nowhere.jsonl" in ran.out
    assert {cell["state"] for cell in ran.json("table.json")["cells"]} == {"failed"}


def test_a_report_of_other_cells_is_not_overwritten(kgqa: Kgqa) -> None:
    assert kgqa(*SOME, "limit=1", "run_name=mine").code == 0
    ran = kgqa(*SOME, "limit=2", "run_name=mine")
    assert ran.code == 2
    assert "Set another run_name=" in ran.err


def test_its_report_is_not_overwritten_by_one_of_a_sweep(kgqa: Kgqa) -> None:
    folder = kgqa(*SOME, "limit=1").folder
    before = (folder / "report.html").read_bytes()
    ran = kgqa("report", str(folder))
    assert ran.code == 2
    assert "of kgqa reproduce. The same command writes its report.html again" in ran.err
    assert (folder / "report.html").read_bytes() == before


def test_cells_that_cannot_run_here_are_skipped_and_said(kgqa: Kgqa) -> None:
    ran = kgqa("reproduce", "safe/table12", "only=*Qwen 3 4B,2Wiki")
    assert ran.code == 2
    assert "safe/table12: no cell can run (reasons above)" in ran.out
    assert "needs training: A feedback model trained on injected errors alone" in ran.out
    (first, *_) = ran.json("table.json")["lines"]
    assert (first["published"]["number"], first["ours"], first["note"]) == (87.3, None, "needs training")


def test_a_mean_row_is_ours_where_all_its_rows_are(kgqa: Kgqa) -> None:
    given = ("dataset=demo", "model=smollm2_135m", "judge=null", "limit=1")
    ran = kgqa("reproduce", "safe/table3", *given, "only=No Feedback*", *QUICK)
    lines = {(line["row"], line["column"], line["metric"]["name"]): line for line in ran.json("table.json")["lines"]}
    mean, one = "No Feedback, mean of five models", "No Feedback, Qwen 3 4B"
    for column in ("2Wiki", "Average"):
        assert lines[mean, column, "F1"]["ours"]["mean"] == lines[one, column, "F1"]["ours"]["mean"]
    assert lines[mean, "2Wiki", "F1"]["published"]["number"] == 67.6
    ran = kgqa("reproduce", "safe/table3", *given, f"only={one},{mean}", *QUICK)
    notes = {(line["row"], line["column"]): line["note"] for line in ran.json("table.json")["lines"]}
    assert notes[mean, "2Wiki"] == "not all of its rows were run"


def test_a_cell_runs_with_what_a_person_has_trained(kgqa: Kgqa, tmp_path: Path) -> None:
    """And two evaluators of one table are two runs."""
    given = ["dataset=demo", "judge=null", "limit=1", "only=*Gemma 3 12B,2Wiki", *QUICK]
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    given += [f"trained.safe_evaluator={tmp_path}/one", f"trained.safe_evaluator_noise={tmp_path}/other"]
    table = kgqa("reproduce", "safe/table4", *given).json("table.json")
    cells = {cell["row"]: cell for cell in table["cells"] if cell["state"] == "done"}
    assert set(cells) == {"Original, Gemma 3 12B", "+ Noise, Gemma 3 12B"}
    assert len({cell["run"] for cell in cells.values()}) == 2
    assert f"roles.feedback=qwen3_8b:{tmp_path}/one@scripted" in cells["Original, Gemma 3 12B"]["command"]
    assert [row for row in table["differing"] if row[0] == "trained.safe_evaluator"]


def test_the_list_says_what_runs_with_models_of_ones_choice(kgqa: Kgqa) -> None:
    bare = kgqa("reproduce", "--list", "trace/table9").out
    assert re.search(r"trace/table9 +18 +0 +18 need weights", bare)
    assert "with models of your choice: kgqa reproduce --list model=" in bare
    here = ("model=smollm2_135m", "dataset=demo", *QUICK)
    assert re.search(r"trace/table9 +18 +18 ", kgqa("reproduce", "--list", "trace/table9", *here).out)
    assert "Did you mean smollm2_135m" in kgqa("reproduce", "--list", "trace", "model=smollm").err


def test_missing_data_is_called_so_and_a_table_of_which_nothing_runs_fails(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KGQA_DATA", raising=False)
    given = ("reproduce", "trace/table9", "only=MuSiQue", "model=smollm2_135m", *QUICK)
    for more in ((), ("dry_run=true",), ("--plan",)):
        ran = kgqa(*given, *more)
        assert ran.code == 2
        assert "6 cells: 6 need data" in ran.out
        assert "not run, needs data: dataset=musique: no data on this machine" in ran.out
        assert (
            "trace/table9: no cell can run on this machine. Choose models that are on this machine, e.g. model="
            in ran.out
        )
    both = kgqa("reproduce", "trace/table9", "only=MuSiQue", "dry_run=true").out
    assert "6 cells: 6 need weights and data" in both

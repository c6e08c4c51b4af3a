"""`kgqa reproduce`: tables beside ours, protocols, intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import MADE_UP
from kgqa.reproduce.protocol import CellRuns
from kgqa.reproduce.question_values import add_interval, compare_rows, pool_values
from kgqa.scoring.published_delta import Ours, PublishedMetric, read_measured_value
from tests.e2e.conftest import QUICK, Kgqa, refused, write_rules
from tests.e2e.processes import files_of

SOME = (
    "reproduce",
    "trace/table1",
    "dataset=demo",
    "only=w/o documents,TRACE-Triple,HotPotQA",
    *QUICK,
)


@pytest.mark.slow
def test_table_has_published_values_and_differences(kgqa: Kgqa) -> None:
    ran = kgqa(*SOME, "limit=2")
    table = ran.json("table.json")
    values = {(line["row"], line["metric"]["name"]): line for line in table["lines"]}
    assert set(values) == {
        (row, name) for row in ("w/o documents", "TRACE-Triple") for name in ("Tokens", "EM", "F1")
    }
    assert values["TRACE-Triple", "EM"]["published"]["number"] == 53.05
    for cell in table["cells"]:
        run = json.loads((Path(cell["run"]) / "metrics.json").read_text(encoding="utf-8"))
        assert values[cell["row"], "EM"]["ours"]["mean"] == run["scores"]["em"]["mean"]
        tokens = values[cell["row"], "Tokens"]["ours"]
        assert tokens["low"] <= tokens["mean"] == run["context_tokens"] <= tokens["high"]
    verdicts = {(line["metric"]["name"], line["delta"]["verdict"]) for line in table["lines"]}
    assert verdicts == {("EM", "no model"), ("F1", "no model"), ("Tokens", "no model")}
    markdown = ran.text("report.md")
    assert "| dataset | hotpotqa | dataset=demo |" in markdown
    assert "| ranker | E5-Mistral (§4.1) | ranker=lexical |" in markdown
    assert "kgqa run scoring=trace model=llama3_8b_instruct method=no_context" in markdown
    assert "system & metric & published & ours & 95 \\% interval & verdict" in ran.text(
        "report.tex"
    )
    refused(kgqa("report", str(ran.folder)), "The same command writes its report.html again")
    runs = [Path(cell["run"]) for cell in table["cells"]]
    before = [files_of(run) for run in runs]
    again = kgqa(*SOME, "limit=2")
    assert again.folder == ran.folder
    assert [again.json("table.json")[key] for key in ("lines", "cells")] == [
        table[key] for key in ("lines", "cells")
    ]
    second = kgqa(*SOME, "limit=2", "scoring=drop").json("table.json")
    assert [f"{run.name}" for run in runs] == [
        f"{Path(cell['run']).name[:-5]}-trace" for cell in second["cells"]
    ]
    assert [files_of(run) for run in runs] == before
    assert ["scoring", "trace", "scoring=drop"] in second["differing"]


def test_reproduction_without_a_model_warns(kgqa: Kgqa) -> None:
    ran = kgqa(*SOME, "limit=1", "only=w/o documents,HotPotQA")
    warning = f"{MADE_UP}."
    assert f"\nWarning: {warning}\n" in ran.out
    assert f"**Warning**: {warning}" in ran.text("report.md")
    assert f"Warning</strong>: {warning}" in ran.text("report.html")
    assert f". Warning: {MADE_UP}}}" in ran.text("report.tex")
    shown = ran.out + ran.text("report.tex")
    assert "@scripted" not in shown
    assert "cannot tell &" not in shown
    assert ran.json("table.json")["answered_by"] == []


def test_the_cost_counts_the_judge(kgqa: Kgqa) -> None:
    ran = kgqa(
        "reproduce",
        "kgp/table1",
        "only=None,HotpotQA",
        "dataset=demo",
        "collection=null",
        "limit=2",
        *QUICK,
    )
    (cell,) = (each for each in ran.json("table.json")["cells"] if each["run"])
    metrics = json.loads((Path(cell["run"]) / "metrics.json").read_text(encoding="utf-8"))
    calls = metrics["cost"]["method"]["calls"], metrics["judge"]["cost"]["method"]["calls"]
    assert min(calls) > 0
    assert f"1 run: {sum(calls)} model calls" in dict(ran.json("table.json")["cost"])["so far"]


@pytest.mark.slow
def test_labels_correct_the_judge_of_a_table(kgqa: Kgqa) -> None:
    words = (*SOME, "limit=3", "only=w/o documents,HotPotQA")
    (cell,) = (each for each in kgqa(*words).json("table.json")["cells"] if each["run"])
    assert kgqa("evaluate", cell["run"], "--sheet", "3", "labels=sheet.csv").code == 0
    Path("labels.csv").write_text(
        re.sub(r"(?m)(?<!correct)$(?!\Z)", "1", Path("sheet.csv").read_text())
    )
    assert kgqa("evaluate", cell["run"], "judge=containment", "labels=labels.csv").code == 0
    ran = kgqa(*words)
    [(name, says, corrected)] = ran.json("table.json")["corrected"]
    assert name == "w/o documents · HotPotQA"
    assert says.split() == ["0.0", "[0.0,", "56.1]"]
    assert corrected.startswith("100.0 ")
    assert "## Judge, corrected by labels" in ran.text("report.md")


@pytest.mark.slow
def test_table_warns_of_scores_and_costs(kgqa: Kgqa) -> None:
    silent = write_rules([(".", " ")], "silent.jsonl")
    ran = kgqa(*SOME, "limit=1", "only=TRACE-Triple,HotPotQA", silent)
    name = "TRACE-Triple · HotPotQA: "
    assert f"Warning: {name}1 of 1 answers are empty.\n" in ran.out
    page = ran.text("report.md")
    assert f"**Warning**: {name}the knowledge graph has no triples of 8 of 8 passages." in page
    assert f"{name}costs without the extraction of triples (8 calls, " in page


def test_failed_cell_stops_no_other_and_is_reported(kgqa: Kgqa) -> None:
    ran = kgqa(*SOME, "limit=1", "engine.rules=nowhere.jsonl", "run_name=mine")
    assert ran.code == 2
    assert ran.out.count("failed: ") >= 2
    assert "nowhere.jsonl" in ran.out
    assert {cell["state"] for cell in ran.json("table.json")["cells"]} == {"failed"}
    # a report of other cells stays
    refused(kgqa(*SOME, "limit=2", "run_name=mine"), "Set another run_name=")


@pytest.mark.slow
def test_a_mean_row_is_ours_where_all_its_rows_are(kgqa: Kgqa) -> None:
    words = ("dataset=demo", "model=smollm2_135m", "judge=null", "limit=1")
    ran = kgqa("reproduce", "safe/table3", *words, "only=No Feedback*", *QUICK)
    lines = {
        (line["row"], line["column"], line["metric"]["name"]): line
        for line in ran.json("table.json")["lines"]
    }
    mean, one = "No Feedback, mean of five models", "No Feedback, Qwen 3 4B"
    for column in ("2Wiki", "Average"):
        assert lines[mean, column, "F1"]["ours"]["mean"] == lines[one, column, "F1"]["ours"]["mean"]
    assert lines[mean, "2Wiki", "F1"]["published"]["number"] == 67.6
    ran = kgqa("reproduce", "safe/table3", *words, f"only={one},{mean}", *QUICK)
    notes = {
        (line["row"], line["column"]): line["note"] for line in ran.json("table.json")["lines"]
    }
    assert notes[mean, "2Wiki"] == "not all of its rows were run"


def test_list_marks_cells_that_run_with_any_model(kgqa: Kgqa) -> None:
    assert re.search(
        r"trace/table9 +18 +0 +18 need weights", kgqa("reproduce", "--list", "trace/table9").out
    )
    here = ("model=smollm2_135m", "dataset=demo", *QUICK)
    assert re.search(
        r"trace/table9 +18 +18 ", kgqa("reproduce", "--list", "trace/table9", *here).out
    )
    assert "Did you mean smollm2_135m" in kgqa("reproduce", "--list", "trace", "model=smollm").err


def test_missing_data_is_named_and_empty_tables_fail(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KGQA_DATA", raising=False)
    words = ("reproduce", "trace/table9", "only=MuSiQue", "model=smollm2_135m", *QUICK)
    for more in ((), ("--plan",)):
        ran = kgqa(*words, *more)
        assert ran.code == 2
        assert "6 cells: 6 need data" in ran.out
        assert "not run, needs data: dataset=musique: no data on this machine" in ran.out
        remedies = ran.out.partition("kgqa: trace/table9: no cell can run here")[2]
        assert "\nmissing data: kgqa data download dataset=musique\n" in remedies
        assert "with models of this machine: kgqa reproduce trace/table9 model=" in remedies


def test_many_reasons_are_a_short_list_below_the_plan(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KGQA_DATA", raising=False)
    lines = kgqa("reproduce", "trace/table1", "only=TRACE*", "dry_run=true").out.splitlines()
    reasons = [line for line in lines if line.startswith("not run, ")]
    assert lines.index("Settings that differ") < lines.index(reasons[0])
    assert [line.partition(":")[0] for line in reasons] == [
        "not run, needs weights",
        "not run, needs data",
    ]
    listed = "dataset=hotpotqa (2 cells), dataset=2wiki (2 cells), dataset=musique (2 cells)"
    assert reasons[1] == f"not run, needs data: {listed}"
    one = kgqa("reproduce", "trace/table1", "only=w/o documents,MuSiQue", "--plan").out
    assert "not run, needs data: dataset=musique: no data on this machine" in one


CELL = (
    "reproduce",
    "ircot/table4",
    "only=Flan-T5-XXL? OneR QA? Direct,HotpotQA",
    "dataset=demo",
    *QUICK,
)
PAPER = (*CELL, "model=smollm2_135m", "protocol=paper", "protocol.dev=3", "protocol.test=4")


@pytest.mark.slow
def test_hyperparameters_are_tuned_on_dev_and_resumed(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"method.passages": (5, 9), "method.few_shot.distractors": (1, 2)}
    monkeypatch.setattr(CellRuns, "among", few)
    ran = kgqa(*PAPER)
    table = ran.json("table.json")
    (cell,) = table["cells"]
    (name, values, among) = table["chosen"][0]
    assert (name, among) == ("Flan-T5-XXL, OneR QA, Direct · HotpotQA", "4")
    assert values.startswith("method.passages=")
    runs = [
        json.loads((Path(run) / "metrics.json").read_text(encoding="utf-8"))
        for run in cell["run"].split()
    ]
    assert [run["questions"] for run in runs] == [4, 4, 4]
    (line,) = table["lines"]
    assert line["ours"]["mean"] == fmean(run["scores"]["f1"]["mean"] for run in runs)
    assert line["ours"]["spread"] is not None
    assert cell["command"].startswith("kgqa tune ")
    differences = {row[0]: row[1:] for row in table["differing"]}
    assert differences["protocol"][0].startswith(
        "hyperparameters chosen on 100 questions, 500 questions, the mean over 3"
    )
    assert not {"passages", "distractors", "demonstration sets"} & set(differences)
    assert "Chosen on development questions" in ran.text("report.md")
    assert "7 runs: " in dict(table["cost"])["so far"]
    finished = sorted(Path("outputs").glob("demo/*/*/*/metrics.json"))
    times = [file.stat().st_mtime_ns for file in finished]
    finished[0].unlink()
    again = kgqa(*PAPER)
    assert again.folder == ran.folder
    assert again.json("table.json")["lines"] == table["lines"]
    assert [file.stat().st_mtime_ns for file in finished[1:]] == times[1:]


@pytest.mark.slow
def test_plan_of_a_protocol_counts_calls_first(kgqa: Kgqa) -> None:
    paper = kgqa(*PAPER, "--plan")
    assert paper.code == 0
    rows = {
        line.split()[0]: line.split("  ", 1)[1].split()
        for line in paper.out.splitlines()
        if "  " in line.strip()
    }
    assert [rows[name][:2] for name in ("dev", "test", "all")] == [
        ["18", "54"],
        ["3", "12"],
        ["21", "66"],
    ]
    assert not list(Path("outputs").glob("*/*/*/*/metrics.json"))
    short = (*CELL, "model=smollm2_135m", "limit=4")
    (row,) = [
        line.split() for line in kgqa(*short, "--plan").out.splitlines() if line.startswith("runs")
    ]
    assert row[:3] == ["runs", "1", "4"]
    table = kgqa(*short).json("table.json")
    assert f"1 run: {row[3]} model calls" in dict(table["cost"])["so far"]
    (row,) = (row for row in table["differing"] if row[0] == "protocol")
    assert row[2].startswith(
        "short: no tuning on development questions, one set of demonstrations, "
    )


PATHS = {
    "context_tokens": "tokens",
    "cost.method.prompt_tokens / questions": "tokens",
    "cost.method.by_role.reader.prompt_tokens - cost.method.by_role.reader.cached_tokens / questions": "tokens",
    "cost.method.calls_per_question": "calls",
    "chains.length": "triples",
    "chains.documents_per_question": "documents",
}
GIVEN = ("run", "dataset=demo", "model=smollm2_135m", *QUICK)
TOKENS = PublishedMetric("", "context_tokens", "tokens", "")


@pytest.mark.slow
def test_means_have_bootstrap_intervals(kgqa: Kgqa) -> None:
    trace, bare = (kgqa(*GIVEN, f"method={method}").folder for method in ("trace", "no_context"))
    metrics = Metrics.read(trace).json()
    for path, unit in PATHS.items():
        metric = PublishedMetric("", path, unit, "")
        ours = read_measured_value(metrics, metric)
        assert ours, path
        ours = add_interval(ours, trace, metric)
        assert ours.low is not None, path
        assert ours.high is not None, path
        assert ours.low <= ours.mean <= ours.high, path
    # a value that the questions do not give
    unknown = Ours(1e6, None, None, 36)
    assert (
        add_interval(unknown, trace, TOKENS)
        == add_interval(unknown, trace.parent, TOKENS)
        == unknown
    )
    assert compare_rows([trace], [bare], TOKENS) == 1
    assert compare_rows([bare], [trace], TOKENS) == -1
    assert compare_rows([trace], [trace], TOKENS) == 0
    few = kgqa("run", "method=trace", "limit=5", *QUICK).folder
    metric = PublishedMetric("", "cost.method.prompt_tokens / questions", "tokens", "")
    both = [metrics, Metrics.read(few).json()]
    values = [read_measured_value(each, metric) for each in both]
    pooled = pool_values([value for value in values if value], [trace, few], metric)
    tokens: Any = sum(each["cost"]["method"]["prompt_tokens"] for each in both)
    assert pooled.questions == 36 + 5
    assert pooled.mean == pytest.approx(tokens / 41)
    assert pooled.low is not None
    assert pooled.low < pooled.mean


def test_means_without_question_scores_are_weighted(tmp_path: Path) -> None:
    judged = PublishedMetric("", "judge.accuracy", "%", "")
    pooled = pool_values(
        [Ours(80.0, 70.0, 90.0, 10), Ours(50.0, 45.0, 55.0, 30)], [tmp_path, tmp_path], judged
    )
    assert (pooled.mean, pooled.questions) == (57.5, 40)
    assert (pooled.low, pooled.high) == pytest.approx((57.5 - 4.507, 57.5 + 4.507), abs=0.01)

"""`kgqa reproduce … protocol=paper`: chosen on dev, asked on test, averaged over sets of demonstrations."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

from tests.e2e.conftest import QUICK, Kgqa

CELL = ("reproduce", "ircot/table4", "only=Flan-T5-XXL? OneR QA? Direct,HotpotQA", "dataset=demo", *QUICK)
PAPER = (*CELL, "model=smollm2_135m", "protocol=paper", "protocol.dev=3", "protocol.test=4")


def test_hyperparameters_are_chosen_on_dev_the_sets_averaged_on_test_and_the_same_command_resumes(kgqa: Kgqa) -> None:
    ran = kgqa(*PAPER)
    assert ran.code == 0, ran.err
    table = ran.json("table.json")
    (cell,) = table["cells"]
    (name, values, among) = table["chosen"][0]
    assert (name, among) == ("Flan-T5-XXL, OneR QA, Direct · HotpotQA", "18")  # 6 numbers of passages, 3 of distractors
    assert values.startswith("method.passages=")
    runs = [json.loads((Path(run) / "metrics.json").read_text(encoding="utf-8")) for run in cell["run"].split()]
    assert [run["questions"] for run in runs] == [4, 4, 4]
    (line,) = table["lines"]
    assert line["ours"]["mean"] == fmean(run["scores"]["f1"]["mean"] for run in runs)
    assert line["ours"]["spread"] is not None
    assert cell["command"].startswith("kgqa tune ")
    told = {row[0]: row[1:] for row in table["differing"]}
    assert told["protocol"][0].startswith("hyperparameters chosen on 100 questions, 500 questions, the mean over 3")
    assert not {"passages", "distractors", "demonstration sets"} & set(told)
    report = (ran.folder / "report.md").read_text(encoding="utf-8")
    assert "Chosen on development questions" in report
    assert "21 runs: " in dict(table["cost"])["so far"]
    finished = sorted(Path("outputs").glob("demo/*/*/*/metrics.json"))
    written = [file.stat().st_mtime_ns for file in finished]
    finished[0].unlink()
    again = kgqa(*PAPER)
    assert again.folder == ran.folder
    assert again.json("table.json")["lines"] == table["lines"]
    assert [file.stat().st_mtime_ns for file in finished[1:]] == written[1:]


def test_a_plan_of_either_protocol_counts_before_anything_is_asked(kgqa: Kgqa) -> None:
    paper = kgqa(*PAPER, "--plan")
    assert paper.code == 0
    assert "protocol=paper: 4 test questions wanted of 36 in dataset=demo" in paper.out
    rows = {
        line.split("  ")[0]: line.split("  ", 1)[1].split()
        for line in paper.out.splitlines()
        if line.split(" ")[0] in ("dev", "test", "all")
    }
    assert rows["dev"][:2] == ["18", "54"]
    assert rows["test"][:2] == ["3", "12"]
    assert rows["all"][:2] == ["21", "66"]
    assert not list(Path("outputs").glob("*/*/*/*/metrics.json"))
    short = kgqa(*CELL, "model=smollm2_135m", "limit=4", "--plan")
    assert [line.split()[:3] for line in short.out.splitlines() if line.startswith("runs")] == [["runs", "1", "4"]]
    calls = int(next(line.split()[3] for line in short.out.splitlines() if line.startswith("runs")))
    ran = kgqa(*CELL, "model=smollm2_135m", "limit=4")
    assert f"1 run: {calls} model calls" in dict(ran.json("table.json")["cost"])["so far"]


def test_the_short_protocol_says_what_it_leaves_out(kgqa: Kgqa) -> None:
    table = kgqa(*CELL, "model=smollm2_135m", "limit=2").json("table.json")
    (row,) = (row for row in table["differing"] if row[0] == "protocol")
    assert row[2].startswith("short: no tuning on development questions, one set of demonstrations, all questions")

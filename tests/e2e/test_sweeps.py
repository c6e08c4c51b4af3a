"""Sweeps: cells frozen at launch, skipped when finished, reported together; some fail, crash or are interrupted."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.datasets.base import FileDataset
from kgqa.engines.scripted import Scripted
from kgqa.errors import ConfigError, EngineDied, EngineError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.engines import Pool
from kgqa.experiment.run import Executed, execute
from kgqa.experiment.session import Runner, Session
from kgqa.extras.viewer.table import read_rows
from kgqa.runtime.display import QUIET, Display, Stage
from kgqa.runtime.services import Service
from kgqa.scoring import questions as scored_questions
from kgqa.sweeps.cells import load_cell
from kgqa.sweeps.grid import SweepRequest, run_sweep
from kgqa.sweeps.running import run_cell
from tests.e2e.conftest import (
    QUICK,
    TWO,
    Kgqa,
    before_each_call,
    refused,
    result,
    statuses,
    write_file,
    write_rules,
)
from tests.e2e.processes import finish, replies_kept, started


def test_every_combination_runs_and_is_reported(kgqa: Kgqa) -> None:
    sweep = (
        "run",
        "-m",
        "method=glob([golden,no_c*])",
        "++seed=range(0,2)",
        "sweep.name=mine",
        *QUICK,
    )
    ran = kgqa(*sweep, "limit=3")
    assert ran.folder == Path("outputs/sweeps/mine")
    cells = ran.json("sweep.json")["cells"]
    assert [cell["name"] for cell in cells] == [
        "method=golden ++seed=0", "method=golden ++seed=1", "method=no_context ++seed=0", "method=no_context ++seed=1",
    ]  # fmt: skip
    assert statuses(ran.folder) == ["done"] * 4
    assert [
        cell["run"] for cell in cells if not (Path(cell["run"]) / "metrics.json").is_file()
    ] == []
    page = (ran.folder / "report.md").read_text().replace("../../", "outputs/")
    assert [cell["run"] for cell in cells if cell["run"] not in page] == []
    # as if the sweep were still running
    (ran.folder / "cells/003.json").unlink()
    names = {"html": "report.html", "md": "report.md", "csv": "report.csv", "latex": "report.tex"}
    reports = {form: kgqa("report", str(ran.folder), "--format", form) for form in names}
    assert {form: (report.code, report.folder) for form, report in reports.items()} == {
        form: (0, ran.folder / name) for form, name in names.items()
    }
    rows = list(csv.DictReader(io.StringIO((ran.folder / "report.csv").read_text())))
    assert [row["status"] for row in rows] == ["done", "done", "done", "waiting"]
    assert rows[3]["EM"] == ""
    metrics = json.loads((Path(rows[0]["run"]) / "metrics.json").read_text())
    assert float(rows[0]["F1"]) == metrics["scores"]["f1"]["mean"]
    assert float(rows[0]["F1 low"]) == metrics["scores"]["f1"]["low"]
    refused(
        kgqa("run", "-m", "method=golden", "limit=2", "sweep.name=mine", *QUICK),
        "another sweep: 4 cells, not 1",
    )


@pytest.mark.slow
def test_repeats_are_one_row_with_their_spread(kgqa: Kgqa) -> None:
    ran = kgqa(
        "run",
        "-m",
        "method=golden,retrieve_read",
        "repeats=3",
        "limit=3",
        "sweep.name=mine",
        *QUICK,
    )
    cells = ran.json("sweep.json")["cells"]
    assert len({cell["run"] for cell in cells}) == 6
    assert cells[2]["overrides"][-1] == "repeat=3"
    assert cells[5]["overrides"][-2:] == ["repeat=3", "method.demonstration_set=3"]
    report = ran.text("report.md")
    assert "| 3, 4, 5 | retrieve_read | " in report
    assert "SD between runs | run 1 | run 2 | run 3" in report
    # two scores of each run, and no link to one of them from their mean
    links = Counter(re.findall(r"\[\d+\.\d\]\(../../([^)]+)/report.html\)", report))
    assert links == {cell["run"].removeprefix("outputs/"): 2 for cell in cells}
    table = kgqa("report", "mine", "--table", "paper", "--format", "md", "baseline=golden")
    rows = (ran.folder / "table.md").read_text()
    assert table.code == 0
    assert "means of 3 runs" in rows
    assert rows.count("| Retrieve and read |") == 1


@pytest.mark.parametrize(
    ("words", "shared"),
    [
        (["method=golden", "model=my_model", "repeats=2"], ["golden", "scripted"]),
        (["method=golden,no_context", "model=my_model"], ["scripted"]),
        (["method=golden", "model=my_model,other"], ["golden", "scripted"]),
    ],
    ids=["repeats", "methods", "models"],
)
def test_header_names_what_all_cells_share(
    kgqa: Kgqa, words: Sequence[str], shared: Sequence[str]
) -> None:
    for name in ("my_model", "other"):
        write_file(f"conf/model/{name}.yaml", f"name: {name}\ncontext: 4096\n")
    ran = kgqa("run", "-m", *words, "limit=2", *QUICK)
    title = " · ".join([*shared, "demo, 2 questions, musique profile"])
    assert title in ran.out.splitlines()
    assert f"## {title}" in ran.text("report.md")
    assert title in ran.text("report.html")


@pytest.mark.parametrize("repeats", [[], ["repeats=2"]], ids=["once", "repeated"])
def test_report_shows_differences_from_the_best(kgqa: Kgqa, repeats: Sequence[str]) -> None:
    rules = write_rules([(r"Context:[\s\S]*", "<right> Pellery")], "rules.jsonl")
    words = ("method=all_documents,no_context", "limit=6", "sweep.name=mine", rules, *QUICK)
    ran = kgqa("run", "-m", *words, *repeats)
    section = ran.text("report.md").partition("## Differences from the best: ")[2]
    row = re.search(r"\| F1 \| no_context \| all_documents \| 6 \| (\S+) .*\| (\S+) \|", section)
    assert row, section
    compared = kgqa("compare", "mine", "metrics=f1").out
    # the first run minus the second one
    assert f"{row[1].replace('-', '+')} [" in compared
    assert f" {row[2]} " in compared
    assert "Differences from the best" in ran.text("report.html")
    assert f"kgqa compare {ran.folder}" in section


def test_table_of_a_part_names_its_shard(kgqa: Kgqa) -> None:
    words = ("method=golden", "limit=4", "sweep.name=parts", *QUICK)
    out = kgqa("run", "-m", *words, "shard=1/2,2/2").out
    parts = re.findall(r"demo, 2 questions( .*)?, musique profile", out)
    assert parts == [" (shard 1 of 2)", " (shard 2 of 2)"]
    assert "shard" not in kgqa("run", "-m", "method=golden", "limit=2", *QUICK).out


def test_golden_is_a_family_of_its_own(kgqa: Kgqa) -> None:
    words = ("method=golden,no_context,all_documents", "limit=3", "sweep.name=mine", *QUICK)
    assert kgqa("run", "-m", *words).code == 0
    compared = kgqa("compare", "mine", "metrics=f1", "--out", "c.md")
    assert (
        "3 tests with Holm's correction, 2 of them with golden as their own family" in compared.out
    )
    assert "Holm's correction over 1 test, and over the 2 with golden." in Path("c.md").read_text()
    planned = kgqa("plan", "mine", "metrics=f1").out
    assert "at p < 0.05, with golden p < 0.05 divided by 2 tests" in " ".join(planned.split())
    assert "family" not in kgqa("compare", "mine", "baseline=golden").out
    kgqa("report", "mine", "--table", "paper", "--format", "md", "baseline=no_context")
    table = Path("outputs/sweeps/mine/table.md").read_text(encoding="utf-8")
    assert "Holm's correction over 2 tests, and over the 2 of Gold passages" in table


@pytest.mark.parametrize("repeats", [[], ["repeats=2"]], ids=["once", "repeated"])
def test_paper_rows_differ_by_method_settings(kgqa: Kgqa, repeats: Sequence[str]) -> None:
    command = ("run", "-m", "method=retrieve_read", "method.passages=1,2", "limit=2")
    ran = kgqa(*command, *repeats, "sweep.name=mine", *QUICK)
    table = kgqa("report", "mine", "--table", "paper", "--format", "csv")
    assert table.code == 0
    lines = (ran.folder / "table.csv").read_text().splitlines()[1:]
    names = {line.partition(",")[0] for line in lines}
    assert names == {"Retrieve and read · passages 1", "Retrieve and read · passages 2"}


def test_sampled_repeats_have_pass_at_k(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=search_agent", "method.temperature=1", "repeats=2", "limit=3", *QUICK)
    runs = 2 * r"\[[\d.]+\]\(\S+/report\.html\) \| "
    assert re.search(rf"\| EM \| [\d.]+ \| {runs}[\d.]+ [\d.]+ \|", ran.text("report.md"))
    # equal by chance
    assert "One run is enough" not in ran.out + ran.text("report.md")


def test_repeats_without_minus_m_reuse_the_plain_run(kgqa: Kgqa) -> None:
    plain = kgqa("run", "method=golden", "limit=2", *QUICK)
    ran = kgqa("run", "method=golden", "limit=2", "repeats=2", *QUICK)
    assert Path(ran.json("sweep.json")["cells"][0]["run"]) == plain.folder
    assert "cells: 1 done before, 1 done" in ran.out
    assert "> All repeats have the same scores" in ran.text("report.md")
    assert "One run is enough (cell 0, 1)" in ran.text("report.md")
    assert "note: all repeats have the same scores" in ran.out
    refused(kgqa("run", "-m", "method=golden", "repeats=0", *QUICK), "repeats")
    refused(
        kgqa("run", "method=golden", "repeats=2", "repeat=3", *QUICK),
        "repeat=3: repeats=2 sets this key in each run",
    )


@pytest.mark.slow
def test_finished_cells_run_again_after_a_code_change(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kgqa(*TWO)
    reports = {form: (first.folder / f"report.{form}").read_bytes() for form in ("md", "html")}
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "run", lambda *_: pytest.fail("a finished cell starts a stage"))
        patch.setattr(Scripted, "answer", lambda *_: pytest.fail("a finished cell calls its model"))
        second = kgqa(*TWO)
    assert (second.code, second.folder) == (0, first.folder)
    assert "cells: 2 done before" in second.out
    assert {form: (first.folder / f"report.{form}").read_bytes() for form in reports} == reports
    before = replies_kept(tmp_path)
    for module in ("run", "manifest"):
        monkeypatch.setattr(f"kgqa.experiment.{module}.code_hash", lambda config: "another")
    assert "cells: 2 done" in kgqa(*TWO).out.splitlines()
    assert replies_kept(tmp_path) == before
    assert "cells: 2 done before" in kgqa(*TWO).out


@pytest.mark.parametrize("judge", [(), ("judge=kgp",)], ids=["no judge", "a judge"])
def test_a_cell_does_its_work_once(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, judge: tuple[str, ...]
) -> None:
    works = Counter[str]()

    def watch(place: object, name: str) -> None:
        original = getattr(place, name)

        def work(*arguments: Any) -> Any:
            works[name] += 1
            return original(*arguments)

        monkeypatch.setattr(place, name, work)

    watch(FileDataset, "questions")
    watch(scored_questions, "score")
    assert (
        kgqa(
            "run", "-m", "method=golden,no_context", "limit=3", "sweep.name=s", *judge, *QUICK
        ).code
        == 0
    )
    assert works == {"questions": 2, "score": 2 * 3}


def test_fewer_answers_replace_no_more_that_came_later(kgqa: Kgqa) -> None:
    with Session(compose_experiment(["method=golden", "limit=2", *QUICK])) as session:
        folder = session.folder
        four = kgqa("run", "method=golden", "limit=4", *QUICK)
        assert four.folder == folder
        with pytest.raises(ConfigError, match="would replace them"):
            execute(session, QUIET)
    assert len(four.text("predictions.jsonl").splitlines()) == 4


@pytest.mark.slow
def test_sweeps_and_single_runs_share_folders(kgqa: Kgqa) -> None:
    single = kgqa("run", "method=golden", "limit=2", *QUICK)
    first = kgqa(*TWO)
    assert "cells: 1 done before, 1 done" in first.out
    assert first.json("sweep.json")["cells"][0]["run"] == str(single.folder)
    kgqa("run", "method=golden", "limit=3", *QUICK)
    kgqa("report", str(first.folder), "--format", "md")
    report = (first.folder / "report.md").read_text()
    assert (
        "| 0 | method=golden | changed | another command has run its questions with another selection"
        in report
    )
    assert "1 of 2 cells" in report
    assert "cells: 1 done, 1 done before" in kgqa(*TWO).out
    assert "cells: 2 done" in kgqa("run", "-m", "method=golden,no_context", "limit=4", *QUICK).out


@pytest.fixture
def extended_sweep(kgqa: Kgqa) -> str:
    """The name of a sweep, of which a single run extended a cell."""
    kgqa(*TWO, "sweep.name=two")
    kgqa("run", "method=golden", "limit=3", *QUICK)
    return "two"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "plan", "report --table paper"])
def test_changed_cell_names_the_command_that_repairs(
    kgqa: Kgqa, extended_sweep: str, command: str
) -> None:
    verb, *options = command.split()
    warning = (
        "warning: outputs/sweeps/two: another command changed the questions of cell 0 "
        "(method=golden). Restore them from the cache: kgqa "
    )
    output = kgqa(verb, extended_sweep, *options).err
    (line,) = (line for line in output.splitlines() if line.startswith(warning))
    assert kgqa(*shlex.split(line.removeprefix(warning))).code == 0
    repaired = kgqa(verb, extended_sweep, *options)
    assert repaired.code == 0
    assert "another command" not in repaired.err


def test_run_warns_if_it_changes_a_cell(kgqa: Kgqa) -> None:
    kgqa(*TWO, "sweep.name=two")
    warning = (
        "warning: this run changes the questions of cell 0 (method=golden) of outputs/sweeps/two. "
        "Set run_name= to keep them\n"
    )
    limited = ("run", "method=golden", *QUICK)
    assert "this run changes" not in kgqa(*limited, "limit=3", "run_name=other").out
    assert warning in kgqa(*limited, "limit=3").out
    assert "this run changes" not in kgqa(*limited, "limit=4").out


def test_sampled_seeds_explain_separate_tables(kgqa: Kgqa) -> None:
    output = kgqa("run", "-m", "method=golden", "seed=0,1", "sample=2", *QUICK).out
    assert output.count("[low, high]: 95 % interval") == 1
    assert output.count("repeats=3 runs the same questions with several seeds") == 1


@pytest.mark.slow
def test_plan_names_the_questions_it_uses(kgqa: Kgqa, extended_sweep: str) -> None:
    note = "The runs have different questions. The plan uses the 2 that all have."
    assert note in kgqa("plan", extended_sweep).out
    kgqa(*TWO, "sweep.name=two")
    assert "different questions" not in kgqa("plan", extended_sweep).out


def test_viewer_marks_a_changed_sweep(kgqa: Kgqa, extended_sweep: str) -> None:
    def mark() -> tuple[str, str]:
        (row,) = (row for row in read_rows(Path("outputs")) if row.kind == "sweep")
        return row.mark

    assert mark() == ("! 1 of 2 cells changed", "wrong")
    kgqa(*TWO, "sweep.name=two")
    assert mark() == ("✓ 2 of 2 cells", "right")


def test_cells_run_their_frozen_configuration(kgqa: Kgqa) -> None:
    ran = kgqa(*TWO)
    configuration = ran.folder / "cells/001.yaml"
    configuration.write_text(
        configuration.read_text().replace("max_answer_tokens: 25", "max_answer_tokens: 7")
    )
    cell = load_cell(ran.folder, 1)
    assert cell.config["method"]["max_answer_tokens"] == 7
    run_cell(cell, ran.folder, Pool())
    assert cell.status == "done"
    assert cell.run is not None
    assert "max_answer_tokens: 7" in (cell.run / "config.yaml").read_text()


@pytest.mark.slow
def test_judge_judges_every_cell(kgqa: Kgqa) -> None:
    judged = (write_rules([("Compare an answer", {"verdict": "correct"})]), "judge=three_way")
    ran = kgqa(*TWO, *judged)
    assert "| judge accuracy |" in (ran.folder / "report.md").read_text()
    runs = [cell["run"] for cell in ran.json("sweep.json")["cells"]]
    assert [run for run in runs if not (Path(run) / "verdicts.jsonl").is_file()] == []
    assert "cells: 2 done before" in kgqa(*TWO, *judged).out
    assert "different judges" not in (ran.folder / "report.md").read_text()
    assert kgqa("evaluate", runs[1], "judge=em").code == 0
    kgqa("report", str(ran.folder), "--format", "md")
    mixed = (
        "Judge accuracy is by different judges, and neither ranked nor tested: three_way smollm2"
    )
    assert mixed in (ran.folder / "report.md").read_text()
    assert "cells: 2 done" in kgqa(*TWO, judged[0], "judge=kgp").out  # the same runs, judged again


def test_judge_without_verdicts_has_a_column(kgqa: Kgqa) -> None:
    ran = kgqa(*TWO, "judge=three_way")
    _, header, row, *_ = ran.out[ran.out.index("scripted · judge three_way") :].splitlines()
    assert "judge accuracy" in header
    assert row.split()[1] == "golden"
    assert " – " in row


@pytest.mark.parametrize("command", ["compare", "report"])
def test_sweep_is_read_from_another_folder(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    sweep = kgqa(*TWO).folder.resolve()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ran = kgqa(command, str(sweep))
    assert ran.code == 0, ran.err


def planned_calls(out: str) -> tuple[int, int]:
    line = next(line for line in out.splitlines() if line.startswith("all "))
    calls, new, *_ = re.findall(r"  ([\d,]+)(?=  )", line)
    return int(calls.replace(",", "")), int(new.replace(",", ""))


@pytest.mark.slow
def test_dry_run_counts_every_cell_and_calls_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    """Calls that cells share are counted once: both read the triples of 12 passages."""
    pair = ["run", "-m", "method=trace", "method.beam=5,6", "limit=2", *QUICK]
    planned = kgqa(*pair, "dry_run=true")
    assert planned.code == 0
    assert "time: engine=scripted calls no model" in planned.out
    new = planned_calls(planned.out)[1]
    judged = planned_calls(kgqa(*pair, "dry_run=true", "judge=three_way").out)[1]
    # a judge is asked twice if need be
    assert judged == new + 8
    alone = planned_calls(kgqa(*pair[:3], "method.beam=5", *pair[4:], "dry_run=true").out)[1]
    assert alone < new < 2 * alone
    assert replies_kept(tmp_path) == 0
    assert not (tmp_path / "outputs/sweeps").exists()
    calls = 0
    for cell in kgqa(*pair).json("sweep.json")["cells"]:
        cost = json.loads((Path(cell["run"]) / "metrics.json").read_text())["cost"]
        calls += cost["paid"]["calls"] + cost["extraction_paid"]["calls"]
    assert calls <= new
    finished = kgqa(*pair, "dry_run=true").out
    assert planned_calls(finished) == (0, 0)
    assert "finished" in finished
    assert (
        "calls: as many per question as in 1 finished run of trace with these settings here"
        in kgqa(*pair, "dry_run=true", "limit=9").out
    )


def test_launcher_is_not_started_for_finished_cells(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    kgqa("run", "method=golden", "limit=2", *QUICK)
    launched: list[int] = []
    monkeypatch.setattr(
        "kgqa.sweeps.launching.launch", lambda sweep, numbers, hydra: launched.extend(numbers)
    )
    ran = kgqa(*TWO, "hydra/launcher=joblib")
    assert launched == [1]
    assert "cells: 1 done before, 1 not run" in ran.out
    assert "not run | its process ended early" in (ran.folder / "report.md").read_text()
    kgqa(*TWO)
    assert "cells: 2 done before" in kgqa(*TWO, "hydra/launcher=joblib").out
    assert launched == [1]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("hydra_plugins") is None, reason="needs kgqa[joblib]")
def test_joblib_runs_cells_in_separate_processes(kgqa: Kgqa, tmp_path: Path) -> None:
    # a model of a role is composed again in the job
    pair = [*TWO, "roles.reader=smollm2_135m@scripted"]
    here = kgqa(*pair)
    other = tmp_path / "other"
    other.mkdir()
    folder = finish(
        started([*pair, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], other), other
    )
    runs = [result(here.folder, number)["run"] for number in range(2)]
    assert [result(folder, number)["run"] for number in range(2)] == runs
    predictions = [Path(run, "predictions.jsonl").read_bytes() for run in runs]
    assert [(other / run / "predictions.jsonl").read_bytes() for run in runs] == predictions
    assert not list(other.rglob(".hydra"))
    assert {file.parent.name for file in other.rglob("multirun.yaml")} == {
        "launcher"
    }  # within the sweep's folder


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep_with_130_and_saves_cells(kgqa: Kgqa, tmp_path: Path) -> None:
    slow = [
        "run",
        "-m",
        "method=golden,no_context,all_documents",
        "limit=2",
        "engine.delay=2",
        *QUICK,
    ]
    running = started(slow, tmp_path)
    deadline = time.monotonic() + 240
    while (
        not list(tmp_path.glob("outputs/sweeps/*/cells/001.json")) and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    lines = [line for line in err.splitlines() if line]
    assert lines[0] == "kgqa: interrupted. Run the same command again to continue"
    assert any(
        line.startswith("kgqa: saved in outputs/sweeps/") and "1 of 3 cells" in line
        for line in lines
    )
    assert lines[-1] == f"kgqa: continue with: kgqa {' '.join(slow)}"
    (folder,) = (tmp_path / "outputs/sweeps").iterdir()
    assert kgqa("report", str(folder), "--format", "csv").code == 0
    rows = list(csv.DictReader(io.StringIO((folder / "report.csv").read_text())))
    assert [row["status"] for row in rows] == ["done", "interrupted", "waiting"]
    assert "cells: 1 done before, 2 done" in kgqa(*slow).out


def test_failed_cell_stops_no_other_and_is_named(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = kgqa(
        "run",
        "-m",
        "method=golden",
        "model=qwen3_8b",
        "model.path=no.gguf",
        "engine=llamacpp,scripted",
    )
    assert ran.code == 2
    assert "cell 0 failed: engine=llamacpp: model.path=no.gguf" in ran.out
    assert "Cells without results" in (ran.folder / "report.md").read_text()
    assert statuses(ran.folder) == ["failed", "done"]
    # the only row has the value that the sweep varied
    assert re.search(r"^cell +engine .*\n +1 +scripted ", ran.out, re.MULTILINE)

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


@pytest.mark.slow
def test_failed_questions_of_a_cell_are_tried_again(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = (*TWO, "max_failure_rate=1")
    with monkeypatch.context() as patch:
        patch.setattr(
            Scripted, "answer", lambda self, calls: [EngineError("no reply") for _ in calls]
        )
        failed = kgqa(*TWO)
        assert failed.code == 2
        assert "2 of 2 questions" in result(failed.folder, 0)["error"]
        assert "cells: 2 done" in kgqa(*allowed).out
    ran = kgqa(*allowed)
    assert "cells: 2 done" in ran.out
    assert result(ran.folder, 0)["error"] is None
    assert "cells: 2 done before" in kgqa(*allowed).out


def test_paid_calls_before_an_engine_crashed_count(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count(1)

    def die_at_second(*_: Any) -> None:
        if next(numbers) == 2:
            raise EngineDied("out of memory")

    before_each_call(monkeypatch, die_at_second)
    one_by_one = ("engine.batch_size=1", "max_parallel_questions=1", "limit=2")
    ran = kgqa("run", "-m", "method=golden,no_context", *one_by_one, *QUICK, "budget=1tokens")
    assert statuses(ran.folder) == ["failed", "not run"]
    assert "the budget is spent: budget=1tokens" in ran.out


@pytest.mark.slow
def test_next_command_continues_after_the_budget(kgqa: Kgqa) -> None:
    five = ["run", "-m", "method=no_context", "seed=range(0,5)", "limit=2", *QUICK]
    ran = kgqa(*five, "budget=1tokens")
    assert ran.code == 2
    assert "cells: 1 done, 4 not run" in ran.out
    assert "cells: 1 done before, 4 done" in kgqa(*five, "budget=100000tokens").out


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"text", b"[" * 5000, b"a: [1"], ids=["bytes", "text", "deep", "cut"]
)
def test_damaged_configuration_of_a_cell_is_one_line(kgqa: Kgqa, content: bytes) -> None:
    file = kgqa(*TWO).folder / "cells/000.yaml"
    file.write_bytes(content)
    refused(kgqa(*TWO), str(file))


def test_pipe_as_a_log_of_a_cell_fails_only_the_cell(kgqa: Kgqa) -> None:
    folder = kgqa(*TWO).folder
    for name in ("cells/000.log", "log.jsonl"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    (folder / "cells/000.json").unlink()
    ran = kgqa(*TWO)
    assert (ran.code, statuses(folder)) == (2, ["failed", "done"])
    assert "cells/000.log" in ran.out


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_unfinished_cells_are_completed(kgqa: Kgqa) -> None:
    """Without its settings, without a process, and with a log on a full disk."""
    folder = kgqa(*TWO).folder
    settings = sorted(Path("outputs/demo").rglob("settings.json"))
    before = [file.read_bytes() for file in settings]
    settings[0].unlink()
    assert kgqa(*TWO).code == 0
    assert [file.read_bytes() for file in settings] == before
    (folder / "cells/001.json").write_text(
        json.dumps({**result(folder, 1), "status": "running"})
    )  # as kill -9 does
    kgqa("report", str(folder), "--format", "md")
    text = (folder / "report.md").read_text()
    assert "| 1 | method=no_context | interrupted | no command is running this sweep" in text
    for run in Path("outputs/demo").glob("*/*/*/metrics.json"):
        # so that both cells run again
        run.unlink()
    (folder / "cells/001.log").unlink()
    (folder / "cells/001.log").symlink_to("/dev/full")
    assert kgqa(*TWO).code == 2
    assert "001.log: No space left on device. Free disk space" in result(folder, 1)["error"]
    assert statuses(folder) == ["done", "failed"]


class StageTitles(Display):
    def __init__(self) -> None:
        self.titles: list[str] = []

    def watching(self, stage: Stage) -> AbstractContextManager[None]:
        self.titles.append(stage.title)
        return nullcontext()


def test_repeated_sweep_names_what_it_does(kgqa: Kgqa) -> None:
    assert kgqa(*TWO).code == 0
    display = StageTitles()
    run_sweep(SweepRequest.of(TWO[2:]), display)
    assert display.titles == ["checking the cells", "cells", "writing the report"]


def test_compare_shows_how_to_continue_a_stopped_sweep(kgqa: Kgqa) -> None:
    folder = kgqa(*TWO).folder
    # as Ctrl-C does
    (folder / "cells/001.json").write_text(json.dumps({**result(folder, 1), "status": "running"}))
    ran = kgqa("compare", str(folder))
    assert "cell 1 (method=no_context) has no results and is omitted: interrupted" in ran.err
    assert f"{folder}: 1 finished run. Continue the sweep: kgqa {' '.join(TWO)}\n" in ran.err


FULL = "kgqa: standard output: No space left on device. Free disk space or redirect it"


def ended(
    words: tuple[str, ...], redirected: str, folder: Path, **more: str
) -> tuple[int, list[str]]:
    """Exit code and lines on stderr of a command in a shell."""
    command = f'{shlex.quote(sys.executable)} -m kgqa "$@" {redirected}; exit ${{PIPESTATUS[0]}}'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **more}
    words = ("bash", "-c", command, "bash", *words)
    shell = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    return shell.returncode, shell.stderr.splitlines()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize(
    ("words", "unbuffered"), [("--help", ""), ("data list", "1")], ids=["buffered", "unbuffered"]
)
def test_full_disk_behind_the_output_is_one_line(
    tmp_path: Path, words: str, unbuffered: str
) -> None:
    code, (line,) = ended(
        tuple(words.split()), "> /dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered
    )
    assert (code, line.startswith(FULL)) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_full_disk_behind_all_output_is_an_exit_code(tmp_path: Path) -> None:
    assert ended(("show", "nothing"), "> /dev/full 2> /dev/full", tmp_path) == (2, [])


@pytest.mark.slow
@pytest.mark.parametrize("redirected", ["| true", ">&- 2>&-"])
def test_sweep_finishes_after_its_output_is_closed(redirected: str, tmp_path: Path) -> None:
    """A closed stream's number goes to no file, into which others would print."""
    assert ended((*TWO, "sweep.name=s"), redirected, tmp_path) == (0, [])
    assert len(list(tmp_path.glob("outputs/demo/*/*/*/report.html"))) == 2
    assert (tmp_path / "outputs/sweeps/s/report.html").is_file()


ANSWERING = ["method=no_context", "limit=2", *QUICK]
EXTRACTING = ["method=trace", "limit=2", *QUICK]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the engines that load weights, at their first call, and those of them that are closed.

    An engine that only identifies the run loads nothing. All are closed in the end.
    """
    counts: Counter[str] = Counter()
    # so that no other gets the id of one that is gone
    engines: list[Scripted] = []
    states: dict[int, str] = {}
    build, start, close = Scripted.__post_init__, Runner._start_model, Scripted.close

    def count_built(self: Scripted) -> None:
        engines.append(self)
        states[id(self)] = "built"
        build(self)

    def count_loaded(self: Runner, engine: Scripted) -> Service:
        counts["loaded"] += states[id(engine)] == "built"
        states[id(engine)] = "loaded"
        return start(self, engine)

    def count_closed(self: Scripted) -> None:
        counts["closed"] += states[id(self)] == "loaded"
        states[id(self)] = "closed"
        close(self)

    monkeypatch.setattr(Scripted, "__post_init__", count_built)
    monkeypatch.setattr(Runner, "_start_model", count_loaded)
    monkeypatch.setattr(Scripted, "close", count_closed)
    yield counts
    assert set(states.values()) == {"closed"}


def run_with(overrides: Sequence[str], pool: Pool | None = None) -> Executed:
    with Session(compose_experiment(overrides), pool) as session:
        return execute(session, QUIET)


@pytest.mark.slow
def test_runs_and_stages_of_a_pool_share_one_engine(kgqa: Kgqa, events: Counter[str]) -> None:
    with closing(Pool()) as pool:
        runs = [
            run_with([*ANSWERING, word], pool).run for word in ("seed=1", "seed=2", "judge=kgp")
        ]
        assert [run.metrics.failed for run in runs] == [0, 0, 0]
        assert events == Counter(loaded=1)
    assert events == Counter(loaded=1, closed=1)
    cost = run_with(EXTRACTING).run.metrics.cost
    assert cost.extraction_paid is not None
    assert cost.extraction_paid.calls > 0
    assert cost.paid.calls > 0
    assert events == Counter(loaded=2, closed=2)
    # without a pool the reader's engine makes room for the judge's
    run_with([*ANSWERING, "seed=3", "judge=kgp"])
    assert events == Counter(loaded=4, closed=4)


@pytest.mark.parametrize("cell", [ANSWERING, EXTRACTING], ids=["answering", "extracting"])
def test_crashed_engine_is_not_reused_by_the_next_run(
    kgqa: Kgqa, events: Counter[str], monkeypatch: pytest.MonkeyPatch, cell: list[str]
) -> None:
    def die(*_: Any) -> None:
        raise EngineDied("no memory left")

    with closing(Pool()) as pool:
        with monkeypatch.context() as patch:
            before_each_call(patch, die)
            with pytest.raises(EngineDied, match="no memory left"):
                run_with(cell, pool)
        assert events == Counter(loaded=1, closed=1)
        assert run_with(cell, pool).run.metrics.failed == 0
    assert events == Counter(loaded=2, closed=2)


def test_ctrl_c_closes_the_engines_of_the_pool(
    kgqa: Kgqa, events: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    before_each_call(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt), closing(Pool()) as pool:
        run_with(ANSWERING, pool)
    assert events["closed"] >= events["loaded"] == 1


def test_warnings_about_scores_are_everywhere(kgqa: Kgqa, tmp_path: Path) -> None:
    silent = write_rules([(".", " ")], "silent.jsonl")
    words = ("method=no_context,all_documents", "dataset=demo", "engine=scripted", "limit=2")
    swept = kgqa("run", "-m", *words, silent)
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    evaluated = kgqa("evaluate", str(sweep))

    warning = "2 of 2 answers are empty"
    assert f"warning: {warning}\n" in swept.out
    assert evaluated.out.count(f": {warning}\n") == 2
    pages = [sweep / "report.html", *(tmp_path / "outputs" / "demo").rglob("report.html")]
    assert [f"</strong>: {warning}." in page.read_text("utf-8") for page in pages] == [True] * 3


def test_captions_and_comparisons_warn_of_scores(kgqa: Kgqa) -> None:
    rules = write_rules([(".", "Pellery")], "rules.jsonl")
    swept = kgqa("run", "-m", "method=trace,no_context", "limit=1", *QUICK, rules)
    sweep, warning = str(swept.folder), "the knowledge graph has no triples of 8 of 8 passages"
    compared = kgqa("compare", sweep, "--out", "c.md")
    assert kgqa("report", sweep, "--table", "paper", "--format", "md", "--out", "t.md").code == 0
    assert f"\nwarning: {warning} (cell 0)\n" in swept.out
    assert f"\nwarning: {warning} (A)\n" in compared.out
    captions = [
        Path(name).read_text("utf-8").count(f"TRACE: {warning}.") for name in ("c.md", "t.md")
    ]
    assert captions == [1, 1]


def test_costs_name_the_extraction_that_they_lack(kgqa: Kgqa) -> None:
    words = ("run", "-m", "method=trace,no_context", "limit=2", "sweep.name=s", *QUICK)
    first, again = kgqa(*words), kgqa(*words, "run_name=again")
    assert kgqa("report", "s", "--table", "paper", "--format", "md", "metrics=em,calls").code == 0

    (run,) = Path("outputs/demo/trace").glob("*/again")
    cost = Metrics.read(run).cost
    assert cost.extraction is not None
    assert cost.extraction_paid is not None
    # all replies of the second run are cached
    assert (cost.extraction.calls, cost.extraction_paid.calls) == (10, 0)
    tokens = cost.extraction.prompt_tokens + cost.extraction.output_tokens
    note = f"costs without the extraction of triples (10 calls, {tokens:,} tokens, shared by runs)."
    page = (first.folder / "report.html").read_text("utf-8")
    caption = (first.folder / "table.md").read_text("utf-8")
    assert f"\ntrace: {note}\n" in first.out
    assert f"\ntrace: {note}\n" in again.out
    assert f"trace: {note}" in page
    assert f"TRACE: {note}" in caption
    assert [text.count(note) for text in (first.out, caption)] == [1, 1]


def test_costs_without_extraction_are_below_their_table(kgqa: Kgqa) -> None:
    words = ("method=trace", "limit=1,2", *(word for word in QUICK if "limit" not in word))
    lines = kgqa("run", "-m", *words).out.splitlines()
    notes = [number for number, line in enumerate(lines) if "without the extraction" in line]
    # the rows of two tables have the same name
    tables = [number for number, line in enumerate(lines) if line.startswith("cell ")]
    assert [number - 2 for number in notes] == tables


@pytest.mark.slow
def test_sweep_is_planned_and_named_for_one_run(kgqa: Kgqa) -> None:
    sweep = kgqa(*TWO).folder
    planned = kgqa("plan", str(sweep))
    assert re.search(r"(?m)^golden – no_context +EM ", planned.out)
    explained = kgqa("explain", str(sweep), "seed=1")
    newest = "kgqa explain demo/no_context/scripted/"
    assert re.search(rf"kgqa: the newest one: {newest}\w+ seed=1\n", explained.err)


def test_failed_cell_is_to_be_corrected_first(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgqa.cli.sweep.command_line", lambda: "kgqa run again")
    files = "model.path=no.gguf", "engine=llamacpp,scripted"
    ran = kgqa("run", "-m", "method=golden", "model=qwen3_8b", "limit=1", *files)
    assert "cell 0 failed: engine=llamacpp: model.path=no.gguf" in ran.out
    assert "Once what failed is corrected, continue with: kgqa run again" in ran.out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("method=golden method.max_answer_tokens=3,x", "max_answer_tokens=x: must be an integer"),
        ("method=golden engine.batch_size=3,x", "engine.batch_size=x: must be an integer"),
        ("method=trace method.beam=5,3", "method.chains=5: more than method.beam=3"),
        ("method=golden judge=panel judge.members=[],x", "judge.members=x"),
    ],
    ids=["method", "engine", "two settings", "judge"],
)
def test_wrong_value_of_a_cell_is_named_first(kgqa: Kgqa, words: str, reason: str) -> None:
    ran = kgqa("run", "-m", *words.split(), "limit=1", *QUICK)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("kgqa: no cell was run. cell ")
    assert reason in ran.err
    assert not list(Path("outputs").rglob("*.json*"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{{ question", "v/reader/answer.j2:1: "), ("{{ quesion }}", "v/reader/answer.j2:1: 'quesion' is undefined.")],
    ids=["syntax", "unknown value"],
)  # fmt: skip
def test_invalid_prompt_of_a_cell_is_named_first(kgqa: Kgqa, text: str, reason: str) -> None:
    write_file("v/reader/answer.j2", f"{{% block user %}}{text}{{% endblock %}}")
    words = ("method=golden,no_context", "prompts=shipped,v", "limit=1")
    ran = kgqa("run", "-m", *words, "sweep.name=s", *QUICK)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"kgqa: no cell was run. cell 1, 3: {reason}")
    assert ran.err.count("reader/answer.j2") == 1
    assert not Path("outputs/sweeps").exists()


def test_wrong_metric_leaves_the_report_of_a_sweep(kgqa: Kgqa) -> None:
    words = ("run", "-m", "method=golden,no_context", "limit=1", "sweep.name=s", *QUICK)
    assert kgqa(*words).code == 0
    report = Path("outputs/sweeps/s/report.md")
    text = report.read_text(encoding="utf-8")
    write_file("conf/metric/mine.yaml", "_target_: second_em.one\nlabel: EM\n")
    write_file("second_em.py", "def one(question, answer):\n    return 1.0\n")
    ran = kgqa(*words)
    assert (ran.code, ran.out) == (2, "")
    file = Path("conf/metric/mine.yaml").resolve()
    assert ran.err.startswith(f"kgqa: {file}: kgqa has a score with the label EM. ")
    assert ran.err.count("\n") == 1
    assert report.read_text(encoding="utf-8") == text


def test_missing_data_of_all_cells_is_named_first(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KGQA_DATA", raising=False)
    names = "demo,musique,hotpotqa"
    ran = kgqa("run", "-m", "method=no_context,golden", f"dataset={names}", "engine=scripted")
    (line,) = ran.err.splitlines()
    assert ran.code == 2
    assert line.startswith("kgqa: no cell was run. cell 1, 4: dataset=musique: no musique_ans")
    assert ". cell 2, 5: dataset=hotpotqa: no hotpot_dev" in line
    assert not list(Path("outputs").rglob("*.json*"))


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("sample=80", "sample=80: only 36 questions. Remove sample= to use all"),
        ("ids=[none]", "ids=none: no such question in dataset=demo"),
    ],
)
def test_questions_that_are_not_there_are_named_first(kgqa: Kgqa, key: str, reason: str) -> None:
    ran = kgqa("run", "-m", "method=golden,no_context", "dataset=demo", key, "engine=scripted")
    (line,) = ran.err.splitlines()
    assert ran.code == 2
    assert line.startswith(f"kgqa: no cell was run. cell 0, 1: {reason}")
    assert not Path("outputs").exists()


def test_missing_corpus_is_named_first(kgqa: Kgqa) -> None:
    ran = kgqa("run", "-m", "method=golden,ircot", "dataset.corpus=none.jsonl", *QUICK)
    start = "kgqa: no cell was run. cell 1: dataset.corpus=none.jsonl: no such file"
    assert ran.err.startswith(start)
    assert ran.code == 2


def test_one_repetition_names_the_key_of_several(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=golden", "limit=1", "repeat=3", *QUICK)
    assert "repeat=3 runs repetition 3 only. For 1 to 3: repeats=3" in ran.out + ran.err

"""`kgqa report`: a run's rows, read again, and what is refused. Other forms: test_export_formats.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import read_trace
from kgqa.report.exports.rows import write_jsonl
from kgqa.report.tables import call_rows, prediction_rows
from tests.e2e.conftest import QUICK, Kgqa, Ran

Rows = list[dict[str, Any]]
RUN = ("run", "method=trace", "limit=4", *QUICK, "out=one")


def from_lines(folder: Path, table: str) -> Rows:
    return [json.loads(line) for line in (folder / f"{table}.jsonl").read_text("utf-8").splitlines()]


def finished(kgqa: Kgqa) -> Ran:
    ran = kgqa(*RUN)
    assert ran.code == 0, ran.err
    return ran


def test_the_rows_are_those_of_the_tables(kgqa: Kgqa, tmp_path: Path) -> None:
    finished(kgqa)
    exported = kgqa("report", "one", "--format", "jsonl", "--out", "out")
    assert exported.code == 0, exported.err
    assert all((tmp_path / line).exists() for line in exported.out.splitlines())
    run = FinishedRun.read(tmp_path / "one")
    assert from_lines(tmp_path / "out", "predictions") == list(prediction_rows(run))
    assert from_lines(tmp_path / "out", "traces") == list(call_rows(run))


def test_predictions_are_the_runs_and_calls_are_the_traces(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = finished(kgqa)
    assert kgqa("report", "one", "--format", "jsonl", "--out", "out").code == 0
    predictions, calls = from_lines(tmp_path / "out", "predictions"), from_lines(tmp_path / "out", "traces")
    written = [json.loads(line) for line in (tmp_path / "one/predictions.jsonl").read_text("utf-8").splitlines()]
    for row, prediction in zip(predictions, written, strict=True):
        assert (row["id"], row["answer"]) == (prediction["question_id"], prediction["answer"])
        assert row["evidence"] == prediction["evidence"]
    mean = 100 * sum(row["f1"] for row in predictions) / len(predictions)
    assert mean == pytest.approx(ran.json("metrics.json")["scores"]["f1"]["mean"])
    traced = [call for question in read_trace(tmp_path / "one") for call in question.calls]
    assert len(calls) == len(traced) == sum(row["calls"] for row in predictions)
    for row, call in zip(calls, traced, strict=True):
        assert json.loads(row["reply"]) == call.reply
        assert json.loads(row["asked"]).get("prompt") == call.request.get("prompt")
    assert sum(row["output_tokens"] or 0 for row in calls) == sum(row["output_tokens"] for row in predictions)


def test_half_a_character_of_a_model_is_written_as_an_escape(tmp_path: Path) -> None:
    write_jsonl(iter([{"text": "half: \ud800"}]), tmp_path / "rows.jsonl")
    assert from_lines(tmp_path, "rows") == [{"text": "half: \ud800"}]


def test_a_folder_that_holds_something_is_left_alone(kgqa: Kgqa, tmp_path: Path) -> None:
    finished(kgqa)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    ran = kgqa("report", "one", "--format", "jsonl", "--out", "out")
    assert ran.code == 2
    assert ran.err == "kgqa: --out out: is there already and not an empty folder; give another one\n"
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("one", "--format", "jsonl"), "--out DIR is missing"),
        (("one", "--out", "out", "--format", "parquet"), "--format parquet: no such value; choose from"),
        (("nowhere", "--format", "jsonl", "--out", "out"), "not the folder of a run that ended"),
    ],
)
def test_bad_command_lines_are_one_line(kgqa: Kgqa, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = kgqa("report", *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_working_directory_itself_is_refused(kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(kgqa)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    ran = kgqa("report", "../one", "--format", "jsonl", "--out", ".")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--out .: name a folder" in ran.err


def test_a_damaged_trace_leaves_no_half_export(kgqa: Kgqa, tmp_path: Path) -> None:
    finished(kgqa)
    trace = tmp_path / "one/trace.jsonl.zst"
    trace.write_bytes(b"\0" * 100 + trace.read_bytes()[100:])
    ran = kgqa("report", "one", "--format", "jsonl", "--out", "exported")
    assert ran.code == 2
    assert "damaged trace" in ran.err
    assert not list(tmp_path.glob("exported*"))

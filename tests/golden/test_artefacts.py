"""Folders that kgqa 0.1 (630e34f) wrote are read, and written again to the same bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import zstandard

from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.predictions import run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import CellState, Sweep
from kgqa.artifacts.trace import read_questions, read_trace
from kgqa.artifacts.verdicts import read_verdicts
from kgqa.report.exports import write_report
from kgqa.types import Json

KEPT = Path(__file__).parent / "artefacts"
# judged, with a graph; and one that answers nothing
RUNS = [KEPT / "trace", KEPT / "retrieval"]


def whole(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def lines(values: Iterable[Json]) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_files_of_a_run_round_trip_to_the_same_bytes(folder: Path) -> None:
    assert whole(Metrics.read(folder).json()) == text(folder / "metrics.json")
    assert whole(Manifest.read(folder).json()) == text(folder / "manifest.json")
    assert lines(prediction.json() for prediction in run_predictions(folder)) == text(
        folder / "predictions.jsonl"
    )
    with (folder / "trace.jsonl.zst").open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        assert (
            lines(traced.json() for traced in read_trace(folder))
            == io.TextIOWrapper(reader, "utf-8").read()
        )
    assert list(read_questions(folder)) == [traced.question for traced in read_trace(folder)]


@pytest.mark.parametrize(
    ("form", "name"), [("md", "report.md"), ("latex", "report.tex"), ("csv", "report.csv")]
)
@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_report_of_a_run_is_the_same_to_the_byte(
    folder: Path, form: str, name: str, tmp_path: Path
) -> None:
    assert text(write_report(FinishedRun.read(folder), form, tmp_path / name)) == text(
        folder / name
    )


def test_verdicts_round_trip_to_the_same_bytes() -> None:
    assert lines(line.json() for line in read_verdicts(RUNS[0]).values()) == text(
        RUNS[0] / "verdicts.jsonl"
    )


def test_sweep_round_trips_to_the_same_bytes(tmp_path: Path) -> None:
    sweep = Sweep.read(KEPT / "sweep")
    sweep.path = tmp_path
    sweep.write()
    assert text(tmp_path / "sweep.json") == text(KEPT / "sweep/sweep.json")


@pytest.mark.parametrize("number", [0, 1])
def test_cell_round_trips_to_the_same_bytes(number: int) -> None:
    state = CellState.read(KEPT / "sweep", number)
    assert state is not None
    assert whole(state.json()) == text(KEPT / f"sweep/cells/{number:03}.json")


def test_stored_runs_have_titles_and_unknown_accuracy() -> None:
    assert FinishedRun.read(KEPT / "retrieval").title == "retrieve_only on demo with bm25"
    judged = FinishedRun.read(KEPT / "trace").metrics.judge
    assert judged is not None
    assert judged.accuracy.mean is None

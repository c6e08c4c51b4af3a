"""A damaged artefact is one line that names the file and the key; what an older version did not write is not missed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from kgqa.artifacts.predictions import Prediction, run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import CellState, Sweep
from kgqa.artifacts.trace import read_questions, read_trace
from kgqa.artifacts.verdicts import Judgements, read_verdicts
from kgqa.types import Json
from tests.unit.files import refusal

KEPT = Path(__file__).parents[1] / "golden/artefacts"
REMOVED = object()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT / "trace", tmp_path / "run"))


def changed(text: str, path: str, value: object) -> str:
    """One line of JSON, or a whole file of it, with another value at a path."""
    whole: Json = json.loads(text)
    part, *keys = whole, *path.split(".")
    for key in keys[:-1]:
        part = part[int(key) if isinstance(part, list) else key]
    if value is REMOVED:
        del part[keys[-1]]
    else:
        part[keys[-1]] = value
    return json.dumps(whole)


def damage(file: Path, path: str, value: object) -> None:
    """In the first line of a file with lines."""
    if file.suffix == ".zst":
        trace = (
            zstandard.ZstdDecompressor()
            .stream_reader(file.read_bytes(), read_across_frames=True)
            .read()
            .decode()
        )
        lines = trace.splitlines(keepends=True)
        lines[0] = f"{changed(lines[0], path, value)}\n"
        file.write_bytes(b"".join(zstandard.compress(line.encode()) for line in lines))
        return
    text = file.read_text("utf-8")
    first, newline, others = text.partition("\n") if file.suffix == ".jsonl" else (text, "", "")
    file.write_text(changed(first, path, value) + newline + others, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        (
            "metrics.json",
            "scores.em.n",
            REMOVED,
            "metrics.json: scores.em.n is missing: damaged, or written by",
        ),
        (
            "metrics.json",
            "questions",
            "many",
            "metrics.json: questions='many' is not a valid integer: damaged",
        ),
        ("manifest.json", "dataset.sha256", REMOVED, "manifest.json: dataset.sha256 is missing"),
        ("settings.json", "settings", [["a", "b"]], "settings.json: settings.0.2 is missing"),
    ],
)
def test_damaged_truncated_or_missing_file_of_a_run(
    run: Path, name: str, path: str, value: object, message: str
) -> None:
    file = run / name
    damage(file, path, value)
    line = refusal(FinishedRun.read, run)
    assert message in line
    assert str(file) in line
    assert line.endswith(". Run the same command again to rewrite it.")
    file.unlink()
    missing = f"{name}: no such file, so this is not the folder of a finished run"
    assert missing in refusal(FinishedRun.read, run)


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("predictions.jsonl", "question_id", REMOVED, "question_id is missing"),
        ("predictions.jsonl", "answer", 7, "answer=7 is not a valid string"),
        ("trace.jsonl.zst", "question.answers", 3, "question.answers=3 is not a valid list"),
        ("trace.jsonl.zst", "calls.0.reply", REMOVED, "calls.0.reply is missing"),
        ("verdicts.jsonl", "fate", "forgotten", "not a verdict: fate='forgotten' is not 'judged'"),
    ],
)
def test_damaged_line(run: Path, name: str, path: str, value: object, message: str) -> None:
    readers: dict[str, Callable[[Path], object]] = {
        "predictions.jsonl": run_predictions,
        "trace.jsonl.zst": lambda run: list(read_trace(run)),
        "verdicts.jsonl": read_verdicts,
    }
    damage(run / name, path, value)
    line = refusal(readers[name], run)
    assert f"{name}:1: {message}" in line
    if path.startswith("question."):
        assert message in refusal(lambda: list(read_questions(run)))
    if name == "verdicts.jsonl":
        assert f"Judge the run again: kgqa evaluate {run} judge=" in line


@pytest.mark.parametrize("name", ["metrics.json", "manifest.json", "settings.json"])
@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(lambda text: text[:-20], id="truncated"),
        pytest.param(lambda text: "", id="empty"),
        pytest.param(lambda text: "[1", id="open list"),
        pytest.param(lambda text: "7", id="number"),
    ],
)
def test_truncated_file_of_a_run_is_reported(
    run: Path, name: str, cut: Callable[[str], str]
) -> None:
    file = run / name
    file.write_text(cut(file.read_text("utf-8")), encoding="utf-8")
    assert f"{file}: " in refusal(FinishedRun.read, run)


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        pytest.param(
            "sweep.json",
            "cells.1.overrides",
            REMOVED,
            "sweep.json: cells.1.overrides is missing",
            id="cell without overrides",
        ),
        pytest.param(
            "cells/000.json",
            "status",
            "lost",
            "cells/000.json: status='lost' is not 'running'",
            id="unknown status",
        ),
        pytest.param(
            "cells/000.json",
            "run",
            REMOVED,
            "cells/000.json: run is missing",
            id="status without run",
        ),
    ],
)
def test_damaged_sweep(tmp_path: Path, name: str, path: str, value: object, message: str) -> None:
    sweep = Path(shutil.copytree(KEPT / "sweep", tmp_path / path))
    damage(sweep / name, path, value)
    assert message in refusal(lambda: (Sweep.read(sweep), CellState.read(sweep, 0)))


def test_stale_verdict_and_line_separators_in_answer(run: Path) -> None:
    first, second = run_predictions(run)
    verdicts = Judgements(run)
    assert verdicts.of(first) is not None
    assert verdicts.of(Prediction(second.question_id, "another")) is None
    file = run / "predictions.jsonl"
    damage(file, "answer", "one\u2028two\x85three")
    file.write_text(
        file.read_text("utf-8").replace("\\u2028", "\u2028").replace("\\u0085", "\x85"),
        encoding="utf-8",
    )
    assert run_predictions(run)[0].answer == "one\u2028two\x85three"

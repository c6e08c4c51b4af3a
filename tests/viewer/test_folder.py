"""What the viewer says of runs: rows, their tags, their questions."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kgqa.artefacts.trace import TRACE, read_trace
from kgqa.artefacts.trace_places import placed_questions, question_at
from kgqa.errors import DataError
from kgqa.viewer.folder import Folder
from kgqa.viewer.tags import change_tags, read_tags
from tests.viewer.viewing import Viewing


def test_a_run_has_its_figures_its_settings_and_its_sweep(viewing: Viewing) -> None:
    rows = viewing.get("/api/runs")["rows"]
    (sweep,) = [row for row in rows if row["kind"] == "sweep"]
    assert sweep | {"key": "sweeps/lengths", "cells": 3, "done": 3, "axes": ["method.max_answer_tokens"]} == sweep
    runs = {row["key"]: row for row in rows if row["kind"] == "run"}
    assert len(runs) == 5
    assert {runs[key]["settings"]["method.max_answer_tokens"] for key in sweep["runs"]} == {"1", "2", "3"}
    (right,) = [row for row in runs.values() if row["dataset"] == "musique" and row["method"] == "no_context"]
    value, low, high = right["figures"]["EM"]
    assert value == pytest.approx(100 / 12)
    assert low <= value <= high
    assert right["status"] == "done"
    assert right["questions"] == 12


def test_a_row_is_read_again_only_when_its_files_change(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    viewed = Folder(tmp_path / "outputs")
    before = viewed.rows(viewed.listed())
    run = next(each for each in viewed.listed() if not each.sweep)
    file = run.kept.folder / "metrics.json"
    stat, text = file.stat(), file.read_text(encoding="utf-8")
    file.write_text("{", encoding="utf-8")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert viewed.rows(viewed.listed()) == before
    os.utime(file)
    (damaged,) = [row for row in viewed.rows(viewed.listed()) if row["key"] == run.key]
    assert "not readable" in damaged["trouble"]
    assert "figures" not in damaged
    file.write_text(text, encoding="utf-8")
    assert "trouble" not in viewed.rows([viewed.find(run.key)])[0]


def test_tags_lie_beside_the_runs_and_what_is_no_tag_is_refused(tmp_path: Path) -> None:
    assert change_tags(tmp_path, ["a", "b"], [" good ", "good"], []) == {"a": ("good",), "b": ("good",)}
    assert change_tags(tmp_path, ["a"], ["late"], ["good"]) == {"a": ("late",), "b": ("good",)}
    assert read_tags(tmp_path) == {"a": ("late",), "b": ("good",)}
    for wrong in ("", " ", "x" * 41, "a\x1b[2J", "a\nb"):
        with pytest.raises(DataError, match="a tag has 1 to 40 characters"):
            change_tags(tmp_path, ["a"], [wrong], [])
    with pytest.raises(DataError, match="20 are the most"):
        change_tags(tmp_path, ["a"], [str(number) for number in range(20)], [])
    (tmp_path / ".tags.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(DataError, match="remove it to begin without tags"):
        read_tags(tmp_path)


def test_tags_of_what_is_not_there_are_refused(viewing: Viewing, keys: dict[str, str]) -> None:
    assert "no run or sweep" in viewing.post("/api/tags", {"runs": ["a"], "add": ["b"], "remove": []})["error"]
    assert "tags: add is missing" in viewing.post("/api/tags", {"runs": [keys["trace"]]})["error"]
    assert "a tag has" in viewing.post("/api/tags", {"runs": [keys["trace"]], "add": [""], "remove": []})["error"]


def test_each_question_is_found_by_its_place_in_the_trace(folder: Path, keys: dict[str, str]) -> None:
    run = folder / "outputs" / keys["trace"]
    read = list(read_trace(run))
    placed = list(placed_questions(run))
    assert [question for _, question in placed] == [traced.question for traced in read]
    assert [question_at(run, at) for at, _ in placed] == read


def test_a_trace_cut_short_or_damaged_is_an_error_with_its_place(
    folder: Path, keys: dict[str, str], tmp_path: Path
) -> None:
    whole = (folder / "outputs" / keys["trace"] / TRACE).read_bytes()
    starts = [at for at, _ in placed_questions(folder / "outputs" / keys["trace"])]
    (tmp_path / TRACE).write_bytes(whole[:-5])
    assert [at for at, _ in placed_questions(tmp_path)] == starts[:-1]
    (tmp_path / TRACE).write_bytes(whole[: starts[2]] + b"no frame" + whole[starts[2] :])
    with pytest.raises(DataError, match=f"at byte {starts[2]:,}: damaged trace"):
        list(placed_questions(tmp_path))


def test_rows_of_a_run_come_in_pages_in_the_data_files_order(
    viewing: Viewing, keys: dict[str, str], folder: Path
) -> None:
    key = keys["trace"]
    lines = (folder / "outputs" / key / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    ids = [json.loads(line)["question_id"] for line in lines]
    pages = [viewing.get(f"/api/questions/{key}?from={first}&count=5") for first in (0, 5, 10)]
    assert [row["id"] for page in pages for row in page["rows"]] == ids
    assert {page["count"] for page in pages} == {12}
    for wrong in ("from=-1", "count=0", "count=1001", "from=x"):
        assert "error" in viewing.get(f"/api/questions/{key}?{wrong}")


def test_runs_on_other_questions_stand_beside_as_not_asked(viewing: Viewing, keys: dict[str, str]) -> None:
    (sweep,) = [row for row in viewing.get("/api/runs")["rows"] if row["kind"] == "sweep"]
    rows = viewing.get(f"/api/answers?run={sweep['runs'][0]}&run={keys['trace']}")["rows"]
    assert [[answer is None for answer in row["answers"]] for row in rows] == [[False, True], [False, False]]
    assert "two to 6" in viewing.get(f"/api/answers?run={keys['trace']}")["error"]
    assert "a sweep, not a run" in viewing.get(f"/api/answers?run={keys['trace']}&run=sweeps/lengths")["error"]

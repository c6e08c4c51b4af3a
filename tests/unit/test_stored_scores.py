"""Scores belong to their predictions: a file that its run did not write is one line, in every command."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kgqa.artifacts.evaluation import EVALUATION, Evaluation, read_evaluation
from kgqa.artifacts.manifest import MANIFEST, Manifest
from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS, run_predictions
from kgqa.artifacts.run import SETTINGS, FinishedRun, RunEntry, run_json
from kgqa.artifacts.schema import read_json
from kgqa.artifacts.trace import TRACE, read_trace
from kgqa.cache.maintenance import export_calls
from kgqa.cli.main import main
from kgqa.errors import DataError
from kgqa.extras.viewer.table import read_rows
from kgqa.report.questions import RunQuestions
from kgqa.report.run_report import notices
from kgqa.util.fs import sha256
from tests.e2e.conftest import QUICK

SAVED = Path(__file__).parents[1] / "golden/artefacts/trace"
FILES = (METRICS, PREDICTIONS, TRACE)


def seal(folder: Path) -> None:
    """Write the hashes of the files, as a finished run does."""
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    manifest["files"] = {name: sha256(folder / name) for name in FILES}
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        keys = ("method=no_context", "dataset=demo", "limit=3", *QUICK, "output_dir=run")
        assert main(("run", *keys)) == 0
    return folder / "run"


@pytest.fixture
def root(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("good", "bad"):
        shutil.copytree(finished, tmp_path / "outputs/demo/no_context/scripted" / name)
    return tmp_path / "outputs"


@pytest.fixture
def bad(root: Path) -> Path:
    return root / "demo/no_context/scripted/bad"


def edit_score(folder: Path, value: Any = 77.7) -> None:
    metrics = json.loads((folder / METRICS).read_text("utf-8"))
    metrics["scores"]["em"]["mean"] = value
    (folder / METRICS).write_text(json.dumps(metrics), encoding="utf-8")


def edit_answer(folder: Path, start: str = "not ") -> None:
    lines = (folder / PREDICTIONS).read_text("utf-8").replace('"answer": "', f'"answer": "{start}')
    (folder / PREDICTIONS).write_text(lines, encoding="utf-8")


def edit_setting(folder: Path) -> None:
    text = (folder / SETTINGS).read_text("utf-8").replace('"no_context"', '"trace"')
    (folder / SETTINGS).write_text(text, encoding="utf-8")


def cut_trace(folder: Path) -> None:
    (folder / TRACE).write_bytes((folder / TRACE).read_bytes()[:-1])


EDITS: dict[str, Callable[[Path], None]] = {
    METRICS: edit_score,
    PREDICTIONS: edit_answer,
    TRACE: cut_trace,
    SETTINGS: edit_setting,
}
COMPARE = "compare outputs/demo/no_context/scripted/good"
COMMANDS = ("report", "show", "report --format jsonl --out out", "evaluate", COMPARE)
READERS = {
    METRICS: COMMANDS[:3],
    PREDICTIONS: COMMANDS,
    TRACE: COMMANDS,
    SETTINGS: (COMMANDS[0], COMMANDS[2]),
}


@pytest.mark.parametrize(
    ("name", "command"), [(name, each) for name, commands in READERS.items() for each in commands]
)
def test_changed_file_is_one_line(
    bad: Path, name: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    EDITS[name](bad)
    assert main([*command.split(), str(bad)]) == 2
    assert f"{bad / name}: " in capsys.readouterr().err


def test_edited_predictions_are_not_read(bad: Path) -> None:
    """Also where only the answers are read, such as the labels of dataset.verified."""
    edit_answer(bad)
    with pytest.raises(DataError, match=r"predictions\.jsonl: not the file that its run wrote"):
        run_predictions(bad)


def test_lists_show_no_edited_score(root: Path, bad: Path) -> None:
    edit_score(bad)
    rows = {row.folder.name: row for row in read_rows(root)}
    assert "not the file that its run wrote" in rows["bad"].trouble
    assert rows["good"].figures
    assert run_json(RunEntry(bad, bad.relative_to(root).parts, 0.0, ended=True))["em"] is None


def test_score_of_other_answers_is_rejected(bad: Path) -> None:
    edit_score(bad, 100.0)
    seal(bad)
    with pytest.raises(DataError, match=r"scores.em.mean=100.0, but its answers have"):
        RunQuestions(FinishedRun.read(bad))


@pytest.mark.parametrize("command", ["evaluate", COMPARE, "explain"])
def test_answer_with_half_a_character_is_read(bad: Path, command: str) -> None:
    """A model that is cut within a pair of surrogates writes one."""
    edit_answer(bad, "\\ud83d ")
    seal(bad)
    assert main([*command.split(), str(bad)]) == 0


HUGE = int("9" * 400)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("scores", "em", "mean"), HUGE),
        (("questions",), HUGE),
        (("cost", "method", "seconds"), HUGE),
        (("flags",), {"x": HUGE}),
    ],
    ids=["mean", "questions", "seconds", "flags"],
)
def test_huge_number_stops_only_its_run(
    root: Path, bad: Path, path: tuple[str, ...], value: object
) -> None:
    whole = metrics = json.loads((bad / METRICS).read_text("utf-8"))
    for key in path[:-1]:
        metrics = metrics[key]
    metrics[path[-1]] = value
    (bad / METRICS).write_text(json.dumps(whole), encoding="utf-8")
    seal(bad)
    with pytest.raises(DataError, match=r"metrics\.json: "):
        Metrics.read(bad)
    assert [bool(row.trouble) for row in sorted(read_rows(root), key=lambda row: row.key)] == [
        True,
        False,
    ]


@pytest.mark.parametrize("name", FILES)
def test_pipe_as_a_file_does_not_hang(root: Path, bad: Path, name: str) -> None:
    (bad / name).unlink()
    os.mkfifo(bad / name)
    with pytest.raises(DataError):
        list(RunQuestions(FinishedRun.read(bad)))
    assert {row.folder.name for row in read_rows(root)} == {"good", "bad"}


@pytest.mark.parametrize("name", [MANIFEST, "settings.json", "config.yaml"])
def test_pipe_in_a_run_folder_is_one_line(
    bad: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (bad / name).unlink()
    os.mkfifo(bad / name)
    assert main(["evaluate" if name == "config.yaml" else "report", str(bad)]) == 2
    assert f"{bad / name}: not readable" in capsys.readouterr().err


def test_file_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="longer than 128 MiB"):
        read_json(tmp_path / "big.json")


def test_huge_packed_question_is_one_error_line(tmp_path: Path) -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    with (tmp_path / TRACE).open("wb") as file:
        for _ in range(200):
            file.write(compressor.compress(b" " * (1 << 20)))
        file.write(compressor.flush())
    assert (tmp_path / TRACE).stat().st_size < 100_000
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(DataError, match="a question has more than 128 MiB"):
        list(read_trace(tmp_path))


CALLS: dict[str, dict[str, Any]] = {
    "no prompt": {"prompt": None},
    "messages": {"prompt": {"template": "x", "messages": [5], "prefill": ""}},
    "role": {"role": ["reader"]},
    "error without a message": {"reply": {"error": "Timeout"}},
    "error of another type": {"reply": {"error": [1], "message": {}}},
    "ranking without texts": {"call": "rank", "query": "Who?", "reply": [0.5]},
    "ranking of another length": {"call": "rank", "query": "Who?", "texts": ["a"], "reply": []},
    "query": {"call": "search", "query": {"text": "Who?"}, "reply": []},
}


@pytest.mark.parametrize("change", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("command", ["show {} 2hop__demo_01 --calls", "report {}"])
def test_wrong_value_of_a_traced_call_is_one_line(
    bad: Path, change: dict[str, Any], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its hash fits, as in a folder from someone else."""
    lines = [traced.json() for traced in read_trace(bad)]
    lines[0]["calls"][0] |= change
    content = b"".join(zstandard.compress(json.dumps(line).encode()) for line in lines)
    (bad / TRACE).write_bytes(content)
    seal(bad)
    assert main(command.format(bad).split()) == 2
    assert f"{bad / TRACE}:1: a call to " in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_folder_without_manifest_is_one_line(
    bad: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (bad / MANIFEST).unlink()
    assert main([*command.split(), str(bad)]) == 2
    assert f"{bad / MANIFEST}: no such file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", COMPARE, "explain"])
def test_run_killed_before_its_metrics_is_one_line(
    bad: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kill or a full disk leaves complete answers, maybe with the trace of an earlier run."""
    (bad / METRICS).unlink()
    manifest = Manifest.read(bad).replace(files=None)
    (bad / MANIFEST).write_text(json.dumps(manifest.json()), encoding="utf-8")
    assert main([*command.split(), str(bad)]) == 2
    assert f"{bad}: the run is not finished (no metrics.json)" in capsys.readouterr().err


def test_list_shows_no_score_without_manifest(root: Path, bad: Path) -> None:
    (bad / MANIFEST).unlink()
    rows = {row.folder.name: row for row in read_rows(root)}
    assert MANIFEST in rows["bad"].trouble
    assert run_json(RunEntry(bad, bad.relative_to(root).parts, 0.0, ended=True))["em"] is None


def test_run_without_hashes_is_read(tmp_path: Path) -> None:
    FinishedRun.read(Path(shutil.copytree(SAVED, tmp_path / "older")))


def test_imported_replies_are_named_above_the_scores(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    export_calls(finished.parent / "outputs/.cache", tmp_path / "calls.zst")
    monkeypatch.chdir(tmp_path)
    assert main(["cache", "import", "calls.zst"]) == 0
    keys = ("method=no_context", "dataset=demo", *QUICK)
    assert main(["run", *keys, "limit=3", "output_dir=imported"]) == 0
    run = FinishedRun.read(tmp_path / "imported")
    assert run.metrics.imported == sum(run.metrics.calls.values()) > 0
    assert any("Replies are from an imported file" in notice for notice in notices(run))
    assert FinishedRun.read(finished).metrics.imported is None
    assert (finished / PREDICTIONS).read_bytes() == (
        tmp_path / "imported" / PREDICTIONS
    ).read_bytes()


def test_imported_searches_are_counted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("method=retrieve_read", "dataset=demo", *QUICK, "limit=3", "output_dir=run")
    monkeypatch.chdir(tmp_path)
    assert main(["run", *keys]) == 0
    export_calls(Path("outputs/.cache"), Path("calls.zst"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["cache", "import", "../calls.zst"]) == 0
    assert main(["run", *keys]) == 0
    calls = FinishedRun.read(Path("run")).metrics.calls
    count = calls["Search"] + calls["Generate"]
    assert f"{count} to model calls, searches and token counts" in capsys.readouterr().out


@pytest.mark.parametrize(("failed", "is_same"), [(0, True), (1, False)], ids=["same", "retried"])
def test_evaluation_of_other_answers_is_ignored(
    tmp_path: Path, failed: int, *, is_same: bool
) -> None:
    scores = Metrics.read(SAVED)
    # a failed question can have got an answer since, without another EM
    evaluation = Evaluation(source="run", scores=scores.replace(failed=failed), notes=())
    (tmp_path / EVALUATION).write_text(json.dumps(evaluation.json()), encoding="utf-8")
    assert (read_evaluation(tmp_path, scores) is not None) == is_same

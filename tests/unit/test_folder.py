"""A run's folder belongs to one configuration and one process, and gives up nothing it had."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kgqa.artifacts.predictions import PARTIAL_PREDICTIONS, Prediction
from kgqa.artifacts.trace import PARTIAL_TRACE, read_trace
from kgqa.calls import Choose, Generate, Search
from kgqa.errors import ConfigError, DataError, EngineError, StorageError
from kgqa.runtime.folder import RunFolder, run_name, trace_question
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Answer, Completion, Message, Passage, Prompt, Question, Usage
from tests.engines_for_tests import ask

QUESTION = Question("q1", "Who?", ("Ann",), (Passage.of("T", "Ann did."),))
ANSWER = Answer(
    "Ann", (QUESTION.passages[0].id,), context_tokens=3, flags={"odd": 1}, figures={"hops": 2}, notes={"chains": []}
)
PREDICTION = Prediction.of(QUESTION, ANSWER)


def test_other_configuration_is_refused(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", {"method": {"beam": 5}, "seed": 0}).close()
    with pytest.raises(ConfigError, match=r"differs in method\.beam \(5 → 3\), seed \(0 → 1\)"):
        RunFolder(tmp_path / "run", {"method": {"beam": 3}, "seed": 1})


def test_same_configuration_continues(tmp_path: Path) -> None:
    for _ in range(2):
        RunFolder(tmp_path / "run", {"seed": 0}).close()


def test_second_process_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    with pytest.raises(ConfigError, match="another kgqa process"):
        RunFolder(tmp_path / "run", {})
    folder.close()


def test_unreadable_identity(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(DataError, match=r"identity\.json: not readable"):
        RunFolder(tmp_path, {})


def test_predictions_keep_the_order(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, {})
    failed = Question("q2", "When?", ("1900",))
    lost = Prediction.of(failed, ValueError("no"))
    folder.record(failed, lost, [])
    folder.record(QUESTION, PREDICTION, [])
    folder.finish([PREDICTION, lost])
    folder.close()
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [line["question_id"] for line in lines] == ["q1", "q2"]
    assert lines[1] == {"question_id": "q2", "answer": None, "error": "ValueError: no", "evidence": []}
    assert not (tmp_path / "predictions.partial.jsonl").exists()


def test_interrupted_rerun_keeps_earlier_files(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, {})
    folder.record(QUESTION, PREDICTION, [])
    folder.finish([PREDICTION])
    folder.close()
    RunFolder(tmp_path, {}).close()  # opened again and stopped before anything was answered
    assert (tmp_path / "predictions.jsonl").read_text().count("\n") == 1
    assert [traced.question.id for traced in read_trace(tmp_path)] == ["q1"]


def test_trace_survives_a_cut(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, {})
    record = CallRecord((0,), ask("say"), Completion("said"), cached=True)
    for _ in range(3):
        folder.record(QUESTION, PREDICTION, [record])
    folder.finish([])
    folder.close()
    traced = list(read_trace(tmp_path))
    assert len(traced) == 3
    assert traced[0].calls[0].text == "said"
    assert traced[0].calls[0].cached is True
    trace = tmp_path / "trace.jsonl.zst"
    trace.write_bytes(trace.read_bytes()[:-10])
    assert len(list(read_trace(tmp_path))) == 2


def test_folder_without_trace(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not the folder of a run"):
        list(read_trace(tmp_path))


def test_run_names() -> None:
    assert run_name({"a": 1, "b": 2}) == run_name({"b": 2, "a": 1})
    assert run_name({"a": 1, "b": 2}) != run_name({"a": 1, "b": 3})
    assert len(run_name({})) == 8


def test_disk_limit_is_one_line(tmp_path: Path) -> None:
    """The limit on file size is the kernel's own refusal, as a full disk is."""
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from kgqa.errors import StorageError
        from kgqa.runtime.folder import RunFolder
        folder = RunFolder(Path(sys.argv[1]), {})
        try:
            folder.write("metrics.json", "x" * 100_000)
        except StorageError as error:
            print(error)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert "metrics.json: File too large; make room" in done.stdout
    assert not (tmp_path / "run" / "metrics.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("file", [PARTIAL_TRACE, PARTIAL_PREDICTIONS])
def test_full_disk_is_an_error_at_close_too(tmp_path: Path, file: str) -> None:
    (tmp_path / file).symlink_to("/dev/full")
    folder = RunFolder(tmp_path, {})
    with pytest.raises(StorageError, match="No space left on device; make room or give out=DIR"):
        folder.record(QUESTION, PREDICTION, [])
    with pytest.raises(StorageError, match="No space left on device; make room or give out=DIR"):
        folder.close()
    (tmp_path / file).unlink()
    RunFolder(tmp_path, {}).close()  # nobody holds its lock


@pytest.mark.parametrize("half", ["", "\ud800"], ids=["whole", "half"])
def test_a_line_of_the_trace_says_what_json_makes_of_the_question(half: str) -> None:
    reply = Completion(f"half {half}", usage=Usage(3, 0, 1, 0.25))
    shown = [(Message("system", f'é "q" {half}'), Message("user", "long\n" * 99)), (Message("user", "🌲"),)]
    records = [
        CallRecord((0,), Generate(Prompt("few_shot/answer", shown[0], "so"), 5, ("\n",)), reply, cached=False),
        CallRecord((1,), Choose(Prompt("trace/select", shown[1]), ("A",)), EngineError("no"), cached=True),
        CallRecord((2,), Search("q", 1), QUESTION.passages, cached=False),
    ]
    traced = trace_question(QUESTION, PREDICTION, records)
    line = traced.line()
    assert json.loads(line) == json.loads(json.dumps(traced.json()))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1

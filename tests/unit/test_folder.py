"""Folders of runs and other stages: one configuration and process each, no finished work lost, found again by name."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.metrics import METRICS
from kgqa.artifacts.predictions import PARTIAL_PREDICTIONS, PREDICTIONS, Prediction, question_ids
from kgqa.artifacts.run import (
    IDENTITY,
    FinishedRun,
    choose_named,
    find_run,
    list_runs,
    list_sweeps,
)
from kgqa.artifacts.trace import read_trace
from kgqa.cli.main import main
from kgqa.errors import ConfigError, DataError, StorageError
from kgqa.runtime.folder import RunFolder
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Answer, Completion, Passage, Question
from kgqa.util.fs import jsonl_text
from tests.engines_for_tests import ask
from tests.unit.files import refusal
from tests.unit.killing import contents, killed_at

pytestmark = pytest.mark.usefixtures("own_folder")
QUESTION = Question("q1", "Who?", ("Ann",), (Passage.of("T", "Ann did."),))
ANSWER = Answer(
    "Ann",
    (QUESTION.passages[0].id,),
    context_tokens=3,
    flags={"odd": 1},
    figures={"hops": 2},
    notes={"chains": []},
)
PREDICTION = Prediction.of(QUESTION, ANSWER)
GOLDEN = FinishedRun.read(Path(__file__).parents[1] / "golden" / "artefacts" / "trace")


def test_folder_of_another_configuration_is_rejected(tmp_path: Path) -> None:
    for _ in range(2):
        RunFolder(tmp_path / "run", {"method": {"beam": 5}, "seed": 0}).close()
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"differs in method\.beam \(5 → 3\), seed \(0 → 1\)"):
        RunFolder(tmp_path / "run", {"method": {"beam": 3}, "seed": 1})
    assert contents(tmp_path) == before
    # as a full disk leaves it
    (tmp_path / "run" / IDENTITY).write_bytes(b"")
    RunFolder(tmp_path / "run", {"seed": 1}).close()
    (tmp_path / "run" / IDENTITY).write_text("{")
    with pytest.raises(DataError, match=r"identity\.json: not readable"):
        RunFolder(tmp_path / "run", {})


def test_predictions_keep_the_order(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, {})
    with pytest.raises(ConfigError, match="another kgqa process"):
        RunFolder(tmp_path, {})
    failed = Question("q2", "When?", ("1900",))
    failure = Prediction.of(failed, ValueError("no"))
    folder.record(failed, failure, [])
    folder.record(QUESTION, PREDICTION, [])
    folder.finish([PREDICTION.json(), failure.json()], {}, GOLDEN)
    folder.close()
    lines = [json.loads(line) for line in (tmp_path / PREDICTIONS).read_text().splitlines()]
    assert [line["question_id"] for line in lines] == ["q1", "q2"]
    assert lines[1] == {
        "question_id": "q2",
        "answer": None,
        "error": "ValueError: no",
        "evidence": [],
    }
    assert not (tmp_path / PARTIAL_PREDICTIONS).exists()
    # opened again and stopped before anything was answered
    RunFolder(tmp_path, {}).close()
    assert question_ids(tmp_path) == ["q1", "q2"]


def run_questions(folder: Path, count: int) -> None:
    """Answer the first questions, the last one first, as `execute` does."""
    questions = [Question(f"q{number}", "Who?", ("Ann",)) for number in range(count)]
    predictions = [
        Prediction.of(question, Answer(f"answer to {question.id}")) for question in questions
    ]
    opened = RunFolder(folder, {"seed": 0})
    try:
        for question, prediction in reversed(list(zip(questions, predictions, strict=True))):
            opened.record(question, prediction, [])
        run = replace(GOLDEN, metrics=GOLDEN.metrics.replace(questions=count))
        opened.finish((prediction.json() for prediction in predictions), {}, run)
    finally:
        # the system releases a killed process's lock
        opened.close()


def check_finished(folder: Path, counts: Sequence[int]) -> None:
    """Check that predictions and metrics are of one run with one of these numbers of questions."""
    ids = question_ids(folder)
    assert len(ids) in counts
    predictions = [
        Prediction.of(Question(id_, "Who?", ()), Answer(f"answer to {id_}")) for id_ in sorted(ids)
    ]
    assert (folder / PREDICTIONS).read_text() == jsonl_text(each.json() for each in predictions)
    if (folder / METRICS).is_file():
        assert json.loads((folder / METRICS).read_text())["questions"] == len(ids)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_run_survives_a_kill_at_any_write(tmp_path: Path, after: bool) -> None:
    for write in range(24):
        fresh, enlarged = tmp_path / f"fresh{write}", tmp_path / f"enlarged{write}"
        run_questions(enlarged, 2)
        for folder in (fresh, enlarged):
            with killed_at(write, after=after):
                run_questions(folder, 4)
        check_finished(enlarged, (2, 4))
        for folder in (fresh, enlarged):
            run_questions(folder, 4)
            check_finished(folder, (4,))
            assert sorted(traced.question.id for traced in read_trace(folder)) == [
                "q0",
                "q1",
                "q2",
                "q3",
            ]
            assert not list(folder.glob("*.partial.*"))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(18))
def test_killed_rerun_never_mixes_settings(tmp_path: Path, write: int, *, after: bool) -> None:
    def write_run(price: int) -> None:
        settings = (("engine.price", str(price), ""),)
        metrics = GOLDEN.metrics.replace(seconds=float(price))
        opened = RunFolder(tmp_path, {})
        try:
            opened.finish([], {}, replace(GOLDEN, settings=settings, metrics=metrics))
        finally:
            opened.close()

    write_run(1)
    with killed_at(write, after=after):
        write_run(2)
    with suppress(DataError):
        run = FinishedRun.read(tmp_path)
        assert run.settings[0][1] == f"{run.metrics.seconds:g}"


def test_trace_survives_a_cut(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not the folder of a run"):
        list(read_trace(tmp_path))
    folder = RunFolder(tmp_path, {})
    for _ in range(3):
        folder.record(
            QUESTION, PREDICTION, [CallRecord((0,), ask("say"), Completion("said"), cached=True)]
        )
    folder.finish([], {}, GOLDEN)
    folder.close()
    traced = list(read_trace(tmp_path))
    assert (len(traced), traced[0].calls[0].text, traced[0].calls[0].cached) == (3, "said", True)
    # without hashes, as in a folder whose writing was killed
    (tmp_path / MANIFEST).write_text(json.dumps(GOLDEN.manifest.replace(files=None).json()))
    trace = tmp_path / "trace.jsonl.zst"
    trace.write_bytes(trace.read_bytes()[:-10])
    assert len(list(read_trace(tmp_path))) == 2


def test_disk_limit_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a module that is first imported under the limit would be stored cut
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder = RunFolder(tmp_path / "run", {})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        with pytest.raises(StorageError, match=r"metrics\.json: File too large\. Free disk space"):
            folder.write("metrics.json", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        folder.close()
    assert not (tmp_path / "run" / "metrics.json").exists()


FINISHED = GOLDEN.folder / "metrics.json"


def run(name: str, seconds: int, *files: str) -> Path:
    """A run of that name, written at that time; what it does not say of itself is none of our business."""
    folder = Path("outputs") / name
    folder.mkdir(parents=True)
    for file in files or (IDENTITY, MANIFEST, METRICS):
        text = FINISHED.read_text(encoding="utf-8") if file == "metrics.json" else "{}"
        (folder / file).write_text(text, encoding="utf-8")
        os.utime(folder / file, (seconds, seconds))
    return folder


def test_run_is_named_by_path_or_prefix() -> None:
    first = run("demo/trace/small/beeb5e9d", 1)
    run("demo/golden/small/be000000", 2)
    names = [
        str(first),
        f"{first}/",
        "beeb5e9d",
        "bee",
        "trace/small/b",
        "trace",
        "demo/tr",
        "outputs/demo/trace",
    ]
    assert [name for name in names if find_run(name) != first] == []


def test_prefix_of_several_runs_is_ambiguous() -> None:
    for number in range(7):
        run(f"demo/trace/small/ce00000{number}", number)
    names = "demo/trace/small/ce000006, demo/trace/small/ce000005"
    assert refusal(find_run, "ce").startswith(f"ce: matches several runs: {names}")
    assert refusal(find_run, "ce").endswith(
        "and 2 more. Add more of the name. kgqa runs shows how they differ."
    )
    run("demo/trace/small/ce", 9)  # by name=ce
    assert find_run("ce").name == "ce"


@pytest.mark.parametrize(
    ("name", "close"),
    [("basee", "base"), ("demo/trce", "demo/trace"), ("beems", "beams")],
    ids=["run_name", "path", "sweep"],
)
def test_unknown_run_has_a_close_name(name: str, close: str) -> None:
    run("demo/trace/small/base", 1)
    run("sweeps/beams", 2, "sweep.json", "report.html")
    assert refusal(find_run, name) == f"{name}: no finished run matches. Did you mean {close}?"


def test_last_is_the_run_that_ended_last() -> None:
    assert "no finished run in outputs/" in refusal(find_run, "last")
    older = run("demo/trace/small/a", 1)
    newer = run("demo/trace/small/b", 2)
    unfinished = run("demo/trace/small/c", 3, "identity.json")
    assert find_run("last") == newer
    os.utime(older / "metrics.json", (5, 5))
    assert find_run("last") == older
    assert [each.folder for each in list_runs()] == [older, unfinished, newer]
    assert [each.ended for each in list_runs()] == [True, False, True]


def test_sweeps_and_other_folders() -> None:
    run("demo/trace/small/a", 1)
    sweep = run("sweeps/beams", 2, "sweep.json", "report.html")
    run("index/bm25/0f0f0f", 1, "manifest.json")
    run(".cache/x/y/z", 1)
    assert (
        find_run("beams", sweeps=True)
        == find_run("sweeps/b", sweeps=True)
        == find_run("last", sweeps=True)
        == sweep
    )
    assert "beams is a sweep without finished runs" in refusal(find_run, "beams")
    assert [each.name for each in list_sweeps()] == ["sweeps/beams"]
    assert [each.name for each in list_runs()] == ["demo/trace/small/a"]
    assert "List runs: kgqa runs" in refusal(find_run, "0f")


def test_runs_are_filtered_and_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    run("demo/trace/small/a", 86_400)
    run("demo/golden/small/b", 10 * 86_400)
    run("musique/trace/large/c", 20 * 86_400, "identity.json")

    def listed(*words: str) -> list[str]:
        assert main(["runs", *words]) == 0
        return capsys.readouterr().out.splitlines()

    everything = listed()
    names = [line.split()[0] for line in everything[1:]]
    assert names == ["musique/trace/large/c", "demo/golden/small/b", "demo/trace/small/a"]
    assert "not finished" in everything[1]
    assert (len(listed("method=trace", "dataset=demo")), len(listed("tr"))) == (2, 3)
    assert listed("--limit", "1")[-1] == "1 of 3. All: --limit 3"
    assert "no such runs" in listed("model=huge")[0]
    read = json.loads("".join(listed("--json", "model=small")))
    assert [each["folder"] for each in read] == [
        "outputs/demo/golden/small/b",
        "outputs/demo/trace/small/a",
    ]
    assert read[0]["questions"] == json.loads(FINISHED.read_text(encoding="utf-8"))["questions"]
    assert json.loads("".join(listed("--json", "musique")))[0]["em"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param("--limit 0", "at least 1", id="limit"),
        pytest.param("methods=x", "Did you mean method", id="unknown filter"),
    ],
)
def test_invalid_filters_are_rejected(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert main(["runs", *words.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "show",
        "report",
        "report --format trec --out o",
        "evaluate",
    ],
)
def test_ambiguous_name_is_rejected_by_every_command(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run("demo/trace/small/ab", 1)
    run("demo/trace/small/ac", 2)
    assert main([*command.split(), "a"]) == 2
    message = (
        "kgqa: a: matches several runs: demo/trace/small/ac, demo/trace/small/ab. Add more of the name. "
        "kgqa runs shows how they differ.\n"
        f"kgqa: the newest one: kgqa {command} demo/trace/small/ac\n"
    )
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        pytest.param("compare last a", "compare last demo/trace/small/ab", id="last"),
        pytest.param(
            "explain trace/ baseline=kgp/",
            "explain demo/trace/small/ac baseline=demo/kgp/small/cb",
            id="baseline",
        ),
        pytest.param(
            "compare trace/ kgp/", "compare demo/trace/small/ac demo/kgp/small/cb", id="dataset"
        ),
    ],
)
def test_suggested_command_names_each_run_once(
    capsys: pytest.CaptureFixture[str], words: str, suggested: str
) -> None:
    for number, name in enumerate(
        ("kgp/small/ca", "kgp/small/cb", "trace/small/ab", "trace/small/ac")
    ):
        run(f"demo/{name}", number)
    # the newest, but not with kgp
    run("nq/trace/small/x", -1)
    assert main(words.split()) == 2
    assert capsys.readouterr().err.endswith(f": kgqa {suggested}\n")


@pytest.mark.parametrize(
    ("sweeps", "hint"),
    [
        pytest.param(
            [],
            "kgqa: the newest 2: kgqa compare demo/trace/small/ac demo/trace/small/ab\n",
            id="two runs",
        ),
        pytest.param(["all"], "kgqa: the newest one: kgqa compare sweeps/all\n", id="a sweep"),
    ],
)
def test_comparison_of_one_ambiguous_name(
    capsys: pytest.CaptureFixture[str], sweeps: Sequence[str], hint: str
) -> None:
    for number, name in enumerate(("aa", "ab", "ac")):
        run(f"demo/trace/small/{name}", number)
    for name in sweeps:
        run(f"sweeps/{name}", 0, "sweep.json", "report.html")
    assert main(["compare", "a"]) == 2
    assert capsys.readouterr().err.endswith(hint)


@pytest.mark.parametrize(
    ("files", "remain"), [([], False), (["thesis.txt"], True)], ids=["empty", "used"]
)
def test_failed_run_keeps_the_files_of_its_user(
    tmp_path: Path, files: Sequence[str], *, remain: bool
) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    for name in files:
        (place / name).write_text("mine")
    folder = RunFolder(place, {})
    folder.is_worthless = True
    folder.close()
    assert place.exists() is remain
    assert [name for name in files if not (place / name).exists()] == []


def run_demo(folder: str) -> int:
    words = ("method=golden", "dataset=demo", "limit=1", "engine=scripted", f"output_dir={folder}")
    return main(["run", *words])


@pytest.mark.parametrize(
    "name",
    ["config.yaml", METRICS, PREDICTIONS, "settings.json", "report.md", "report.html", MANIFEST],
)
def test_run_never_replaces_files_of_its_user(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    Path("mine").mkdir()
    Path("mine", name).write_text("mine")
    before = contents(Path("mine"))
    assert run_demo("mine") == 2
    assert capsys.readouterr().err.endswith(
        f"output_dir=mine: the folder has files that kgqa did not write ({name}). Name a new folder\n"
    )
    assert contents(Path("mine")) == before


@pytest.mark.parametrize("folder", ["mine", "mine/a/b"])
def test_output_dir_is_no_file(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    Path("mine").write_text("mine")
    assert run_demo(folder) == 2
    message = f"output_dir={folder}: mine is a file. Name a folder\n"
    assert capsys.readouterr().err.endswith(message)
    assert Path("mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("evaluate demo/golden", "evaluation.json"),
        ("evaluate demo/golden", "evaluation.md"),
        ("collect mdr dataset=demo limit=1", "examples.jsonl"),
        ("collect mdr dataset=demo limit=1", "report.md"),
    ],
)
def test_other_commands_keep_files_of_their_user(
    capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    assert main(["run", "method=golden", "dataset=demo", "limit=1", "engine=scripted"]) == 0
    Path("mine").mkdir()
    Path("mine", name).write_text("{}")
    before = contents(Path("mine"))
    assert main([*command.split(), "output_dir=mine"]) == 2
    message = f"output_dir=mine: the folder has files that kgqa did not write ({name})"
    assert message in capsys.readouterr().err
    assert contents(Path("mine")) == before
    # a folder that the command wrote
    assert main([*command.split(), "output_dir=own"]) == 0
    assert main([*command.split(), "output_dir=own"]) == 0


@pytest.mark.parametrize("write", range(2))
def test_killed_evaluation_can_be_repeated(write: int) -> None:
    run = ["method=golden", "dataset=demo", "limit=1", "engine=scripted"]
    assert main(["run", *run]) == 0
    again = ["evaluate", "demo/golden", "output_dir=own"]
    with killed_at(write, after=True):
        main(again)
    assert contents(Path("own"))
    assert main(again) == 0


def test_run_can_write_next_to_other_files() -> None:
    Path("thesis.txt").write_text("mine")
    assert run_demo(".") == 0
    assert Path("thesis.txt").read_text() == "mine"
    # as a kill or a user leaves it
    Path(METRICS).unlink()
    Path("config.yaml").write_text("damaged")
    assert run_demo(".") == 0
    assert Path(METRICS).is_file()


@pytest.mark.parametrize(
    ("engine", "named"),
    [("vllm", ["trace", "demo", "small", "vllm"]), ("scripted", ["trace", "demo", "scripted"])],
)
def test_scripted_run_is_named_after_no_model(engine: str, named: list[str]) -> None:
    choices = {"engine": engine, "model": "small", "dataset": "demo", "method": "trace", "kg": "x"}
    assert list(choose_named(choices).values()) == named

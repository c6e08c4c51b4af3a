"""The whole way from a command line to a folder, with an engine that needs no weights; and what takes its place."""

from __future__ import annotations

import json
import os
import random
import re
import stat
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.examples import TrainedWith, hash_questions, id_hash, text_hash
from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import MADE_UP, FinishedRun
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from kgqa.experiment.check import count_leaks
from kgqa.experiment.selection import QuestionSelection
from kgqa.report.questions import RunQuestions
from kgqa.reproduce.question_values import pool_values
from kgqa.scoring.published_delta import PublishedMetric
from kgqa.types import Question
from tests.adapters_for_tests import write_lora
from tests.e2e.conftest import (
    DEMO,
    QUICK,
    TWO,
    Kgqa,
    before_each_call,
    lines_of,
    refused,
    write_file,
    write_lines,
    write_rules,
)
from tests.e2e.processes import files_of, kill_after, lasting, replies_kept


@pytest.mark.parametrize("method", ["trace", "golden"])
def test_a_run_leaves_everything_that_explains_it(kgqa: Kgqa, method: str) -> None:
    ran = kgqa("run", f"method={method}", "limit=3", *QUICK)
    assert ran.folder.parts[:3] == ("outputs", "demo", method)
    files = {
        "config.yaml",
        "manifest.json",
        "predictions.jsonl",
        "trace.jsonl.zst",
        "metrics.json",
        "report.md",
    }
    assert files <= {file.name for file in ran.folder.iterdir()}
    metrics = ran.json("metrics.json")
    assert (metrics["questions"], metrics["failed"]) == (3, 0)
    assert method != "golden" or metrics["scores"]["support_recall"]["mean"] == 100
    scores = [metrics["scores"][name] for name in ("em", "f1", "support_recall")]
    assert [score for score in scores if not 0 <= score["low"] <= score["mean"] <= 100] == []
    lines = lines_of(ran.folder / "predictions.jsonl")
    assert [line["question_id"] for line in lines] == [
        "2hop__demo_01",
        "2hop__demo_02",
        "3hop1__demo_03",
    ]
    assert list(lines[0])[:8] == [
        "question_id",
        "question",
        "gold",
        "answer",
        "error",
        "em",
        "f1",
        "evidence",
    ]
    assert sum(line["f1"] for line in lines) / 3 == pytest.approx(
        metrics["scores"]["f1"]["mean"], abs=1e-3
    )
    second = kgqa(
        "run", f"method={method}", "limit=3", "run_name=second", "max_parallel_questions=1", *QUICK
    )
    assert second.folder != ran.folder
    assert second.json("metrics.json")["cost"]["paid"]["calls"] == 0
    assert second.json("metrics.json")["cost"]["method"] == metrics["cost"]["method"]
    assert second.text("predictions.jsonl") == ran.text("predictions.jsonl")


def test_dry_run_estimates_at_least_the_calls_of_a_run(kgqa: Kgqa) -> None:
    planned = kgqa("run", "method=trace", "limit=3", "dry_run=true", *QUICK).out
    assert not Path("outputs/demo").exists()
    total = int(planned.split(" model calls")[0].splitlines()[-1].replace(",", ""))
    cost = kgqa("run", "method=trace", "limit=3", *QUICK).json("metrics.json")["cost"]
    asked = cost["method"]["calls"] + cost["extraction_paid"]["calls"]
    assert asked <= total
    after = kgqa("run", "method=trace", "limit=3", "dry_run=true", *QUICK).out
    assert "0 of them new" in after


def test_estimate_ignores_runs_of_other_settings(kgqa: Kgqa) -> None:
    plan = ("run", "method=trace", "limit=9", "dry_run=true", *QUICK)
    for other in ("method.branch=3", "kg.max_tokens=64"):
        assert kgqa("run", "method=trace", other, "limit=1", *QUICK).code == 0
    assert "no run of trace with these settings is finished here" in kgqa(*plan).out
    assert kgqa("run", "method=trace", "limit=1", *QUICK).code == 0
    known = "as many per question as in 1 finished run of trace with these settings here"
    assert known in kgqa(*plan).out


def test_triples_are_built_ahead_and_read_offline(kgqa: Kgqa) -> None:
    assert kgqa("kg", "build", "limit=2", *QUICK).code == 0
    ran = kgqa("run", "method=trace", "limit=2", "kg.require_existing=true", *QUICK)
    assert ran.json("metrics.json")["cost"]["extraction_paid"]["calls"] == 0
    stats = kgqa("kg", "stats", "limit=2", *QUICK)
    assert "triples per question" in stats.out
    refused(
        kgqa("run", "method=trace", "limit=9", "kg.require_existing=true", *QUICK),
        "kgqa kg build method=trace limit=9",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", [("method=trace", "limit=3"), ("method=verify",)], ids=["trace", "verify"]
)
def test_killed_run_resumes_to_the_same_bytes(
    keys: tuple[str, ...], kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "dataset=demo", *keys, "engine.batch_size=4", *QUICK]
    slow = [*command, "engine.delay=0.05"]
    generator = random.Random(7)
    replies = 0
    for _ in range(2):
        replies = kill_after(
            replies + generator.randint(1, 25), [*slow, "run_name=killed"], tmp_path
        )
    resumed = kgqa(*slow, "run_name=killed")
    cost = resumed.json("metrics.json")["cost"]
    assert (
        cost["paid"]["calls"] + cost["extraction_paid"]["calls"] <= replies_kept(tmp_path) - replies
    )
    killed = lasting(resumed.folder)
    (tmp_path / "elsewhere").mkdir()
    # an uninterrupted run that shares no cache
    monkeypatch.chdir("elsewhere")
    assert lasting(kgqa(*command, "run_name=killed").folder) == killed


def test_garbage_and_empty_replies_are_counted(kgqa: Kgqa) -> None:
    rules = write_rules([("Title:", "<<;;>\x00 ; <a;b>"), (".", "")])
    metrics = kgqa("run", "method=trace", "limit=2", rules, *QUICK).json("metrics.json")
    assert (metrics["failed"], metrics["answerless"]) == (0, 2)
    assert metrics["flags"]["empty_answer"] == 2
    assert metrics["flags"]["no_chain"] == 2
    assert metrics["graph"]["malformed"] > 0
    assert metrics["scores"]["em"]["mean"] == 0


FIRST, SECOND = "2hop__demo_01", "2hop__demo_02"
ASKED = ("run", "method=no_context", "dataset=demo", "roles.reader=+evaluator", *QUICK)


def artefact(
    ids: Sequence[str] = (), texts: Sequence[str] = (), name: str = "outputs/trained/evaluator/abc"
) -> Path:
    """As training leaves it: an adapter, and the hashes of the questions in its manifest."""
    folder = Path(name)
    write_lora(folder / "adapter")
    hashes = {
        "question_hashes": [id_hash("demo", id_) for id_ in ids],
        "text_hashes": [*map(text_hash, texts)],
    }
    (folder / "manifest.json").write_text(json.dumps({"examples": hashes}), encoding="utf-8")
    return folder


def test_trained_questions_stop_a_run_unless_allowed(kgqa: Kgqa) -> None:
    folder = artefact([FIRST])
    trained = (
        "roles.reader=+evaluator was trained on 1. Scores on training questions are meaningless"
    )
    refused(kgqa(*ASKED, "limit=3"), f"of 3 questions {trained}")
    assert kgqa(*ASKED, "limit=3", "dry_run=true").code == 2
    assert kgqa(*ASKED, f"ids=[{SECOND},3hop1__demo_03]").code == 0
    ran = kgqa(*ASKED, "limit=3", "allow_trained_questions=true")
    assert ran.json("metrics.json")["trained_questions"] == {"roles.reader=+evaluator": 1}
    assert "TRAINED ON" in ran.out
    assert "**roles.reader=+evaluator was trained on 1 of 3 questions.**" in ran.text("report.md")
    assert kgqa(*ASKED, "limit=3").code == 2
    assert kgqa("evaluate", str(ran.folder)).code == 2
    assert kgqa("evaluate", str(ran.folder), "allow_trained_questions=true").code == 0
    (folder / "encoder").mkdir()
    searching = ("run", "method=retrieve_only", "dataset=demo", "limit=2", "retriever=minilm")
    encoding = kgqa(*searching, f"retriever.encoder.model={folder}/encoder")
    assert "retriever.encoder.model was trained on 1" in encoding.err
    judged = kgqa(*ASKED[:3], "limit=2", "judge=three_way", "roles.judge=+evaluator", *QUICK)
    assert "roles.judge=+evaluator was trained on 1" in judged.err


def trained_on(*questions: tuple[str, str, str]) -> TrainedWith:
    hashes = hash_questions(questions)
    return TrainedWith(question_hashes=tuple(hashes), text_hashes=tuple(hashes.values()))


def test_trained_questions_match_by_id_or_text() -> None:
    asked = [Question(str(n), f"What is {n}?", ("it",)) for n in range(4)]
    files = trained_on(("mine", "0", asked[0].text), ("other", "1", asked[1].text))
    moved = [Question("9", "what  is 2?", ("it",))]
    assert count_leaks({"key": files}, "mine", asked) == {"key": 2}
    assert count_leaks({"key": files}, "mine", asked[2:]) == {}
    assert count_leaks({"key": trained_on(("mine", "2", asked[2].text))}, "mine", moved) == {
        "key": 1
    }
    assert count_leaks({"key": files.replace(text_hashes=())}, "theirs", asked) == {}


GOLDEN = ("run", "method=golden", "dataset=demo", "engine=scripted")


def test_fewer_questions_never_replace_more(kgqa: Kgqa) -> None:
    first, whole = kgqa(*GOLDEN, "limit=2"), kgqa(*GOLDEN, "limit=5")
    assert (first.folder, len(question_ids(whole.folder))) == (whole.folder, 5)
    before = (whole.folder / "predictions.jsonl").read_bytes()
    few, one = kgqa(*GOLDEN, "limit=2"), kgqa(*GOLDEN, "ids=[2hop__demo_01]")
    assert (whole.folder / "predictions.jsonl").read_bytes() == before
    assert [len(question_ids(ran.folder)) for ran in (few, one)] == [2, 1]
    assert few.folder.parent == one.folder.parent == whole.folder.parent
    assert few.folder.name.startswith(f"{whole.folder.name}-2-")
    assert kgqa(*GOLDEN, "limit=2").folder == few.folder


@pytest.mark.parametrize("place", ["output_dir=here", "run_name=here"])
def test_folder_of_the_user_is_not_exchanged(kgqa: Kgqa, place: str) -> None:
    whole = kgqa(*GOLDEN, "limit=3", place)
    refused(
        kgqa(*GOLDEN, "limit=2", place), "3 questions are answered in this folder. A run of 2 would"
    )
    assert len(question_ids(whole.folder)) == 3


def test_scripted_run_is_marked_in_name_and_reports(kgqa: Kgqa) -> None:
    first = kgqa(*GOLDEN, "limit=2", "model=llama3_8b_instruct")
    assert first.folder.parts[:-1] == ("outputs", "demo", "golden", "scripted")
    assert MADE_UP in first.out
    second = kgqa(*GOLDEN, "limit=2", "seed=1")
    assert kgqa("compare", str(first.folder), str(second.folder)).out.count(MADE_UP) == 1
    plain = kgqa("run", "method=retrieve_only", "limit=2", "engine=scripted")
    assert plain.folder.parts[-2] == "bm25"
    assert MADE_UP not in plain.out + plain.text("report.md")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("method.beam=five", "method.beam"),
        ("model=qwen3_8b engine=openai", "OPENAI_API_KEY"),
        (
            "engine=scripted method=golden judge=three_way judge.model=gpt_4o_mini@openai",
            "OPENAI_API_KEY",
        ),
        ("model.path=folder model.sha256=null", "engine=llamacpp reads .gguf files only"),
        pytest.param(
            "engine=transformers model.path=folder model.sha256=null",
            "folder: no tokenizer.json. Save",
            # without its packages, these are named first
            marks=pytest.mark.skipif(find_spec("torch") is None, reason="needs kgqa[transformers]"),
        ),
        ("engine=scripted method=kgp graph=tagme", "TAGME_TOKEN"),
    ],
)
def test_failed_start_leaves_nothing(words: str, message: str, kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}", encoding="utf-8")
    ran = kgqa("run", "dataset=demo", "limit=1", *words.split())
    assert ran.code == 2
    assert message in ran.err
    assert "continue" not in ran.err
    assert [
        path for path in (tmp_path / "outputs").glob("*") if not path.name.startswith(".")
    ] == []


PRICES = "model.prices={input: 1.0, cached: 0.5, output: 2.0}"
COMMAND = ("run", "method=all_documents", *QUICK)


def test_a_finished_run_is_shown_and_stays_as_it_is(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    # its verdicts are kept by a command without judge
    first = kgqa(*COMMAND, "judge=containment")
    before = files_of(first.folder)
    Path("outputs/.cache/calls.sqlite").unlink()
    monkeypatch.setattr(QuestionSelection, "_sample", lambda *_: pytest.fail("read the questions"))
    again = kgqa(*COMMAND, "max_parallel_questions=3")
    assert (again.code, again.folder) == (0, first.folder)
    assert "already complete" in again.out
    assert files_of(first.folder) == before
    scores = [
        [line for line in ran.out.splitlines() if line.startswith(("EM", "F1"))]
        for ran in (first, again)
    ]
    assert scores[0] == scores[1]


def test_verdicts_stay_if_a_setting_without_effect_changes(kgqa: Kgqa) -> None:
    first = kgqa(*COMMAND, "limit=2", "judge=containment")
    judged = first.json("metrics.json")["judge"]
    again = kgqa("run", "method=all_documents", "engine=scripted", "limit=2")
    assert (again.folder, "already complete" in again.out) == (first.folder, False)
    assert again.json("metrics.json")["judge"] == judged
    assert "judge accuracy" in again.text("report.md")


BROKEN_JUDGE = """
from dataclasses import dataclass
from kgqa.judge.judges import AnyJudge


@dataclass(frozen=True)
class Broken(AnyJudge):
    @property
    def role_forms(self):
        return {}

    async def judge(self, judged):
        raise ValueError("no verdict today")
"""


@pytest.fixture
def broken_judge(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> str:
    # of the test before
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    Path("broken.py").write_text(BROKEN_JUDGE, encoding="utf-8")
    write_file("conf/judge/broken.yaml", "_target_: broken.Broken\n")
    return "judge=broken"


LOST = (
    "judge=broken gave no verdict on any answer: ValueError: no verdict today (broken.py:13). "
    "The answers and their other scores are saved."
)


def test_judge_without_verdicts_fails_the_run(kgqa: Kgqa, broken_judge: str) -> None:
    ran = kgqa(*COMMAND, "limit=2", broken_judge)
    assert (ran.code, LOST in ran.out) == (2, True)
    assert len(ran.text("predictions.jsonl").splitlines()) == 2
    assert kgqa("evaluate", str(ran.folder), broken_judge).code == 2


def test_judge_without_verdicts_fails_its_cell(kgqa: Kgqa, broken_judge: str) -> None:
    ran = kgqa("run", "-m", "method=golden,no_context", "limit=2", broken_judge, *QUICK)
    assert (ran.code, f"cell 1 failed: method=no_context: {LOST}" in ran.out) == (2, True)


def test_broken_judge_is_forgotten_without_judge(kgqa: Kgqa, broken_judge: str) -> None:
    first = kgqa(*COMMAND, "limit=2", broken_judge)
    ran = kgqa(*COMMAND, "limit=2")
    assert (ran.code, ran.folder) == (0, first.folder)
    assert "judge" not in ran.out + ran.text("report.md")
    assert not (ran.folder / "verdicts.jsonl").exists()


@pytest.mark.parametrize("prefix", ["", "cell 0: "], ids=["run", "sweep"])
def test_other_judge_is_said_to_replace_verdicts(kgqa: Kgqa, prefix: str) -> None:
    words = [*COMMAND, "limit=2"]
    if prefix:
        words[1:1] = ["-m"]
    assert "replace those" not in kgqa(*words, "judge=em").out
    out = kgqa(*words, "judge=containment").out
    assert f"{prefix}warning: the verdicts of judge=containment replace those of judge=em in" in out
    assert "replace those" not in kgqa(*words, "judge=containment").out


@pytest.fixture
def own_file(kgqa: Kgqa) -> tuple[Path, tuple[str, ...]]:
    """Return a file with two questions and the command that answers them."""
    file = Path("own.jsonl")
    file.write_text("\n".join(DEMO.read_text(encoding="utf-8").splitlines()[:2]), encoding="utf-8")
    return file, (*COMMAND, "dataset=musique", "dataset.path=own.jsonl")


@pytest.mark.parametrize(
    "change",
    ["scoring=drop", PRICES, "report.html", "trace.jsonl.zst", "settings.json"],
    ids=["scoring", "prices", "no report", "no trace", "no settings"],
)
def test_changed_setting_or_missing_file_runs_again(kgqa: Kgqa, own_file: Any, change: str) -> None:
    _, command = own_file
    folder = kgqa(*command, "run_name=a").folder
    if "=" not in change:
        (folder / change).unlink()
    changed = (*command, "run_name=a", *([change] if "=" in change else []))
    again = kgqa(*changed)
    assert (again.code, again.folder) == (0, folder)
    assert "already complete" not in again.out
    assert (folder / "report.html").is_file()
    assert "already complete" in kgqa(*changed).out


def test_other_seed_or_question_is_another_run(kgqa: Kgqa, own_file: Any) -> None:
    file, command = own_file
    folder = kgqa(*command).folder
    assert kgqa(*command, "seed=3").folder != folder
    first, second = lines_of(file)
    write_lines(file, [{**first, "question": "Who else?"}, second])
    again = kgqa(*command)
    assert "already complete" not in again.out
    assert again.folder != folder


TRACED = ("run", "method=trace", "limit=2", *QUICK)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *((TRACED, name) for name in ("identity.json", "metrics.json", "predictions.jsonl")),
        *((TWO, name) for name in ("sweep.json", "cells/000.json")),
    ],
    ids=lambda part: part if isinstance(part, str) else part[1],
)
def test_same_command_completes_empty_files(kgqa: Kgqa, command: Sequence[str], name: str) -> None:
    folder = kgqa(*command).folder
    lasting = folder / ("predictions.jsonl" if command == TRACED else "cells/001.yaml")
    content = lasting.read_bytes()
    (folder / name).write_bytes(b"")
    ran = kgqa(*command)
    assert (ran.code, ran.folder) == (0, folder), ran.err
    assert lasting.read_bytes() == content
    assert (folder / name).read_bytes()


def test_new_folders_are_private(kgqa: Kgqa) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    before = os.umask(0o022)
    try:
        run = ("run", "method=trace", "dataset=demo", "limit=2", *QUICK)
        assert kgqa(*run, "output_dir=elsewhere").code == 0
        assert mode(Path("outputs")) == mode(Path("elsewhere")) == 0o700
        Path("outputs").chmod(0o755)
        assert kgqa(*run, "seed=1").code == 0
        assert not [path for path in Path("outputs").rglob("*") if mode(path) & 0o444 != 0o444]
    finally:
        os.umask(before)


FAILING = ("run", "method=no_context", "limit=4", *QUICK)
Fail = Callable[[int], None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    answer = Scripted.answer

    def failing(first: int) -> None:
        def some(self: Scripted, calls: Any) -> Any:
            return [EngineError("no reply")] * len(calls[:first]) + list(
                answer(self, calls[first:])
            )

        monkeypatch.setattr(Scripted, "answer", some)

    return failing


def test_run_without_any_answer_has_no_score_and_fails(kgqa: Kgqa, fail: Fail) -> None:
    fail(4)
    ran = kgqa(*FAILING)
    assert ran.code == 2
    assert (
        "4 of 4 questions failed, above max_failure_rate=0.05, so the scores are not valid"
        in ran.out + ran.err
    )
    assert "EngineError: no reply" in ran.out + ran.err
    lines = ran.out.splitlines()
    at = lines.index(f"failed questions: kgqa show {ran.folder} --failed")
    assert lines[at + 1 : at + 3] == [
        f"log: {ran.folder}/log.jsonl",
        "Run the same command again to retry them.",
    ]
    assert not [
        line for line in (ran.out + ran.err).splitlines() if line.startswith(("EM ", "F1 "))
    ]
    metrics = ran.json("metrics.json")
    assert (metrics["failed"], {score["mean"] for score in metrics["scores"].values()}) == (
        4,
        {None},
    )
    assert "| EM |" not in ran.text("report.md")
    assert (
        "every question of this run failed. Run its command again"
        in kgqa("evaluate", str(ran.folder)).err
    )
    fail(0)
    again = kgqa(*FAILING, "max_failure_rate=0.5")
    assert (again.code, again.folder, again.json("metrics.json")["failed"]) == (0, ran.folder, 0)


@pytest.mark.parametrize(("limit", "code"), [("0.24", 2), ("0.25", 0)])
def test_max_failure_rate_is_the_share_that_may_fail(
    kgqa: Kgqa, fail: Fail, limit: str, code: int
) -> None:
    fail(1)
    ran = kgqa(*FAILING, f"max_failure_rate={limit}")
    sweep = kgqa("run", "-m", *FAILING[1:], "seed=1,2", f"max_failure_rate={limit}")
    assert (ran.code, sweep.code) == (code, code)
    message = "1 of 4 questions failed, above max_failure_rate"
    assert [message in each.out + each.err for each in (ran, sweep)] == [code == 2] * 2
    assert "answered 3 of 4 (1 failed and count as wrong, 0 empty answers)" in ran.out + ran.err
    assert ran.json("metrics.json")["scores"]["em"]["n"] == 4


@pytest.mark.parametrize("failed", [3, 4])
def test_retrieval_score_needs_one_answered_question(kgqa: Kgqa, fail: Fail, failed: int) -> None:
    fail(failed)
    ran = kgqa("run", "method=retrieve_read", "limit=4", "max_failure_rate=1", *QUICK)
    assert ran.json("metrics.json")["failed"] == failed
    assert ("retrieval" in ran.json("metrics.json")) == (failed < 4)


def test_failed_calls_are_no_retrieval_misses(kgqa: Kgqa, fail: Fail) -> None:
    fail(2)
    ran = kgqa("run", "method=retrieve_read", "limit=4", "max_failure_rate=1", *QUICK)
    metrics = ran.json("metrics.json")
    assert [metrics["scores"][name]["n"] for name in ("em", "support_recall")] == [4, 2]
    assert sum(metrics["found_and_right"].values()) == 2
    retrieval = metrics["retrieval"]
    assert (retrieval["n"], retrieval["without_passages"], retrieval["ranked"]) == (2, 0, True)
    assert retrieval["passages_per_question"] == retrieval["most_passages"] > 0
    printed = ran.out + ran.err
    assert re.search(r"^recall +@2 .* of 2$", printed, re.MULTILINE)
    assert re.search(r"^support precision [^,]*\[\S+, \S+\] +of 2$", printed, re.MULTILINE)


def test_documents_are_counted_of_answered_questions(kgqa: Kgqa, fail: Fail) -> None:
    fail(2)
    ran = kgqa("run", "method=retrieve_read", "limit=4", "max_failure_rate=1", *QUICK)
    metric = PublishedMetric("documents", "chains.documents_per_question", "documents", "")
    passages = ran.json("metrics.json")["retrieval"]["passages_per_question"]
    assert pool_values([], [ran.folder], metric).mean == passages > 0


def test_failed_calls_are_calls_of_their_question(kgqa: Kgqa, fail: Fail) -> None:
    fail(2)
    run = FinishedRun.read(kgqa(*FAILING, "max_failure_rate=1").folder)
    calls = [row["model_calls"] for row in RunQuestions(run).rows.values()]
    assert (calls, run.metrics.cost.method.calls) == ([1, 1, 1, 1], 4)


def test_failed_questions_are_named_with_every_score(kgqa: Kgqa, fail: Fail) -> None:
    fail(1)
    ran = kgqa(*FAILING, "max_failure_rate=1", "run_name=a")
    metrics = ran.json("metrics.json")
    assert (metrics["scores"]["em"]["n"], metrics["answered"]["em"]["n"]) == (4, 3)
    assert re.search("^EM .* of 4, .* of 3$", ran.out + ran.err, re.MULTILINE)
    report = ran.text("report.md")
    assert "answered 3 of 4" in report.splitlines()[0]
    assert "The second value, or a single one, is of the answered 3 of 4 only" in report
    sweep = kgqa("run", "-m", *FAILING[1:], "seed=1,2", "max_failure_rate=1", "sweep.name=s")
    assert sweep.code == 0
    assert "answered 3 of 4" in Path("outputs/sweeps/s/report.md").read_text(encoding="utf-8")
    fail(0)
    sound = kgqa(*FAILING, "run_name=b", "seed=3").folder
    compared = kgqa("compare", str(ran.folder), str(sound))
    assert "Sensitivity: only questions that both answered" in compared.out
    again = kgqa("run", "-m", *FAILING[1:], "seed=1,2", "max_failure_rate=1", "sweep.name=s")
    assert "2 done" in again.out
    other = kgqa(*FAILING, "run_name=c", "seed=4").folder
    assert "Sensitivity" not in kgqa("compare", str(sound), str(other)).out


def test_run_without_triples_has_a_warning(kgqa: Kgqa) -> None:
    rules = write_rules([(".", "Pellery")], "rules.jsonl")
    ran = kgqa("run", "method=trace", "dataset=demo", "limit=1", *QUICK, rules)
    warning = "the knowledge graph has no triples of 8 of 8 passages"
    assert f"\nwarning: {warning}\n" in ran.out
    assert f"**Warning**: {warning}." in ran.text("report.md")


def test_failed_extraction_is_named_and_tried_again(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractions = count()

    def fail_first(_: Scripted, call: Any) -> EngineError | None:
        return (
            EngineError("no reply") if call.role == "extractor" and next(extractions) == 0 else None
        )

    before_each_call(monkeypatch, fail_first)
    monkeypatch.setattr("kgqa.errors.MAX_FAILED", 1.0)
    command = ("run", "method=trace", "experiment=quick", "limit=2", "run_name=a", *QUICK)
    first = kgqa(*command)
    assert first.json("metrics.json")["graph"]["failed"] == 1
    warning = "the knowledge graph is incomplete: the extraction of 1 of"
    assert f"**Warning**: {warning}" in first.text("report.md")
    assert f"warning: {warning}" in first.out
    again = kgqa(*command)
    assert again.json("metrics.json")["graph"]["failed"] == 0
    assert "incomplete" not in again.text("report.md")
    assert "already complete" in kgqa(*command).out


def test_groups_of_recall_have_a_unit(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=retrieve_read", "limit=4", *QUICK)
    assert kgqa("report", str(ran.folder), "--format", "md").code == 0
    table = (ran.folder / "report.md").read_text("utf-8").partition("## Recall of gold")[2]
    assert re.findall(r"^\| (\w+ hops) ", table, re.MULTILINE) == ["2 hops", "3 hops"]

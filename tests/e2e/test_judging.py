"""Judging apart from running: judge and calibrate from a run's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.judged_runs import IDS, JUDGED_BY, answered, read, refused, rules, verdicts
from tests.engines.misbehaving import Misbehaving, refuse


def test_a_run_is_judged_after_it_has_answered(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "judged", "judge=three_way")
    assert verdicts(folder) == dict(zip(IDS, ["incorrect", None, "correct"], strict=True))
    judged = read(folder / "metrics.json")["judge"]
    assert judged["accuracy"]["mean"] == 50.0
    assert (judged["unscored"], judged["cost"]["method"]["calls"]) == (1, 4)
    assert judged["models"] == {"judge": "smollm2_135m@scripted"}
    assert judged["warnings"] == ["the judge is the reader: smollm2_135m grades its own answers"]
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "Judge: three_way" in report
    assert "grades its own answers" in report


def test_the_judge_is_no_part_of_a_run(kgqa: Kgqa) -> None:
    plain = kgqa("run", "method=no_context", "limit=2", *QUICK)
    judged = kgqa("run", "method=no_context", "limit=2", "judge=kgp", "roles.judge=qwen2_5_coder_1_5b@scripted", *QUICK)
    assert judged.folder == plain.folder
    assert judged.json("metrics.json")["cost"]["paid"]["calls"] == 0
    assert judged.json("metrics.json")["judge"]["models"] == {"judge": "qwen2_5_coder_1_5b@scripted"}


def test_a_judge_that_dies_takes_no_report_along(kgqa: Kgqa) -> None:
    pytest.importorskip("aiohttp")
    server = Misbehaving(always=refuse(503))  # it lists its models
    failing = ("engine=openai", f"engine.base_url={server.url}", "engine.server_timeout=0.1", "model=gpt_4o_mini")
    reader = ("roles.reader=smollm2_135m@scripted", "ranker=lexical", "run_name=orphan")
    ran = kgqa("run", "method=no_context", "limit=2", "judge=kgp", *failing, *reader)
    server.stop()
    assert ran.code == 3
    assert f"{server.url} has not answered any call" in ran.err
    (folder,) = Path("outputs").rglob("orphan")
    assert read(folder / "metrics.json")["questions"] == 2
    assert (folder / "report.md").is_file()
    assert not (folder / "verdicts.jsonl").exists()


def test_a_judge_without_a_model_is_the_runs_reader_and_asks_nothing_twice(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    for paid in (4, 0):
        assert kgqa("evaluate", str(folder), "judge=three_way", *JUDGED_BY).code == 0
        judged = read(folder / "evaluation.json")["judge"]
        assert judged["cost"]["paid"]["calls"] == paid
        assert judged["cost"]["method"]["calls"] == 4
    assert verdicts(folder) == dict(zip(IDS, ["incorrect", None, "correct"], strict=True))


def test_a_judge_that_always_fails_leaves_everything_unscored(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    silent = rules([{"match": ".", "reply": "INCORRECT or CORRECT"}], "silent.jsonl")
    ran = kgqa("evaluate", str(folder), "judge=three_way", "engine=scripted", silent)
    assert ran.code == 0
    judged = read(folder / "evaluation.json")["judge"]
    assert judged["unscored"] == 3
    assert judged["accuracy"]["mean"] is None
    assert set(verdicts(folder).values()) == {None}
    assert "unscored" in ran.out


def test_failed_questions_are_not_sent_and_count_as_wrong(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    file = folder / "predictions.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    lines[0] |= {"answer": None, "error": "EngineError: gone"}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert kgqa("evaluate", str(folder), "judge=kgp", *JUDGED_BY).code == 0
    evaluation = read(folder / "evaluation.json")
    assert evaluation["failed"] == evaluation["judge"]["failed"] == 1
    assert evaluation["judge"]["cost"]["method"]["calls"] == 2
    assert evaluation["judge"]["accuracy"]["mean"] == pytest.approx(200 / 3)


def test_calibration_compares_with_exact_match_a_second_judge_and_people(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "c", "judge=three_way")
    human = Path("human.csv")
    human.write_text(f"question_id,correct,note\n{IDS[0]},0,\n{IDS[2]},yes,sure\n{IDS[1]},,\n", encoding="utf-8")
    ran = kgqa(
        "evaluate",
        "--calibrate",
        str(folder),
        f"human={human}",
        "other=kgp",
        *JUDGED_BY,
    )
    assert ran.code == 0, ran.err
    measured = read(folder / "calibration.json")
    assert measured["human"]["percent"] == 100.0
    assert measured["human"]["kappa"] == 1.0
    assert (measured["EM"]["n"], measured["EM"]["left_out"]) == (2, 1)
    assert measured["second judge"]["confusion"] == {
        "correct": {"correct": 1, "incorrect": 0},
        "incorrect": {"correct": 1, "incorrect": 0},
    }
    assert (measured["containment"]["n"], measured["containment"]["left_out"]) == (2, 1)
    assert "kappa" in ran.out


def test_calibration_takes_a_second_judge_from_another_folder(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "c", "judge=three_way")
    assert kgqa("evaluate", str(folder), "judge=kgp", *JUDGED_BY, "output_dir=second").code == 0
    assert kgqa("evaluate", "--calibrate", str(folder), "other=second").code == 0
    assert read(folder / "calibration.json")["second judge"]["n"] == 2


def test_a_wrong_human_file_is_named_with_its_line(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "c", "judge=three_way")
    for content, said in [
        ("id,correct\na,1\n", ":1: expected the columns question_id and correct"),
        ("question_id,correct\nnobody,1\n", ":2: question nobody: not a question of this run"),
        (f"question_id,correct\n{IDS[0]},maybe\n", ":2: correct=maybe"),
        (f"question_id,correct\n{IDS[0]},1\n{IDS[0]},1\n", f":3: question {IDS[0]} occurs twice"),
        (f"question_id,correct\n{IDS[0]},\n", "no verdicts in this file"),
    ]:
        Path("human.csv").write_text(content, encoding="utf-8")
        refused(kgqa("evaluate", "--calibrate", str(folder), "human=human.csv"), said)
        assert not (folder / "calibration.json").exists()


def test_a_wrong_judge_leaves_the_folder_as_it_was(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for override, said in [
        ("judge=threeway", "Did you mean three_way"),
        ("judge.model=gpt", "judge.model=gpt"),
        ("judge.max_tokens=0", "judge.max_tokens=0"),
        ("scoring=squad", "squad"),
        ("judge.bean=1", "judge.bean"),
    ]:
        refused(kgqa("evaluate", str(folder), "judge=three_way", *JUDGED_BY, override), said)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_verdicts_on_other_answers_are_refused(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "a", "judge=three_way")
    file = folder / "verdicts.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("Candle Bridge", "Lantern Bridge"), encoding="utf-8")
    refused(kgqa("evaluate", "--calibrate", str(folder)), f"the verdict is on another answer to question {IDS[1]}")

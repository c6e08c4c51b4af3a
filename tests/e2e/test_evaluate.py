"""Scoring and judging apart from running: evaluate, compare and calibrate from folders of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import DEMO, QUICK, Kgqa
from tests.e2e.judged_runs import ANSWERS, IDS, JUDGED_BY, answered, read, refused, rules, verdicts
from tests.engines.misbehaving import Misbehaving, refuse


def test_a_run_is_scored_again_without_data_file_or_model(kgqa: Kgqa) -> None:
    Path("own.jsonl").write_text("\n".join(DEMO.read_text(encoding="utf-8").splitlines()[:3]), encoding="utf-8")
    folder = answered(kgqa, "own", "dataset=musique", "dataset.path=own.jsonl")
    Path("own.jsonl").unlink()
    ran = kgqa("evaluate", str(folder))
    assert ran.code == 0
    again, first = read(folder / "evaluation.json"), read(folder / "metrics.json")
    for key in ("questions", "failed", "answerless", "scores", "given", "profiles", "by_hops", "by_type", "flags"):
        assert again[key] == first[key]
    for shown in ("hotpotqa", "musique", "drop", "By hops", "EM"):
        assert shown in ran.out
    assert "## By hops" in (folder / "evaluation.md").read_text(encoding="utf-8")
    assert kgqa("evaluate", str(folder), "scoring=drop").code == 0
    assert read(folder / "evaluation.json")["profile"] == "drop"
    refused(kgqa("evaluate", str(folder), f"output_dir={answered(kgqa, 'b')}"), "the folder of another run")


def test_runs_are_compared_on_the_questions_they_share(kgqa: Kgqa) -> None:
    judged = "judge=three_way"
    first, second = answered(kgqa, "a", judged), answered(kgqa, "b", "seed=1", judged)
    third = kgqa("run", "method=no_context", "limit=3", "run_name=c", *QUICK).folder
    ran = kgqa("compare", str(first), str(second), str(third))
    assert ran.code == 0
    assert "Flipped between A and C: 1" in ran.out
    assert "Flipped between A and B" not in ran.out
    assert "2hop__demo_02" in ran.out
    assert "Holm's correction over all rows" in ran.out
    assert "judge: three_way smollm2_135m@scripted" in kgqa("compare", str(first), str(second)).out
    assert kgqa("evaluate", str(second), "judge=kgp", "engine=scripted").code == 0
    assert "verdicts are not compared" in kgqa("compare", str(first), str(second)).out
    five = kgqa("run", "method=no_context", "limit=5", "run_name=five", *QUICK).folder
    ran = kgqa("compare", str(first), str(five))
    refused(ran, f"2 only in {five}")
    assert "Use --common to compare the 3 they share" in ran.err
    common = kgqa("compare", str(five), str(first), "--common")
    assert common.code == 0
    assert "3 questions" in common.out
    assert "those that all runs have; A has 5" in common.out


OFFICIAL = {"answer": ANSWERS, "sp": {IDS[0]: [["Ilse Ravenholt", 0]], IDS[1]: [], IDS[2]: []}}
MUSIQUE = [
    {"id": key, "predicted_answer": answer, "predicted_support_idxs": [1], "predicted_answerable": True}
    for key, answer in ANSWERS.items()
]
PLAIN = [{"id": key, "answer": answer} for key, answer in ANSWERS.items()]


def test_predictions_of_others_are_scored(kgqa: Kgqa) -> None:
    for form, content in (
        ("official", json.dumps(OFFICIAL)),
        ("musique", "\n".join(map(json.dumps, MUSIQUE))),
        ("plain", "\n".join(map(json.dumps, PLAIN))),
    ):
        Path("p.json").write_text(content, encoding="utf-8")
        ran = kgqa("evaluate", "--predictions", "p.json", "dataset=demo", "limit=3", f"output_dir={form}")
        assert ran.code == 0, ran.err
        evaluation = read(Path(form, "evaluation.json"))
        assert evaluation["profiles"]["musique"]["em"] == pytest.approx(200 / 3)
        assert evaluation["scores"]["support_recall"]["n"] == (0 if form == "plain" else 3)


def test_what_is_broken_in_a_folder_is_named_and_nothing_is_overwritten(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    file = folder / "predictions.jsonl"
    whole = file.read_text(encoding="utf-8")
    lines = whole.splitlines(keepends=True)
    for content, said in (
        (whole[:-30], "predictions.jsonl:3: not JSON"),
        (whole.replace(IDS[0], "nobody"), f"question {IDS[0]}: only in this file or only in trace"),
        ("".join(lines[:2]), f"question {IDS[2]}: only in this file or only in trace.jsonl.zst (1 in all)"),
        (lines[0] + whole, f"predictions.jsonl:2: question {IDS[0]} is already answered"),
    ):
        file.write_text(content, encoding="utf-8")
        refused(kgqa("evaluate", str(folder)), said)
        assert not (folder / "evaluation.json").exists()
    file.unlink()
    refused(kgqa("evaluate", str(folder)), "the run is not finished (no predictions.jsonl). Run its command again")
    file.write_text(whole, encoding="utf-8")
    (folder / "trace.jsonl.zst").unlink()
    refused(kgqa("evaluate", str(folder)), f"kgqa evaluate --predictions {folder}/predictions.jsonl dataset=NAME")
    assert kgqa("evaluate", "--predictions", f"{folder}/predictions.jsonl", "dataset=demo", "limit=3").code == 0


def test_a_run_that_answers_nothing_is_neither_judged_nor_scored_again(kgqa: Kgqa) -> None:
    refused(
        kgqa("run", "method=retrieve_only", "limit=2", "judge=kgp", *QUICK),
        "method=retrieve_only does not answer questions",
    )
    folder = kgqa("run", "method=retrieve_only", "limit=2", *QUICK).folder
    refused(kgqa("evaluate", str(folder)), "only retrieved passages")


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
    other = "roles.judge=qwen2_5_coder_1_5b@scripted"  # the judge is no part of a run
    assert answered(kgqa, "judged", "judge=kgp", other) == folder
    metrics = read(folder / "metrics.json")
    assert metrics["cost"]["paid"]["calls"] == 0
    assert metrics["judge"]["models"] == {"judge": "qwen2_5_coder_1_5b@scripted"}


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


def test_a_finished_run_is_judged_once_and_a_judge_that_fails_leaves_all_unscored(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    for paid in (4, 0):
        assert kgqa("evaluate", str(folder), "judge=three_way", *JUDGED_BY).code == 0
        judged = read(folder / "evaluation.json")["judge"]
        assert judged["cost"]["paid"]["calls"] == paid
        assert judged["cost"]["method"]["calls"] == 4
    assert verdicts(folder) == dict(zip(IDS, ["incorrect", None, "correct"], strict=True))
    silent = rules([{"match": ".", "reply": "INCORRECT or CORRECT"}], "silent.jsonl")
    ran = kgqa("evaluate", str(folder), "judge=three_way", "engine=scripted", silent)
    assert ran.code == 0
    judged = read(folder / "evaluation.json")["judge"]
    assert (judged["unscored"], judged["accuracy"]["mean"]) == (3, None)
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
    human = f"question_id,correct,note\n{IDS[0]},0,\n{IDS[2]},yes,sure\n{IDS[1]},,\n"
    Path("human.csv").write_text(human, encoding="utf-8")
    ran = kgqa("evaluate", "--calibrate", str(folder), "human=human.csv", "other=kgp", *JUDGED_BY)
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
    assert kgqa("evaluate", str(folder), "judge=kgp", *JUDGED_BY, "output_dir=second").code == 0
    assert kgqa("evaluate", "--calibrate", str(folder), "other=second").code == 0
    assert read(folder / "calibration.json")["second judge"]["n"] == 2
    file = folder / "verdicts.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("Candle Bridge", "Lantern Bridge"), encoding="utf-8")
    refused(kgqa("evaluate", "--calibrate", str(folder)), f"the verdict is on another answer to question {IDS[1]}")

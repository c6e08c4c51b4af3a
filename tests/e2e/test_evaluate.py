"""Scoring apart from running: evaluate, judge, calibrate and compare from a run's folder, and predictions of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, Kgqa, Ran

IDS = ["2hop__demo_01", "2hop__demo_02", "3hop1__demo_03"]
ANSWERS = {"2hop__demo_01": "Pellery", "2hop__demo_02": "the Candle Bridge", "3hop1__demo_03": "an abbess"}
JUDGE = [
    {"match": "Compare an answer.*Reference: Pellery", "reply": '{"verdict": "incorrect"}'},
    {"match": "Compare an answer.*Reference: Candle", "reply": "CORRECT?? INCORRECT"},
    {"match": "Compare an answer", "reply": '{"verdict": "correct"}'},
    {"match": "Grade whether", "reply": "1"},
    {"match": "Decide whether", "reply": '{"is_correct": "wrong", "reasoning": "no"}'},
    {"match": "bridge was opened first", "reply": "Candle Bridge"},
]


def rules(records: list[dict[str, str]] = JUDGE, name: str = "rules.jsonl") -> str:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return f"engine.rules={name}"


def answered(kgqa: Kgqa, name: str = "a", *overrides: str) -> Path:
    """A finished run of three questions, one of them right."""
    ran = kgqa("run", "method=no_context", "limit=3", f"name={name}", *QUICK, rules(), *overrides)
    assert ran.code == 0, ran.err
    return ran.folder


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def verdicts(folder: Path) -> dict[str, str | None]:
    read_lines = (json.loads(line) for line in (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines())
    return {line["question_id"]: line["verdict"] for line in read_lines}


def refused(ran: Ran, said: str) -> None:
    assert ran.code == 2, ran.out
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_run_is_scored_again_as_it_was_scored_first(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    ran = kgqa("evaluate", str(folder))
    assert ran.code == 0
    again, first = read(folder / "evaluation.json"), read(folder / "metrics.json")
    for key in ("questions", "failed", "answerless", "scores", "given", "profiles", "by_hops", "by_type", "flags"):
        assert again[key] == first[key]
    for shown in ("hotpotqa", "musique", "drop", "By hops", "EM"):
        assert shown in ran.out
    assert "## By hops" in (folder / "evaluation.md").read_text(encoding="utf-8")


def test_another_profile_needs_neither_data_file_nor_model(kgqa: Kgqa, tmp_path: Path) -> None:
    source = tmp_path / "questions.jsonl"
    source.write_text(
        json.dumps(
            {
                "id": "2hop__1_2",
                "question": "Who?",
                "answer": "Ann",
                "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "Ann.", "is_supporting": True}],
            }
        )
    )
    made = kgqa("run", "method=no_context", "dataset=musique", f"dataset.path={source}", *QUICK)
    source.unlink()
    assert kgqa("evaluate", str(made.folder), "profile=drop").code == 0
    assert read(made.folder / "evaluation.json")["profile"] == "drop"


def test_without_a_trace_the_golds_come_from_the_data_set(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    (folder / "trace.jsonl.zst").unlink()
    assert kgqa("evaluate", str(folder)).code == 0
    assert read(folder / "evaluation.json")["scores"]["em"] == read(folder / "metrics.json")["scores"]["em"]


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
    pytest.importorskip("httpx2")
    nowhere = ("engine=openai", "engine.base_url=http://127.0.0.1:9/v1", "engine.patience=0.1")
    reader = ("roles.reader=smollm2_135m@scripted", "ranker=lexical", "name=orphan")
    ran = kgqa("run", "method=no_context", "limit=2", "judge=kgp", *nowhere, *reader)
    assert ran.code == 3
    assert "127.0.0.1:9" in ran.err
    (folder,) = Path("outputs").rglob("orphan")
    assert read(folder / "metrics.json")["questions"] == 2
    assert (folder / "report.md").is_file()
    assert not (folder / "verdicts.jsonl").exists()


def test_a_finished_run_is_judged_by_a_model_of_ones_own(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    ran = kgqa("evaluate", str(folder), "judge=three_way", "judge.model=qwen2_5_coder_1_5b@scripted")
    assert ran.code == 0
    judged = read(folder / "evaluation.json")["judge"]
    assert judged["models"] == {"judge": "qwen2_5_coder_1_5b@scripted"}
    assert judged["warnings"] == []
    assert list(judged["prompts"]) == ["judge/three_way"]


def test_a_judge_without_a_model_is_the_runs_reader_and_asks_nothing_twice(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    for paid in (4, 0):
        assert kgqa("evaluate", str(folder), "judge=three_way").code == 0
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
    assert kgqa("evaluate", str(folder), "judge=kgp").code == 0
    evaluation = read(folder / "evaluation.json")
    assert evaluation["failed"] == evaluation["judge"]["failed"] == 1
    assert evaluation["judge"]["cost"]["method"]["calls"] == 2
    assert evaluation["judge"]["accuracy"]["mean"] == pytest.approx(200 / 3)


def test_a_panel_votes(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    assert kgqa("evaluate", str(folder), "judge=panel").code == 0
    # three_way: incorrect, none, correct; kgp: correct; safe: wrong
    assert verdicts(folder) == dict(zip(IDS, ["incorrect", None, "correct"], strict=True))


def test_calibration_compares_with_exact_match_a_second_judge_and_people(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "c", "judge=three_way")
    human = Path("human.csv")
    human.write_text(f"question_id,correct,note\n{IDS[0]},0,\n{IDS[2]},yes,sure\n{IDS[1]},,\n", encoding="utf-8")
    ran = kgqa(
        "judge", "calibrate", str(folder), f"human={human}", "other=kgp", "engine=scripted", "engine.rules=rules.jsonl"
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
    assert "kappa" in ran.out


def test_calibration_takes_a_second_judge_from_another_folder(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "c", "judge=three_way")
    assert kgqa("evaluate", str(folder), "judge=kgp", "out=second").code == 0
    assert kgqa("judge", "calibrate", str(folder), "other=second").code == 0
    assert read(folder / "calibration.json")["second judge"]["n"] == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("id,correct\na,1\n", ":1: the columns question_id and correct are wanted"),
        ("question_id,correct\nnobody,1\n", ":2: question nobody: not a question of this run"),
        (f"question_id,correct\n{IDS[0]},maybe\n", ":2: correct=maybe"),
        (f"question_id,correct\n{IDS[0]},1\n{IDS[0]},1\n", f":3: question {IDS[0]} is there twice"),
        (f"question_id,correct\n{IDS[0]},\n", "no verdicts in this file"),
    ],
)
def test_a_wrong_human_file_is_named_with_its_line(kgqa: Kgqa, content: str, said: str) -> None:
    folder = answered(kgqa, "c", "judge=three_way")
    Path("human.csv").write_text(content, encoding="utf-8")
    refused(kgqa("judge", "calibrate", str(folder), "human=human.csv"), said)
    assert not (folder / "calibration.json").exists()


def test_two_runs_are_compared_and_the_flipped_questions_shown(kgqa: Kgqa) -> None:
    first, second = answered(kgqa, "a"), answered(kgqa, "b", "seed=1")
    third = kgqa("run", "method=no_context", "limit=3", "name=c", *QUICK).folder
    ran = kgqa("compare", str(first), str(second), str(third))
    assert ran.code == 0
    assert "Flipped between A and C: 1" in ran.out
    assert "Flipped between A and B" not in ran.out
    assert "2hop__demo_02" in ran.out
    assert "no difference shown" in ran.out


def test_verdicts_are_compared_where_one_judge_judged_both(kgqa: Kgqa) -> None:
    first, second = answered(kgqa, "a", "judge=three_way"), answered(kgqa, "b", "seed=1", "judge=three_way")
    assert "judge: three_way smollm2_135m@scripted" in kgqa("compare", str(first), str(second)).out
    assert kgqa("evaluate", str(second), "judge=kgp").code == 0
    assert "verdicts are not compared" in kgqa("compare", str(first), str(second)).out


def test_runs_over_other_questions_say_which_differ(kgqa: Kgqa) -> None:
    first = answered(kgqa)
    second = kgqa("run", "method=no_context", "limit=5", "name=five", *QUICK).folder
    ran = kgqa("compare", str(first), str(second))
    refused(ran, f"2 only in {second}")
    assert "give --common to compare the 3 they share" in ran.err
    common = kgqa("compare", str(second), str(first), "--common")
    assert common.code == 0
    assert "3 questions" in common.out
    assert "those that all runs have; A has 5" in common.out


OFFICIAL = {"answer": ANSWERS, "sp": {IDS[0]: [["Ilse Ravenholt", 0]], IDS[1]: [], IDS[2]: []}}
MUSIQUE = [
    {"id": key, "predicted_answer": answer, "predicted_support_idxs": [1], "predicted_answerable": True}
    for key, answer in ANSWERS.items()
]
PLAIN = [{"id": key, "answer": answer} for key, answer in ANSWERS.items()]


@pytest.mark.parametrize("form", ["official", "musique", "plain"])
def test_predictions_of_others_are_scored(kgqa: Kgqa, form: str) -> None:
    content = (
        json.dumps(OFFICIAL)
        if form == "official"
        else "\n".join(map(json.dumps, MUSIQUE if form == "musique" else PLAIN))
    )
    Path("p.json").write_text(content, encoding="utf-8")
    ran = kgqa("evaluate", "--predictions", "p.json", "dataset=demo", "limit=3", "out=scored")
    assert ran.code == 0, ran.err
    evaluation = read(Path("scored/evaluation.json"))
    assert evaluation["profiles"]["musique"]["em"] == pytest.approx(200 / 3)
    assert evaluation["scores"]["support_recall"]["n"] == (0 if form == "plain" else 3)


def test_without_out_nothing_is_written_for_predictions_of_others(kgqa: Kgqa, tmp_path: Path) -> None:
    Path("p.jsonl").write_text("\n".join(map(json.dumps, PLAIN)), encoding="utf-8")
    assert kgqa("evaluate", "--predictions", "p.jsonl", "dataset=demo", "--subset").code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["p.jsonl"]


def test_predictions_of_others_are_judged(kgqa: Kgqa) -> None:
    Path("p.jsonl").write_text("\n".join(map(json.dumps, PLAIN)), encoding="utf-8")
    judge = ("judge=kgp", "engine=scripted", rules())
    ran = kgqa("evaluate", "--predictions", "p.jsonl", "dataset=demo", "limit=3", "out=scored", *judge)
    assert ran.code == 0, ran.err
    judged = read(Path("scored/evaluation.json"))["judge"]
    assert judged["accuracy"]["mean"] == 100.0
    assert judged["warnings"] == []  # who answered is not known


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("evaluate",), "RUN|FILE is missing; e.g. kgqa evaluate outputs/"),
        (("evaluate", "nowhere"), "not the folder of a run"),
        (("evaluate", "a", "b"), "b: one word too many for kgqa evaluate"),
        (("evaluate", "a", "--subset"), "--subset: goes with --predictions"),
        (("evaluate", "a", "--fast"), "--fast: no such option"),
        (("evaluate", "a", "limit=3"), "limit=3: goes with --predictions"),
        (("evaluate", "--predictions", "nowhere.jsonl", "dataset=demo"), "nowhere.jsonl: cannot be read"),
        (("compare", "a"), "another RUN is missing; e.g. kgqa compare outputs/"),
        (("compare", "a", "b", "limit=3"), "limit=3: not a key of kgqa compare"),
        (("compare", "a", "b", "difference=0"), "difference above 0"),
        (("compare", "a", "b", "seed=x"), "must be numbers"),
        (("judge", "calibrat"), "judge calibrat: no such command; did you mean calibrate?"),
        (("judge", "calibrate"), "RUN is missing; e.g. kgqa judge calibrate outputs/"),
        (("judge", "calibrate", "nowhere"), "not the folder of a run"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_code_2(kgqa: Kgqa, arguments: tuple[str, ...], said: str) -> None:
    refused(kgqa(*arguments), said)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("judge=threeway", "did you mean three_way"),
        ("judge.model=gpt", "judge.model=gpt"),
        ("judge.max_tokens=0", "judge.max_tokens=0"),
        ("profile=squad", "squad"),
        ("judge.bean=1", "judge.bean"),
    ],
)
def test_a_wrong_judge_leaves_the_folder_as_it_was(kgqa: Kgqa, override: str, said: str) -> None:
    folder = answered(kgqa)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    refused(kgqa("evaluate", str(folder), "judge=three_way", override), said)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_an_answer_with_half_a_character_is_shown_and_written(kgqa: Kgqa) -> None:
    folder, other = answered(kgqa, "a", "judge=three_way"), answered(kgqa, "b", "seed=1", "judge=three_way")
    file = folder / "predictions.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("Candle Bridge", "Candle \\ud800"), encoding="utf-8")
    assert kgqa("evaluate", str(folder), "judge=kgp").code == 0  # by another judge: flips are of exact match again
    ran = kgqa("compare", str(folder), str(other))
    assert "Candle \\ud800" in ran.out


def test_what_is_broken_in_a_folder_is_named_and_nothing_is_overwritten(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    file = folder / "predictions.jsonl"
    whole = file.read_text(encoding="utf-8")
    lines = whole.splitlines(keepends=True)
    for content, said in (
        (whole[:-30], "predictions.jsonl:3: not JSON"),
        (whole.replace(IDS[0], "nobody"), "question nobody: no question for this prediction"),
        ("".join(lines[:2]), f"question {IDS[2]}: no prediction for this question"),
        (lines[0] + whole, f"predictions.jsonl:2: question {IDS[0]} is already answered"),
    ):
        file.write_text(content, encoding="utf-8")
        refused(kgqa("evaluate", str(folder)), said)
        assert not (folder / "evaluation.json").exists()
    file.unlink()
    refused(kgqa("evaluate", str(folder)), "the run has not ended")


def test_a_run_that_answers_nothing_is_neither_judged_nor_scored_again(kgqa: Kgqa) -> None:
    refused(kgqa("run", "method=retrieve_only", "limit=2", "judge=kgp", *QUICK), "method=retrieve_only answers nothing")
    folder = kgqa("run", "method=retrieve_only", "limit=2", *QUICK).folder
    refused(kgqa("evaluate", str(folder)), "answered nothing")


def test_another_runs_folder_is_not_written_into(kgqa: Kgqa) -> None:
    first, second = answered(kgqa, "a"), answered(kgqa, "b", "seed=1")
    refused(kgqa("evaluate", str(first), f"out={second}"), "the folder of another run")


def test_verdicts_on_other_answers_are_refused(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "a", "judge=three_way")
    file = folder / "verdicts.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("Candle Bridge", "Lantern Bridge"), encoding="utf-8")
    refused(kgqa("judge", "calibrate", str(folder)), f"another answer was judged for question {IDS[1]}")

"""Scoring apart from running: evaluate and compare from a run's folder, and predictions of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.judged_runs import ANSWERS, IDS, answered, read, refused


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
    assert kgqa("evaluate", str(made.folder), "scoring=drop").code == 0
    assert read(made.folder / "evaluation.json")["profile"] == "drop"


def test_run_without_trace_is_rejected(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    (folder / "trace.jsonl.zst").unlink()
    refused(kgqa("evaluate", str(folder)), f"kgqa evaluate --predictions {folder}/predictions.jsonl dataset=NAME")
    assert kgqa("evaluate", "--predictions", f"{folder}/predictions.jsonl", "dataset=demo", "limit=3").code == 0


def test_two_runs_are_compared_and_the_flipped_questions_shown(kgqa: Kgqa) -> None:
    first, second = answered(kgqa, "a"), answered(kgqa, "b", "seed=1")
    third = kgqa("run", "method=no_context", "limit=3", "run_name=c", *QUICK).folder
    ran = kgqa("compare", str(first), str(second), str(third))
    assert ran.code == 0
    assert "Flipped between A and C: 1" in ran.out
    assert "Flipped between A and B" not in ran.out
    assert "2hop__demo_02" in ran.out
    assert "Holm's correction over all rows" in ran.out


def test_verdicts_are_compared_where_one_judge_judged_both(kgqa: Kgqa) -> None:
    first, second = answered(kgqa, "a", "judge=three_way"), answered(kgqa, "b", "seed=1", "judge=three_way")
    assert "judge: three_way smollm2_135m@scripted" in kgqa("compare", str(first), str(second)).out
    assert kgqa("evaluate", str(second), "judge=kgp", "engine=scripted").code == 0
    assert "verdicts are not compared" in kgqa("compare", str(first), str(second)).out


def test_runs_over_other_questions_say_which_differ(kgqa: Kgqa) -> None:
    first = answered(kgqa)
    second = kgqa("run", "method=no_context", "limit=5", "run_name=five", *QUICK).folder
    ran = kgqa("compare", str(first), str(second))
    refused(ran, f"2 only in {second}")
    assert "Use --common to compare the 3 they share" in ran.err
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
    ran = kgqa("evaluate", "--predictions", "p.json", "dataset=demo", "limit=3", "output_dir=scored")
    assert ran.code == 0, ran.err
    evaluation = read(Path("scored/evaluation.json"))
    assert evaluation["profiles"]["musique"]["em"] == pytest.approx(200 / 3)
    assert evaluation["scores"]["support_recall"]["n"] == (0 if form == "plain" else 3)


def test_what_is_broken_in_a_folder_is_named_and_nothing_is_overwritten(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    file = folder / "predictions.jsonl"
    whole = file.read_text(encoding="utf-8")
    lines = whole.splitlines(keepends=True)
    for content, said in (
        (whole[:-30], "predictions.jsonl:3: not JSON"),
        (
            whole.replace(IDS[0], "nobody"),
            f"question {IDS[0]}: only in this file or only in trace",
        ),
        ("".join(lines[:2]), f"question {IDS[2]}: only in this file or only in trace.jsonl.zst (1 in all)"),
        (lines[0] + whole, f"predictions.jsonl:2: question {IDS[0]} is already answered"),
    ):
        file.write_text(content, encoding="utf-8")
        refused(kgqa("evaluate", str(folder)), said)
        assert not (folder / "evaluation.json").exists()
    file.unlink()
    refused(kgqa("evaluate", str(folder)), "the run is not finished (no predictions.jsonl). Run its command again")


def test_a_run_that_answers_nothing_is_neither_judged_nor_scored_again(kgqa: Kgqa) -> None:
    refused(
        kgqa("run", "method=retrieve_only", "limit=2", "judge=kgp", *QUICK),
        "method=retrieve_only does not answer questions",
    )
    folder = kgqa("run", "method=retrieve_only", "limit=2", *QUICK).folder
    refused(kgqa("evaluate", str(folder)), "only retrieved passages")


def test_another_runs_folder_is_not_written_into(kgqa: Kgqa) -> None:
    first, second = answered(kgqa, "a"), answered(kgqa, "b", "seed=1")
    refused(kgqa("evaluate", str(first), f"output_dir={second}"), "the folder of another run")

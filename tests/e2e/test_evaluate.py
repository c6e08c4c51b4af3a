"""Scoring, judging, exporting and tracking from folders of runs, each form against the figures of its run."""

from __future__ import annotations

import json
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import read_trace
from kgqa.errors import EngineError, TrackerError
from kgqa.report import exports
from kgqa.report.exports import trec_column, write_report
from kgqa.report.questions import call_rows, prediction_rows, write_jsonl
from kgqa.util.optional_deps import install_command
from tests.e2e.conftest import (
    DEMO,
    QUICK,
    Kgqa,
    before_each_call,
    lines_of,
    refused,
    write_file,
    write_lines,
    write_rules,
)
from tests.e2e.judged_runs import ANSWERS, IDS, JUDGED_BY, answered, read, verdicts
from tests.engines.misbehaving import Misbehaving, refuse, reply


@pytest.fixture
def own_run(kgqa: Kgqa) -> Path:
    """Return the folder of a run with a data file that is gone."""
    Path("own.jsonl").write_text(
        "\n".join(DEMO.read_text(encoding="utf-8").splitlines()[:3]), encoding="utf-8"
    )
    folder = answered(kgqa, "own", "dataset=musique", "dataset.path=own.jsonl")
    Path("own.jsonl").unlink()
    return folder


def test_run_is_rescored_without_data_file_or_model(kgqa: Kgqa, own_run: Path) -> None:
    ran = kgqa("evaluate", str(own_run))
    assert ran.code == 0
    again, first = read(own_run / "evaluation.json"), read(own_run / "metrics.json")
    keys = (
        "questions",
        "failed",
        "answerless",
        "scores",
        "given",
        "profiles",
        "by_hops",
        "by_type",
        "flags",
    )
    assert {key: again[key] for key in keys} == {key: first[key] for key in keys}
    assert [
        word for word in ("hotpotqa", "musique", "drop", "By hops", "EM") if word not in ran.out
    ] == []
    assert "## By hops" in (own_run / "evaluation.md").read_text(encoding="utf-8")


def test_run_is_rescored_with_another_profile(kgqa: Kgqa, own_run: Path) -> None:
    assert kgqa("evaluate", str(own_run), "scoring=drop").code == 0
    assert read(own_run / "evaluation.json")["profile"] == "drop"
    refused(
        kgqa("evaluate", str(own_run), f"output_dir={answered(kgqa, 'b')}"),
        "the folder of another run",
    )


def test_comparison_names_flipped_answers(kgqa: Kgqa) -> None:
    first, second = answered(kgqa, "a"), answered(kgqa, "b", "seed=1")
    third = kgqa("run", "method=no_context", "limit=3", "run_name=c", *QUICK).folder
    ran = kgqa("compare", str(first), str(second), str(third), "--all")
    assert ran.code == 0
    assert "Flipped between A and C: 1" in ran.out
    assert "2hop__demo_02" in ran.out
    assert "Holm's correction over 6 rows" in ran.out
    assert "Flipped between A and B" not in ran.out


def test_file_without_predictions_option_gets_the_command(kgqa: Kgqa) -> None:
    Path("my preds.jsonl").write_text("", encoding="utf-8")
    ran = kgqa("evaluate", "my preds.jsonl", "dataset=demo", "--subset")
    refused(ran, "Write: kgqa evaluate --predictions 'my preds.jsonl' dataset=demo --subset")


def test_flips_of_many_pairs_need_all(kgqa: Kgqa) -> None:
    runs = [str(answered(kgqa, name, f"seed={name}")) for name in ("1", "2")]
    third = kgqa("run", "method=no_context", "limit=3", "run_name=c", *QUICK).folder
    ran = kgqa("compare", *runs, str(third))
    assert "Flipped between" not in ran.out
    assert "add --all for every pair" in ran.out
    assert "Flipped between A and B: 1" in kgqa("compare", runs[0], str(third)).out


@pytest.mark.slow
def test_verdicts_of_one_judge_are_compared(kgqa: Kgqa) -> None:
    judged = "judge=three_way"
    first, second = answered(kgqa, "a", judged), answered(kgqa, "b", "seed=1", judged)
    assert "judge: three_way smollm2_135m@scripted" in kgqa("compare", str(first), str(second)).out
    assert kgqa("evaluate", str(second), "judge=kgp", *JUDGED_BY[:2]).code == 0
    refusal = "judge accuracy is not compared, because the runs have different judges: three_way "
    assert refusal in kgqa("compare", str(first), str(second)).out
    assert "is not compared" not in kgqa("compare", str(first), str(second), "metrics=f1").out


@pytest.mark.parametrize(("method", "count"), [("golden", 1), ("no_context", 0)])
def test_method_without_passages_has_no_citations(kgqa: Kgqa, method: str, count: int) -> None:
    assert kgqa("run", f"method={method}", "limit=2", "output_dir=run", *QUICK).code == 0
    assert kgqa("explain", "run").out.count("passages: recall") == count


def test_suggested_comparison_has_the_shared_questions(kgqa: Kgqa) -> None:
    for limit in ("3", "5"):
        kgqa("run", "method=no_context", f"limit={limit}", f"run_name=n{limit}", *QUICK)
    ran = kgqa("compare", "no_context")
    suggested = ran.err.splitlines()[-1].partition("the newest 2: kgqa ")[2]
    assert suggested.endswith("/n5 demo/no_context/scripted/n3 --common")
    assert kgqa(*suggested.split()).code == 0


def test_golden_is_not_ranked_under_judges(kgqa: Kgqa) -> None:
    for method in ("golden", "no_context"):
        assert kgqa("run", f"method={method}", "limit=3", f"output_dir={method}", *QUICK).code == 0
    ran = kgqa("evaluate", "golden", "no_context", "judge=em")
    ranks = ran.out.partition("Ranks under each judge")[2]
    assert "golden: an upper bound, and not ranked." in ranks
    assert re.search(r"^golden +\(", ranks, re.MULTILINE), ranks


def test_runs_without_passages_have_no_score_of_them(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    runs = [str(answered(kgqa, name, f"seed={name}")) for name in ("1", "2")]
    without = kgqa("evaluate", *runs)
    assert (without.code, "support recall" in without.out) == (0, False)
    kgqa("run", "method=golden", "limit=3", "output_dir=golden", *QUICK)
    mixed = kgqa("evaluate", runs[0], "golden").out
    assert "support recall" in mixed
    assert re.search(r"^no_context\b.* –$", mixed, re.MULTILINE), mixed
    assert kgqa("report", runs[0], "--format", "latex").code == 0
    assert "support recall" not in Path(runs[0], "report.tex").read_text(encoding="utf-8")


def test_common_is_silent_about_equal_questions(kgqa: Kgqa) -> None:
    runs = [str(answered(kgqa, name, f"seed={name}")) for name in ("1", "2", "3")]
    ran = kgqa("compare", *runs, "--common")
    assert ran.code == 0
    assert "those that all runs have" not in ran.out


def test_runs_are_compared_on_the_questions_they_share(kgqa: Kgqa) -> None:
    first = answered(kgqa, "a")
    five = kgqa("run", "method=no_context", "limit=5", "run_name=five", *QUICK).folder
    ran = kgqa("compare", str(first), str(five))
    refused(ran, f"2 only in {five}")
    assert f"Compare the 3 they share: kgqa compare {first} {five} --common" in ran.err
    common = kgqa("compare", str(five), str(first), "--common")
    assert common.code == 0
    assert "3 questions" in common.out
    assert "(those that all runs have; A has 5)" in common.out


OFFICIAL = {"answer": ANSWERS, "sp": {IDS[0]: [["Ilse Ravenholt", 0]], IDS[1]: [], IDS[2]: []}}
MUSIQUE = [
    {
        "id": key,
        "predicted_answer": answer,
        "predicted_support_idxs": [1],
        "predicted_answerable": True,
    }
    for key, answer in ANSWERS.items()
]
PLAIN = [{"id": key, "answer": answer} for key, answer in ANSWERS.items()]


@pytest.mark.parametrize(
    ("records", "with_evidence"),
    [([OFFICIAL], 3), (MUSIQUE, 3), (PLAIN, 0)],
    ids=["official", "musique", "plain"],
)
def test_predictions_of_others_are_scored(
    kgqa: Kgqa, records: list[Any], with_evidence: int
) -> None:
    write_lines(Path("p.json"), records)
    ran = kgqa(
        "evaluate", "--predictions", "p.json", "dataset=demo", "limit=3", "output_dir=scored"
    )
    assert ran.code == 0, ran.err
    evaluation = read(Path("scored/evaluation.json"))
    assert evaluation["profiles"]["musique"]["em"] == pytest.approx(200 / 3)
    assert evaluation["scores"]["support_recall"]["n"] == with_evidence


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-30], "predictions.jsonl:3: not readable"),
        (
            lambda text: text.replace(IDS[0], "nobody"),
            f"question {IDS[0]}: only in this file or only in trace",
        ),
        (
            lambda text: "".join(text.splitlines(keepends=True)[:2]),
            f"question {IDS[2]}: only in this file or only in trace.jsonl.zst (1 in all)",
        ),
        (
            lambda text: text.splitlines(keepends=True)[0] + text,
            "predictions.jsonl: a question occurs twice",
        ),
    ],
    ids=["cut", "unknown question", "missing line", "repeated line"],
)
def test_damaged_predictions_are_not_evaluated(
    kgqa: Kgqa, damage: Callable[[str], str], message: str
) -> None:
    """Also in a folder without hashes, as older versions wrote it."""
    folder = answered(kgqa)
    manifest = read(folder / "manifest.json")
    del manifest["files"]
    write_file(str(folder / "manifest.json"), json.dumps(manifest))
    file = folder / "predictions.jsonl"
    file.write_text(damage(file.read_text(encoding="utf-8")), encoding="utf-8")
    refused(kgqa("evaluate", str(folder)), message)
    assert not (folder / "evaluation.json").exists()


def test_incomplete_folder_is_named_with_the_next_step(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    file = folder / "predictions.jsonl"
    text = file.read_text(encoding="utf-8")
    file.unlink()
    refused(
        kgqa("evaluate", str(folder)),
        "the run is not finished (no predictions.jsonl). Run its command again",
    )
    file.write_text(text, encoding="utf-8")
    (folder / "trace.jsonl.zst").unlink()
    refused(
        kgqa("evaluate", str(folder)),
        f"kgqa evaluate --predictions {folder}/predictions.jsonl dataset=NAME",
    )
    assert (
        kgqa(
            "evaluate", "--predictions", f"{folder}/predictions.jsonl", "dataset=demo", "limit=3"
        ).code
        == 0
    )


def test_run_without_answers_is_not_evaluated(kgqa: Kgqa) -> None:
    folder = kgqa("run", "method=retrieve_only", "limit=2", *QUICK).folder
    refused(kgqa("evaluate", str(folder)), "only retrieved passages")


@pytest.mark.slow
def test_a_run_is_judged_after_it_has_answered(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "judged", "judge=three_way")
    assert verdicts(folder) == dict(zip(IDS, ["incorrect", None, "correct"], strict=True))
    judged = read(folder / "metrics.json")["judge"]
    assert judged["accuracy"]["mean"] == 50.0
    assert (judged["unscored"], judged["cost"]["method"]["calls"]) == (1, 4)
    assert judged["models"] == {"judge": "smollm2_135m@scripted"}
    assert judged["warnings"] == []
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "Judge: three_way" in report
    assert "**Warning**: judge=three_way gave no verdict on 1 of 3 answers." in report
    # the judge is no part of a run
    other = "roles.judge=qwen2_5_coder_1_5b@scripted"
    assert answered(kgqa, "judged", "judge=kgp", other) == folder
    metrics = read(folder / "metrics.json")
    assert metrics["cost"]["paid"]["calls"] == 0
    assert metrics["judge"]["models"] == {"judge": "qwen2_5_coder_1_5b@scripted"}


def test_judged_run_writes_its_reports_once(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    files = list[Path]()

    def write(*arguments: Any, **scores: Any) -> Path:
        files.append(write_report(*arguments, **scores))
        return files[-1]

    monkeypatch.setattr(exports, "write_report", write)
    answered(kgqa, "judged", "judge=em")
    assert sorted(file.name for file in files) == ["report.html", "report.md"]
    assert "Judge: em" in files[0].read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_judge_that_dies_takes_no_report_along(kgqa: Kgqa) -> None:
    pytest.importorskip("aiohttp")
    server = Misbehaving(always=refuse(503))  # it lists its models
    failing = (
        "engine=openai",
        f"engine.base_url={server.url}",
        "engine.server_timeout=0.1",
        "model=gpt_4o_mini",
    )
    reader = ("roles.reader=smollm2_135m@scripted", "ranker=lexical", "run_name=orphan")
    ran = kgqa("run", "method=no_context", "limit=2", "judge=kgp", *failing, *reader)
    server.stop()
    assert ran.code == 3
    assert f"{server.url} has not answered any call" in ran.err
    (folder,) = Path("outputs").rglob("orphan")
    assert read(folder / "metrics.json")["questions"] == 2
    assert (folder / "report.md").is_file()
    assert not (folder / "verdicts.jsonl").exists()


def test_missing_adapter_of_a_judge_changes_no_file(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    refused(
        kgqa("evaluate", str(folder), "judge=kgp", "roles.judge=smollm2_135m+none@scripted"),
        "no adapter none",
    )
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_finished_run_is_judged_once(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    calls = []
    for _ in range(2):
        ran = kgqa("evaluate", str(folder), "judge=three_way", *JUDGED_BY)
        cost = read(folder / "evaluation.json")["judge"]["cost"]
        calls.append((ran.code, cost["paid"]["calls"], cost["method"]["calls"]))
    assert calls == [(0, 4, 4), (0, 0, 4)]
    assert verdicts(folder) == dict(zip(IDS, ["incorrect", None, "correct"], strict=True))


def test_scripted_verdicts_need_no_model(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    rules = "engine=scripted", "engine.rules=rules.jsonl"
    assert kgqa("evaluate", str(folder), "judge=three_way", *rules).code == 0
    assert verdicts(folder) == dict(zip(IDS, ["incorrect", None, "correct"], strict=True))


def test_verdict_that_is_unreadable_is_unscored(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    silent = write_rules([(".", "INCORRECT or CORRECT")], "silent.jsonl")
    ran = kgqa("evaluate", str(folder), "judge=three_way", *JUDGED_BY[:2], silent)
    assert ran.code == 0
    judged = read(folder / "evaluation.json")["judge"]
    assert (judged["unscored"], judged["accuracy"]["mean"]) == (3, None)
    assert set(verdicts(folder).values()) == {None}
    assert "unscored" in ran.out
    assert "warning: judge=three_way gave no verdict on 3 of 3 answers" in ran.out


def test_judge_counts_failed_questions_as_wrong(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    lines = lines_of(folder / "predictions.jsonl")
    lines[0] |= {"answer": None, "error": "EngineError: gone"}
    write_lines(folder / "predictions.jsonl", lines)
    manifest = {**read(folder / "manifest.json"), "files": None}  # the hashes
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert kgqa("evaluate", str(folder), "judge=kgp", *JUDGED_BY).code == 0
    evaluation = read(folder / "evaluation.json")
    assert evaluation["failed"] == evaluation["judge"]["failed"] == 1
    assert evaluation["judge"]["cost"]["method"]["calls"] == 2
    assert evaluation["judge"]["accuracy"]["mean"] == pytest.approx(200 / 3)


LABELS = f"question_id,correct,note\n{IDS[0]},0,\n{IDS[2]},yes,sure\n{IDS[1]},,\n"


def test_two_labelers_are_compared(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "c", "judge=em")
    write_file("labels.csv", f"question_id,correct\n{IDS[0]},0\n{IDS[1]},1\n{IDS[2]},1\n")
    write_file("second.csv", f"question_id,correct\n{IDS[0]},0\n{IDS[1]},0\n{IDS[2]},1\n")
    both = ("labels=labels.csv", "other=second.csv")
    ran = kgqa("evaluate", "--calibrate", str(folder), *both)
    assert ran.code == 0, ran.err
    measured = read(folder / "calibration.json")["labelers"]
    # observed 2/3, expected 4/9 by hand
    assert (measured["n"], measured["kappa"]) == (3, pytest.approx(0.4))
    refused(kgqa("evaluate", "--calibrate", str(folder), both[1]), "Add the first: labels=FILE.csv")


def test_saved_verdicts_are_calibrated(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "c", "judge=three_way")
    write_file("labels.csv", LABELS)
    assert kgqa("evaluate", str(folder), "judge=kgp", *JUDGED_BY, "output_dir=second").code == 0
    ran = kgqa("evaluate", "--calibrate", str(folder), "labels=labels.csv", "other=second")
    assert ran.code == 0, ran.err
    measured = read(folder / "calibration.json")
    assert measured["labels"]["agreement"]["percent"] == 100.0
    assert measured["labels"]["kappa"] == 1.0
    assert (measured["EM"]["n"], measured["EM"]["left_out"]) == (2, 1)
    assert measured["second judge"]["confusion"] == {
        "correct": {"correct": 1, "incorrect": 0},
        "incorrect": {"correct": 1, "incorrect": 0},
    }
    assert (measured["containment"]["n"], measured["containment"]["left_out"]) == (2, 1)


def test_verdict_on_another_answer_is_rejected(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "c", "judge=three_way")
    file = folder / "verdicts.jsonl"
    file.write_text(
        file.read_text(encoding="utf-8").replace("Candle Bridge", "Lantern Bridge"),
        encoding="utf-8",
    )
    refused(
        kgqa("evaluate", "--calibrate", str(folder)),
        f"the verdict is on another answer to question {IDS[1]}",
    )
    assert not (folder / "calibration.json").exists()


def test_score_is_calibrated_like_a_judge(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    write_file("labels.csv", LABELS)
    ran = kgqa("evaluate", str(folder), "judge=containment", "labels=labels.csv")
    assert ran.code == 0, ran.err
    calibration = read(folder / "evaluation.json")["calibration"]
    assert (calibration["labels"], calibration["source"]) == (2, "own")
    assert (
        calibration["corrected"]["low"]
        < calibration["corrected"]["mean"]
        < calibration["corrected"]["high"]
    )
    assert "only 2 labels" in ran.out
    assert "judge=" not in (folder / "verdicts.jsonl").read_text(encoding="utf-8")


def test_judge_without_labels_is_marked(kgqa: Kgqa) -> None:
    folder = answered(kgqa)
    ran = kgqa("evaluate", str(folder), "judge=three_way", *JUDGED_BY)
    assert "Warning: this accuracy is not calibrated" in ran.out


def test_sheet_is_filled_and_corrects_a_sweep(kgqa: Kgqa) -> None:
    assert (
        kgqa("run", "-m", "method=no_context,golden", "limit=5", "sweep.name=two", *QUICK).code == 0
    )
    ran = kgqa("evaluate", "two", "--sheet", "4", "labels=labels.csv")
    assert ran.code == 0, ran.err
    lines = Path("labels.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "run,question_id,question,gold,answer,correct"
    assert len(lines) == 1 + 2 * 4
    refused(kgqa("evaluate", "two", "--sheet", "4", "labels=labels.csv"), "this file exists")
    refused(kgqa("evaluate", "two", "judge=em", "labels=labels.csv"), "no labels in this file")
    filled = [lines[0], *(line + str(number % 2) for number, line in enumerate(lines[1:]))]
    write_file("labels.csv", "\n".join(filled) + "\n")
    ran = kgqa("evaluate", "two", "judge=em", "labels=labels.csv")
    assert ran.code == 0, ran.err
    assert "Judge accuracy" in ran.out
    assert "Ranks under each judge" in ran.out
    assert "corrected" in ran.out
    assert ran.out.count("evaluation.json") == 2


def test_table_of_runs_has_their_names(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first, second = answered(kgqa), answered(kgqa, "b", "seed=1")
    lines = kgqa("evaluate", str(first), str(second)).out.splitlines()
    (listed,) = (line for line in lines if line.startswith("B  ") and line.endswith(str(second)))
    assert any(line.startswith(listed.split()[1]) for line in lines[lines.index("Scores") :])


def test_runs_without_labels_use_the_rates_of_others(kgqa: Kgqa) -> None:
    first, second = answered(kgqa), answered(kgqa, "b", "seed=1")
    write_file("labels.csv", f"run,question_id,correct\n{first},{IDS[0]},0\n{first},{IDS[1]},1\n")
    ran = kgqa("evaluate", str(first), str(second), "judge=em", "labels=labels.csv")
    assert ran.code == 0, ran.err
    assert read(second / "evaluation.json")["calibration"]["source"] == "other"
    assert "corrected by labels of other runs" in ran.out


@pytest.mark.parametrize("judge", ["judge=em", "judge=containment", "scoring=drop"])
def test_server_is_not_contacted_without_a_need(kgqa: Kgqa, judge: str) -> None:
    folder = answered(kgqa)
    # there is no server at this port
    ran = kgqa("evaluate", str(folder), judge, "server=http://127.0.0.1:9/v1")
    assert (ran.code, ran.err) == (0, "")
    assert "127.0.0.1" not in ran.out


def test_server_judges_a_run(kgqa: Kgqa) -> None:
    pytest.importorskip("aiohttp")
    folder = answered(kgqa)
    server = Misbehaving(
        always=lambda talk, body: talk.answer(200, reply(body, "1") if "model" in body else {})
    )
    server.models = [{"id": "judge-model"}]
    ran = kgqa("evaluate", str(folder), "judge=kgp", f"server={server.url}")
    server.stop()
    assert ran.code == 0, ran.err
    judge = read(folder / "evaluation.json")["judge"]
    assert judge["accuracy"]["mean"] == 100.0
    assert judge["warnings"] == []


def test_judge_that_is_the_reader_is_named(kgqa: Kgqa) -> None:
    pytest.importorskip("aiohttp")
    server = Misbehaving(
        always=lambda talk, body: talk.answer(200, reply(body, "1") if "model" in body else {})
    )
    server.models = [{"id": "a-model"}]
    words = ("method=no_context", "dataset=demo", "limit=1", "judge=kgp", f"server={server.url}")
    ran = kgqa("run", *words)
    server.stop()
    assert ran.code == 0, ran.err
    assert "warning: the judge is the reader: a-model grades its own answers" in ran.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["labels=a.csv"], "works only with a judge"),
        (["--checks"], "works only with a judge"),
        (["--sheet", "3"], "where is it written?"),
        (["--checks", "judge=em"], "calls no model"),
        (["judge=em", "labels=none.csv"], "labels=none.csv: cannot be read"),
        (["judge=em", "human=a.csv"], "human=a.csv: not a key of kgqa evaluate"),
        (["judge=em", "other=second"], "only with --calibrate"),
    ],
    ids=[
        "no judge",
        "checks without judge",
        "no file",
        "checks of a score",
        "missing",
        "unknown",
        "other",
    ],
)
def test_wrong_use_of_evaluate_is_rejected(kgqa: Kgqa, words: list[str], message: str) -> None:
    folder = answered(kgqa)
    refused(kgqa("evaluate", str(folder), *words), message)
    assert not (folder / "verdicts.jsonl").exists()


def test_consistency_needs_two_more_calls_per_answer(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = answered(kgqa)
    temperatures = Counter[float]()

    def count(_: object, call: Any) -> None:
        temperatures[call.temperature] += 1

    before_each_call(monkeypatch, count)
    ran = kgqa("evaluate", str(folder), "judge=kgp", "--checks", *JUDGED_BY)
    assert ran.code == 0, ran.err
    # the verdict and the one with another order are greedy, the repeated one is sampled
    judged = len(verdicts(folder))
    assert temperatures == {0.0: 2 * judged, 1.0: judged}
    assert "Consistency of the judge" in ran.out
    consistency = read(folder / "evaluation.json")["calibration"]["consistency"]
    assert {key: value["mean"] for key, value in consistency.items()} == dict.fromkeys(
        consistency, 100.0
    )


def test_judge_sees_the_passages_that_a_search_found(kgqa: Kgqa) -> None:
    rules = write_rules(
        [("Decide whether an answer.*Passage 1: .*Question", {"verdict": "supported"})]
    )
    folder = kgqa("run", "method=retrieve_read", "limit=2", "run_name=read", *QUICK).folder
    ran = kgqa("evaluate", str(folder), "judge=faithful", *JUDGED_BY[:2], rules)
    assert ran.code == 0, ran.err
    assert read(folder / "evaluation.json")["judge"]["accuracy"]["mean"] == 100.0


# of OpenInference, those a run has
KINDS = {"LLM", "RETRIEVER", "RERANKER", "CHAIN", "EVALUATOR"}


def exported(kgqa: Kgqa, form: str, *run: str) -> Path:
    assert kgqa("run", *run, "limit=4", *QUICK, "output_dir=one").code == 0
    ran = kgqa("report", "one", "--format", form, "--out", form)
    assert ran.code == 0, ran.err
    assert all(Path(line).exists() for line in ran.out.splitlines())
    return Path(form)


def spans_of(request: Any) -> list[Any]:
    spans: list[Any] = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return spans


def attributes(span: Any) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def test_exported_predictions_and_calls_equal_the_runs(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "jsonl", "method=trace")
    predictions, calls = lines_of(folder / "predictions.jsonl"), lines_of(folder / "traces.jsonl")
    run = FinishedRun.read(Path("one"))
    assert (predictions, calls) == (list(prediction_rows(run)), list(call_rows(run)))
    keys = ("question_id", "question", "gold", "answer", "error", "em", "f1", "evidence")
    own_lines = lines_of(Path("one/predictions.jsonl"))
    assert [{key: row[key] for key in keys} for row in predictions] == [
        {key: line[key] for key in keys} for line in own_lines
    ]
    mean = sum(row["f1"] for row in predictions) / len(predictions)
    assert mean == pytest.approx(run.metrics.score("f1").mean)
    questions = list(read_trace(Path("one")))
    traced = [call for question in questions for call in question.calls]
    own = {question.question.id: len(question.own_calls) for question in questions}
    assert {row["question_id"]: row["calls"] for row in predictions} == own
    assert [json.loads(row["reply"]) for row in calls] == [call.reply for call in traced]
    prompts = [json.loads(row["request"]).get("prompt") for row in calls]
    assert prompts == [call.request.get("prompt") for call in traced]
    own_tokens = sum(row["output_tokens"] or 0 for row in calls if row["role"] != "extractor")
    assert own_tokens == sum(row["output_tokens"] for row in predictions)


def test_lone_surrogate_is_exported_as_an_escape(tmp_path: Path) -> None:
    write_jsonl(iter([{"text": "half: \ud800"}]), tmp_path / "half.jsonl")
    assert lines_of(tmp_path / "half.jsonl") == [{"text": "half: \ud800"}]


def test_trec_files_give_the_runs_own_recall(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "trec", "method=retrieve_read")
    run, gold = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    results = [line.split(" ") for line in (folder / "run.trec").read_text("utf-8").splitlines()]
    for question, _, passage, *_ in results:
        run[question].append(passage)
    assert {(q0, tag) for _, q0, _, _, _, tag in results} == {("Q0", "retrieve_read")}
    ranks = [int(rank) for _, _, _, rank, _, _ in results]
    assert ranks == [rank for passages in run.values() for rank in range(1, len(passages) + 1)]
    judgments = [
        line.split(" ") for line in (folder / "qrels.trec").read_text("utf-8").splitlines()
    ]
    for question, _, passage, _ in judgments:
        gold[question].add(passage)
    assert {relevance for _, _, _, relevance in judgments} == {"1"}
    retrieval = FinishedRun.read(Path("one")).metrics.retrieval
    assert retrieval is not None
    recall = {}
    for budget in retrieval.recall:
        shares = [len(gold[id_] & set(run[id_][: int(budget)])) / len(gold[id_]) for id_ in gold]
        recall[budget] = 100 * sum(shares) / len(shares)
    assert recall == pytest.approx(
        {budget: score.mean for budget, score in retrieval.recall.items()}
    )


def test_trec_export_names_failed_questions(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    error = EngineError("no reply")
    before_each_call(
        monkeypatch, lambda engine, call: error if "Who founded" in engine.render(call) else None
    )
    keys = ("method=golden", "limit=3", "max_failure_rate=1", "output_dir=one", *QUICK)
    assert kgqa("run", *keys).code == 0
    ran = kgqa("report", "one", "--format", "trec", "--out", "trec")
    assert "answered 2 of 3" in ran.out
    assert "failed questions have no line in run.trec" in ran.out
    assert "3hop1__demo_03" not in Path("trec/run.trec").read_text("utf-8")


def test_blanks_of_ids_are_escaped_for_trec() -> None:
    assert trec_column("missing:The Elm\u00a0House") == "missing:The%20Elm%C2%A0House"
    assert trec_column("a%20b") != trec_column("a b")


@pytest.mark.slow
def test_otlp_has_one_trace_per_question(kgqa: Kgqa) -> None:
    folder = exported(kgqa, "otlp", "method=trace", "judge=three_way")
    traced = {question.question.id: question for question in read_trace(Path("one"))}
    text = (folder / "spans.jsonl").read_text("utf-8")
    requests, several = [json.loads(line) for line in text.splitlines()], 0
    assert len(requests) == len(traced) == 4
    for request in requests:
        *calls, root = spans_of(request)
        question = traced[json.loads(attributes(root)["metadata"])["question_id"]]
        assert attributes(root)["output.value"] == question.prediction.answer
        assert {span["parentSpanId"] for span in calls} == {root["spanId"]}
        assert len({span["traceId"] for span in [*calls, root]}) == 1
        kinds = [attributes(span)["openinference.span.kind"] for span in [*calls, root]]
        assert set(kinds) <= KINDS
        asked = [call for call in question.calls if call.kind in ("generate", "choose")]
        assert kinds.count("LLM") == len(asked)
        tokens = sum(int(attributes(span).get("llm.token_count.prompt", 0)) for span in calls)
        assert tokens == sum(call.usage.prompt_tokens for call in asked if call.usage)
        assert all(
            int(span["startTimeUnixNano"]) < int(span["endTimeUnixNano"]) for span in [*calls, root]
        )
        for each in map(attributes, calls):
            # Langfuse reads input.value and no message next to it
            if "llm.input_messages.1.message.content" in each:
                several += 1
                messages = [message["content"] for message in json.loads(each["input.value"])]
                assert messages == [
                    each[f"llm.input_messages.{n}.message.content"] for n in range(len(messages))
                ]
                assert f"llm.input_messages.{len(messages)}.message.content" not in each
        ranked = [call for call in question.calls if call.kind == "rank"]
        searches = [
            each
            for each in map(attributes, calls)
            if "retrieval.documents.0.document.content" in each
        ]
        assert len(searches) >= len(ranked) > 0
    assert several
    Path("again.part").mkdir()
    Path("again.part/left.jsonl").write_text("of an export that was killed")
    assert kgqa("report", "one", "--format", "otlp", "--out", "again").code == 0
    assert text == Path("again/spans.jsonl").read_text("utf-8")
    assert [file.name for file in Path("again").iterdir()] == ["spans.jsonl"]
    service = pytest.importorskip("opentelemetry.proto_json.collector.trace.v1.trace_service")
    for line, ours in zip(text.splitlines(), map(spans_of, requests), strict=True):
        read = (
            service.ExportTraceServiceRequest.from_json(line).resource_spans[0].scope_spans[0].spans
        )
        assert [span.span_id.hex() for span in read] == [span["spanId"] for span in ours]
        assert [len(span.attributes) for span in read] == [len(span["attributes"]) for span in ours]


def test_every_eval_ever_has_scores_of_run_and_judge(kgqa: Kgqa) -> None:
    folder = answered(kgqa, "a", "judge=three_way")
    assert kgqa("report", str(folder), "--format", "eee", "--out", "eee").code == 0
    record = read(next(Path("eee").rglob("*.json")))
    results = record["evaluation_results"]
    by_id = {each["evaluation_result_id"]: each["score_details"]["score"] for each in results}
    metrics = FinishedRun.read(folder).metrics
    assert metrics.judge is not None
    scores = {**metrics.scores, "judge": metrics.judge.accuracy}
    means = {
        f"demo/no_context/{name}": score.mean
        for name, score in scores.items()
        if score.mean is not None
    }
    assert {name: by_id.get(name) for name in means} == pytest.approx(means)
    (judge,) = results[-1]["metric_config"]["llm_scoring"]["judges"]
    # engine=scripted calls no model
    models = (record["model_info"], judge["model_info"])
    assert [model["id"] for model in models] == ["scripted/no model"] * 2
    jsonschema = pytest.importorskip("jsonschema")
    package = find_spec("every_eval_ever")
    if package is None or package.origin is None:
        pytest.skip("every_eval_ever is not installed")
    schema = Path(package.origin).parent / "schemas/eval.schema.json"
    jsonschema.validate(record, json.loads(schema.read_text("utf-8")))


def test_rejected_export_writes_no_file(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kgqa("run", "method=retrieve_only", "limit=2", *QUICK, "output_dir=one").code == 0
    for folder in ("full", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    refusals = {
        ("one", "--format", "jsonl"): "--out DIR is missing",
        (
            "one",
            "--out",
            "out",
            "--format",
            "parquet",
        ): "--format parquet: no such value. Choose from",
        ("nowhere", "--format", "jsonl", "--out", "out"): "no finished run matches",
        ("one", "--format", "jsonl", "--out", "full"): "--out full: this folder is not empty",
        ("one", "--format", "eee", "--out", "out"): "--format eee: one has no answers of a model",
    }
    for arguments, message in refusals.items():
        refused(kgqa("report", *arguments), message)
    trace = tmp_path / "one/trace.jsonl.zst"
    trace.write_bytes(b"\0" * 100 + trace.read_bytes()[100:])
    refused(
        kgqa("report", "one", "--format", "jsonl", "--out", "out"), "trace.jsonl.zst: not the file"
    )
    assert not [*tmp_path.glob("out"), *tmp_path.glob("*.part")]
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine.txt"]
    monkeypatch.chdir(tmp_path / "empty")
    assert (
        "--out .: name a folder" in kgqa("report", "../one", "--format", "jsonl", "--out", ".").err
    )


TRACKED = ("run", "method=all_documents", "limit=3", *QUICK)


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # else MLflow asks for a database, which mlflow-skinny lacks
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-own"))


@pytest.mark.usefixtures("tracked")
def test_mlflow_has_parameters_scores_costs_and_report(kgqa: Kgqa, tmp_path: Path) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    uri = (tmp_path / "store").as_uri()
    ran = kgqa(*TRACKED, "tracker=mlflow", f"tracker.uri={uri}", "output_dir=one")
    assert ran.code == 0, ran.err
    assert "tracked: MLflow run" in ran.out
    client = mlflow.MlflowClient(uri)
    [run] = client.search_runs([client.get_experiment_by_name("kgqa").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "demo/all_documents/one"
    assert run.data.params["method"] == "all_documents"
    assert run.data.params["seed"] == "0"
    assert not [
        name for name in run.data.params if name.startswith(("retriever", "tracker"))
    ]  # not used
    metrics = ran.json("metrics.json")
    for name, end in (("f1", "mean"), ("f1_low", "low"), ("f1_high", "high")):
        assert run.data.metrics[name] == metrics["scores"]["f1"][end]
    assert (
        run.data.metrics["cost_method_prompt_tokens"]
        == metrics["cost"]["method"]["prompt_tokens"]
        > 0
    )
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"report.html", "report.md", "metrics.json", "predictions.jsonl"} <= files


@pytest.mark.usefixtures("tracked")
def test_wandb_offline_stores_the_run_without_network(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setattr(socket, "gethostname", lambda: "host-not-to-be-told")
    for name in ("USER", "LOGNAME", "USERNAME", "WANDB_API_KEY"):
        monkeypatch.setenv(name, f"{name}-not-to-be-told")
    ran = kgqa(*TRACKED, "tracker=wandb", "tracker.folder=kept", "output_dir=one")
    assert ran.code == 0, ran.err
    [folder] = (tmp_path / "kept/wandb").glob("offline-run-*")
    assert f"tracked: {folder.relative_to(tmp_path)}" in ran.out.replace(str(tmp_path) + "/", "")
    [archive] = folder.glob("*.wandb")
    recorded = archive.read_bytes()
    metrics = ran.json("metrics.json")
    for part in (b"dataset.profile", b"f1_low", b"cost_method_usd"):
        # no prices, so no cost in dollars
        assert (part in recorded) == (part != b"cost_method_usd")
    assert json.dumps(metrics["scores"]["f1"]["high"]).encode() in recorded
    assert (folder / "files/report.html").read_text("utf-8") == (
        tmp_path / "one/report.html"
    ).read_text("utf-8")
    assert b"not-to-be-told" not in b"".join(
        file.read_bytes() for file in folder.rglob("*") if file.is_file()
    )
    assert not (folder / "files/requirements.txt").exists()


def test_unreachable_tracker_is_one_warning(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLFLOW_TRACKING_URI can hold a password, and MLflow's errors repeat the address."""

    def fail(*_: object) -> str:
        raise TrackerError("API request to http://user:hunter22@127.0.0.1:1/api failed")

    plain = kgqa(*TRACKED)
    monkeypatch.setattr("kgqa.extras.trackers.mlflow.find_spec", lambda name: object())
    monkeypatch.setattr("kgqa.extras.trackers.mlflow.MlflowTracker.log", fail)
    ran = kgqa(*TRACKED, "tracker=mlflow")
    # a tracker does not make another run
    assert (ran.code, ran.folder) == (0, plain.folder)
    [warning] = [line for line in ran.out.splitlines() if "tracker=mlflow" in line]
    assert warning.startswith(
        "warning: tracker=mlflow: API request to http://[key]@127.0.0.1:1/api failed"
    )
    assert warning.endswith("The run itself is complete")


def test_invalid_tracker_is_rejected_before_any_call(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("mlflow", "wandb"):
        monkeypatch.setattr(f"kgqa.extras.trackers.{module}.find_spec", lambda name: None)
        refused(kgqa(*TRACKED, f"tracker={module}", "output_dir=one"), install_command(module))
    assert not (tmp_path / "one").exists()
    ran = kgqa(*TRACKED, "tracker=mlflow", "tracker.uri='http://user:hunter22@127.0.0.1:5000'")
    refused(ran, "tracker.uri: an address must not contain a user name, a password")
    assert "hunter22" not in ran.out + ran.err
    assert not list(tmp_path.rglob("*.json"))

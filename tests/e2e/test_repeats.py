"""`kgqa compare` and `kgqa plan` of runs with repeats: which runs are compared, over all repeats, and what is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import kgqa as api
from tests.e2e.conftest import DEMO, QUICK, Kgqa, Ran, refused, run_in, write_rules

SWEEP = ("run", "-m", "method=golden,ircot", "limit=4", "repeats=3", "sweep.name=rep", *QUICK)
PASSAGES = ("run", "-m", "method=retrieve_read", "method.passages=1,2", "limit=2", "repeats=2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repeats")
    # IRCoT's prompts have no such instruction, and other examples in each repeat
    rule = r"Write only the answer itself[\s\S]*architect of the Candle"
    rules = write_rules([(rule, "Pellery")], folder / "rules.jsonl")
    assert run_in(folder, *SWEEP, rules).code == 0
    return folder


@pytest.fixture(scope="module")
def compared(place: Path) -> Ran:
    return run_in(place, "compare", "rep", "--out", "c.json")


@pytest.mark.parametrize(
    "names",
    ["rep", "rep/golden rep/ircot", "rep/0 rep/3", "rep/2 rep/ircot", "rep/golden rep/5"],
    ids=["sweep", "methods", "cells", "cell and method", "method and cell"],
)
@pytest.mark.parametrize("command", ["compare", "plan"])
def test_all_repeats_of_rows_are_used(place: Path, command: str, names: str) -> None:
    ran = run_in(place, command, *names.split())
    assert ran.code == 0, ran.err
    assert re.search(r"^A  golden  outputs/demo/golden/\S+ and 2 repeats$", ran.out, re.MULTILINE)
    assert re.search(r"^B  ircot   outputs/demo/ircot/\S+ and 2 repeats$", ran.out, re.MULTILINE)


@pytest.mark.parametrize(
    "text",
    ["4 questions × 3 repeats, profile musique", "with the spread between repeats in intervals"],
    ids=["heading", "note"],
)
def test_comparison_names_its_repeats(compared: Ran, text: str) -> None:
    assert text in compared.out


def test_means_are_those_of_all_repeats(place: Path, compared: Ran) -> None:
    assert compared.code == 0
    written = json.loads((place / "c.json").read_text())
    f1 = written["differences"][1]
    assert (f1["metric"], f1["n"], f1["first_runs"], f1["second_runs"]) == ("F1", 4, 3, 3)
    sweep = json.loads((place / "outputs/sweeps/rep/sweep.json").read_text())
    runs = [
        json.loads((place / cell["run"] / "metrics.json").read_text()) for cell in sweep["cells"]
    ]
    scores = [run["scores"]["f1"]["mean"] for run in runs]
    assert f1["first_mean"] == pytest.approx(sum(scores[:3]) / 3)
    assert f1["second_mean"] == pytest.approx(sum(scores[3:]) / 3)
    assert "means of 3 runs" in written["caption"]


def test_flipped_question_lists_the_answers_of_repeats(place: Path) -> None:
    ran = run_in(place, "compare", "rep/golden", "rep/ircot", "--all")
    flipped = ran.out.partition("Flipped between A and B: 1\n")[2]
    # the same answer in each repeat of golden, three others of IRCoT
    assert re.search(r"A +Pellery +<[^|]*> \| <[^|]*> \| <", flipped), ran.out


@pytest.mark.parametrize(
    "baseline", ["rep/ircot", "rep/4", "ircot", "B"], ids=["row", "cell", "method", "letter"]
)
def test_baseline_is_a_row_with_its_repeats(place: Path, baseline: str) -> None:
    ran = run_in(place, "compare", "rep", f"baseline={baseline}", "metrics=f1")
    assert "baseline: B  ircot" in ran.out, ran.err


@pytest.mark.parametrize(
    "names",
    ["rep/golden rep/ircot", "rep/0 rep/3", "rep/golden baseline=rep/ircot"],
    ids=["methods", "cells", "key"],
)
def test_explain_uses_all_repeats(place: Path, names: str) -> None:
    ran = run_in(place, "explain", *names.split())
    assert ran.code == 0, ran.err
    heading, baseline, *_ = ran.out.splitlines()
    assert re.fullmatch(
        r"outputs/demo/golden/\S+ and 2 repeats: 4 questions × 3 repeats, .*", heading
    )
    assert re.match(r"baseline: outputs/demo/ircot/\S+ and 2 repeats, on the same", baseline)
    # one question of four is right in each repeat of golden, and in none of IRCoT
    assert re.search(r"^right +3  +25\.0  .*  0\.0  \[.* \+25\.0 ", ran.out, re.MULTILINE), ran.out
    assert "Percent of the answers of all repeats" in ran.out
    assert "Wilson" not in ran.out


def test_simulation_is_named_once_per_row(place: Path) -> None:
    ran = run_in(place, "explain", "rep/golden", "rep/ircot")
    warnings = re.findall(
        r"warning: outputs/demo/(\w+)/\S+ and 2 repeats \(engine=scripted", ran.out
    )
    assert warnings == ["golden", "ircot"]
    assert ran.out.count("engine=scripted calls no model") == 2


def test_explained_causes_are_those_of_all_repeats(place: Path) -> None:
    cells = json.loads((place / "outputs/sweeps/rep/sweep.json").read_text())["cells"]
    single = [count_causes(place, cell["run"]) for cell in cells[3:]]
    total = {name: sum(each[name] for each in single) for name in single[0]}
    assert count_causes(place, "rep/ircot") == total
    assert sum(total.values()) == 12


def count_causes(place: Path, run: str) -> dict[str, int]:
    table = run_in(place, "explain", run).out.partition("Signs")[0]
    rows = re.findall(r"^([a-z ]+?)  +(\d+)  ", table, re.MULTILINE)
    return {name: int(count) for name, count in rows}


def test_repeat_of_an_explained_row_is_refused(place: Path) -> None:
    cells = json.loads((place / "outputs/sweeps/rep/sweep.json").read_text())["cells"]
    refused(run_in(place, "explain", "rep/golden", cells[1]["run"]), "the same run twice")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rep"], ("outputs/sweeps/rep/golden", "outputs/sweeps/rep/ircot")),
        (["rep/0", "rep/ircot"], ("rep/0", "rep/ircot")),
    ],
    ids=["sweep", "rows"],
)
def test_explained_runs_are_the_compared_repeats(
    place: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], expected: tuple[str, str]
) -> None:
    monkeypatch.chdir(place)
    compared = api.compare(*names, metrics=["em"])
    explained = compared.choose_explained()
    assert explained == expected
    heading, baseline = api.explain(*explained).heading.splitlines()[:2]
    folders = [compared.rows[0][side] for side in ("first", "second")]
    assert heading.startswith(f"{folders[0]} and 2 repeats: ")
    assert baseline.startswith(f"baseline: {folders[1]} and 2 repeats, ")


def test_a_single_repeat_is_a_run(place: Path) -> None:
    cells = json.loads((place / "outputs/sweeps/rep/sweep.json").read_text())["cells"]
    ran = run_in(place, "compare", cells[0]["run"], cells[3]["run"])
    assert "4 questions, profile musique" in ran.out
    assert "repeats" not in ran.out


def test_a_run_is_compared_with_repeats(place: Path) -> None:
    cells = json.loads((place / "outputs/sweeps/rep/sweep.json").read_text())["cells"]
    ran = run_in(place, "compare", cells[0]["run"], "rep/ircot")
    assert "4 questions × 1 or 3 repeats" in ran.out


def test_repeats_of_other_questions_need_common(place: Path) -> None:
    words = ("method=no_context", "limit=5", "output_dir=five", *QUICK)
    assert run_in(place, "run", *words).code == 0
    ran = run_in(place, "compare", "rep/ircot", "five")
    refused(ran, "different questions, 1 only in five")
    assert ran.err.endswith("Compare the 4 they share: add --common\n")
    common = run_in(place, "compare", "rep/ircot", "five", "--common").out
    assert "(those that all runs have; B has 5)" in common
    assert "4 questions × 1 or 3 repeats" in common


def test_repeat_of_a_named_row_is_refused(place: Path) -> None:
    cells = json.loads((place / "outputs/sweeps/rep/sweep.json").read_text())["cells"]
    refused(run_in(place, "compare", "rep/golden", cells[1]["run"]), "the same run twice")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a sweep in which the second repeat of self_ask has all answers right, and the others none."""
    rules = [
        # a question among the few-shot examples of this repeat only
        (
            rf"the 1971 Dunmallet Hockey[\s\S]*{re.escape(record['question'])}",
            f"So the final answer is: {record['answer']}.",
        )
        for record in map(json.loads, DEMO.read_text(encoding="utf-8").splitlines())
    ]
    folder = tmp_path_factory.mktemp("uneven")
    methods = "method=retrieve_read,self_ask,golden"
    sweep = ("run", "-m", methods, "limit=12", "repeats=3", *QUICK)
    replies = write_rules(rules, folder / "rules.jsonl")
    assert run_in(folder, *sweep, replies, "sweep.name=rep").code == 0
    return folder


def test_plan_names_repeats_that_differ_too_much(uneven: Path) -> None:
    planned = run_in(uneven, "plan", "rep/self_ask", "rep/golden", "difference=5", "metrics=f1")
    assert (
        "no number of questions shows 5 points. Use more repeats, e.g. repeats=10." in planned.out
    )
    # its dashes are not for a missing price
    assert "USD: –" not in planned.out


def test_dash_of_repeats_has_its_own_reason(uneven: Path) -> None:
    planned = run_in(uneven, "plan", "rep", "difference=5").out
    assert "no number of questions shows 5 points" in planned
    assert "EM: in 1 pair no question of the pilot differs." in planned
    assert "–: no question" not in planned


def test_repeats_that_differ_by_chance_have_a_plan(kgqa: Kgqa) -> None:
    sweep = ("run", "-m", "method=retrieve_read,self_ask", "limit=12", "repeats=3", *QUICK)
    assert kgqa(*sweep, "sweep.name=rep").code == 0
    planned = kgqa("plan", "rep", "difference=5", "metrics=f1").out
    assert "no number of questions" not in planned
    assert "by the test of repeats" in planned


def test_plan_prints_a_command_with_repeats(place: Path) -> None:
    command = re.search(r"next: kgqa (.*)", run_in(place, "plan", "rep").out)
    assert command
    words = command[1].split()
    assert words[:3] == ["run", "-m", "method=golden,ircot"]
    assert words[-2:] == ["repeats=3", "limit=36"]
    dry = run_in(place, *words, "dry_run=true")
    assert dry.code == 0, dry.err


def test_method_with_several_rows_is_ambiguous(kgqa: Kgqa) -> None:
    assert kgqa(*PASSAGES, "sweep.name=mine", *QUICK).code == 0
    refused(
        kgqa("compare", "mine/retrieve_read", "mine/0"),
        "mine/retrieve_read: several rows of this sweep have this method. Name one by a cell: mine/0 (",
    )
    ran = kgqa("compare", "mine/0", "mine/2")
    assert "A  retrieve_read · passages 1  " in ran.out
    assert "B  retrieve_read · passages 2  " in ran.out
    explained = api.compare("mine").choose_explained()
    assert sorted(explained) == ["outputs/sweeps/mine/0", "outputs/sweeps/mine/2"]


def test_python_compares_repeats(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    rows = api.compare("rep/golden", "rep/ircot").rows
    assert [(row["first_runs"], row["second_runs"]) for row in rows] == [(3, 3)] * len(rows)

"""kgqa from Python: runs as values, wherever they are asked for."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

import kgqa
from kgqa.cli.commands import BY_NAME
from kgqa.cli.main import main
from kgqa.config.overrides import format_override
from kgqa.errors import InvalidScores
from kgqa.runtime.display import QUIET
from tests.unit.files import refusal

QUICK: dict[str, Any] = {"dataset": "demo", "engine": "scripted", "limit": 3}
NO_KEY = ("engine=openai", "model=gpt_4o_mini", "engine.api_key_env=NO_SUCH_KEY")
MILL = [("Mill", "Ann built the mill in 1900."), ("Town", "The town has a river.")]
pytestmark = pytest.mark.usefixtures("own_folder")


def golden() -> kgqa.Run:
    return kgqa.run(method="golden", display=QUIET, **QUICK)


def sweep_two() -> list[kgqa.Run]:
    return kgqa.sweep(method=["golden", "no_context"], display=QUIET, **QUICK)


def test_scores_of_a_run_have_that_of_its_judge() -> None:
    run = golden()
    assert "judge" not in run.scores
    (evaluation,) = kgqa.evaluate(run, judge="em", display=QUIET)
    assert evaluation.judge is not None
    assert run.scores["judge"] == evaluation.judge.accuracy
    assert run.scores["judge"].n == 3


def test_run_returns_metrics_rows_and_calls() -> None:
    runs: list[kgqa.Run] = []
    thread = threading.Thread(target=lambda: runs.append(golden()))
    thread.start()
    thread.join()
    [run] = runs
    assert run.metrics.questions == len(run.predictions) == 3
    assert {"question_id", "question", "gold", "answer", "em", "f1"} <= run.predictions[0].keys()
    assert len({tuple(row) for row in run.predictions}) == 1
    mean = sum(float(str(row["f1"])) for row in run.predictions) / 3
    assert run.metrics.score("f1").mean == pytest.approx(mean, abs=0.05)
    assert run.scores["f1"] == run.metrics.score("f1")
    assert (
        run.question(str(run.predictions[1]["question_id"])).prediction.answer
        == run.predictions[1]["answer"]
    )
    assert {row["question_id"] for row in run.calls} == {
        row["question_id"] for row in run.predictions
    }
    assert run.report.is_file()

    async def in_a_loop() -> kgqa.Run:
        return golden()

    assert asyncio.run(in_a_loop()).folder == run.folder


def test_scores_of_many_failures_are_not_returned() -> None:
    def answer_first_only(question: Any, tools: Any) -> str:
        if question.id != "demo-1":
            raise ValueError("no answer")
        return "Paris"

    keys: dict[str, Any] = {"method": answer_first_only, "display": QUIET, **QUICK}
    message = r"questions failed, above max_failure_rate=0.05, so the scores are not valid.*kgqa\.load\('(.*)'\)"
    with pytest.raises(InvalidScores, match=message) as caught:
        kgqa.run(**keys)
    loaded = re.search(message, str(caught.value))
    assert loaded is not None
    assert len(kgqa.load(loaded[1]).predictions) == 3
    assert kgqa.run(**keys, max_failure_rate=1).metrics.failed >= 2


def test_a_list_of_values_sweeps_and_its_runs_compare() -> None:
    runs = kgqa.sweep(method=["golden", "no_context"], display=QUIET, **QUICK)
    assert [run.metrics.questions for run in runs] == [3, 3]
    comparison = kgqa.compare(*runs)
    _, first, second, warning = comparison.heading.splitlines()
    assert first == f"A  golden      {runs[0].folder}"
    assert second == f"B  no_context  {runs[1].folder}"
    assert warning.startswith("warning: engine=scripted calls no model")
    assert "<table" in comparison._repr_html_()


@pytest.mark.parametrize(
    "baseline",
    ["B", "golden", "Gold passages", "outputs/demo/golden", "demo/golden"],
    ids=["letter", "label", "label of papers", "folder", "start of a folder"],
)
def test_only_pairs_with_the_baseline_are_corrected(baseline: str) -> None:
    runs = kgqa.sweep(method=["no_context", "golden", "all_documents"], display=QUIET, **QUICK)
    if baseline == "outputs/demo/golden":
        baseline = str(runs[1].folder)
    compared = kgqa.compare(*runs, baseline=baseline, metrics=["f1"])
    pairs = [(each.metric, each.first, each.second) for each in compared.differences]
    assert pairs == [("F1", "A", "B"), ("F1", "C", "B")]
    assert compared.heading.startswith("3 questions, profile musique, 2 tests with Holm's corr")
    assert "over 2 tests" in compared.table.caption


@pytest.mark.parametrize("compare", [kgqa.compare, kgqa.plan])
def test_baseline_can_be_the_number_of_a_cell(compare: Callable[..., Any]) -> None:
    kgqa.sweep("method=golden,no_context,all_documents", name="main", display=QUIET, **QUICK)
    (section, *_) = compare("main", baseline="1", metrics="f1").sections
    pairs = ["golden – no_context", "all_documents – no_context"]
    assert [cell.strip("†") for row in section.rows for cell in row[:2] if " – " in cell] == pairs
    assert refusal(partial(compare, "main", baseline="3")).startswith("baseline=outputs/")


def test_baseline_can_be_a_run_and_a_method() -> None:
    runs = kgqa.sweep("method=golden,no_context", "seed=0,1", display=QUIET, **QUICK)
    several = "baseline=golden: matches the runs A, B. Write the letter of one"
    assert refusal(partial(kgqa.compare, *runs, baseline="golden")).startswith(several)
    compared = kgqa.compare(*runs, baseline=runs[3])
    assert {each.second for each in compared.differences} == {"D"}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"baseline": "goldn"}, "baseline=goldn: no such run. Did you mean golden?"),
        ({"metrics": ["em1"]}, "metrics=em1: no score with a test. Did you mean em?"),
        ({"metrics": ["judge"]}, "metrics=judge: these runs have no verdicts of the same judge"),
    ],
    ids=["baseline", "metric", "judge"],
)
def test_unknown_baseline_or_metric(chosen: dict[str, Any], message: str) -> None:
    runs = kgqa.sweep(method=["golden", "no_context"], display=QUIET, **QUICK)
    assert refusal(partial(kgqa.compare, *runs, **chosen)).startswith(message)


@pytest.mark.parametrize("name", ["main", "sweeps/main", "outputs/sweeps/main"])
def test_name_of_a_sweep_loads_its_runs(name: str) -> None:
    runs = kgqa.sweep(name="main", method=["golden", "no_context"], display=QUIET, **QUICK)
    assert kgqa.load(name) == runs


def test_sweep_comes_before_runs_that_start_alike() -> None:
    runs = kgqa.sweep(name="gold", method=["golden", "no_context"], display=QUIET, **QUICK)
    assert kgqa.load("gold") == runs


def test_row_of_a_sweep_loads_its_repeats() -> None:
    runs = kgqa.sweep("method=golden,no_context", "repeats=2", name="main", display=QUIET, **QUICK)
    assert kgqa.load("main") == runs
    assert kgqa.load("main/no_context") == runs[2:]


def test_sweep_without_finished_runs_is_named() -> None:
    kgqa.sweep("method=golden", *NO_KEY, name="main", dataset="demo", display=QUIET)
    assert refusal(kgqa.load, "main").startswith("main: no cell of this sweep is finished.")


def test_run_named_as_a_sweep_is_loaded() -> None:
    kgqa.sweep(name="main", method=["golden", "no_context"], display=QUIET, **QUICK)
    run = kgqa.run(method="all_documents", run_name="main", display=QUIET, **QUICK)
    assert kgqa.load("main").folder == run.folder


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a command prints."""
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({}, []),
        ({"method": "golden"}, ["method=golden"]),
        ({"name": "main"}, ["main"]),
        ({"name": "demo/no", "model": "scripted"}, ["demo/no", "model=scripted"]),
        ({"dataset": "musique"}, ["dataset=musique"]),
    ],
    ids=["all", "method", "sweep", "start of a name", "none"],
)
def test_runs_are_those_of_the_command(
    filters: dict[str, str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kgqa.sweep(name="main", method=["golden", "no_context"], display=QUIET, **QUICK)
    assert kgqa.runs(**filters) == json.loads(run_command(capsys, "runs", "--json", *words))


def test_plan_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    runs = kgqa.sweep(method=["golden", "no_context"], display=QUIET, **QUICK)
    planned = kgqa.plan(*runs, difference=5, power=0.9, baseline=runs[1], metrics=["f1"])
    names = [str(run.folder) for run in runs]
    words = ["difference=5", "power=0.9", "baseline=B", "metrics=f1"]
    assert planned.heading in run_command(capsys, "plan", *names, *words)
    (section,) = planned.sections
    assert [row[:2] for row in section.rows] == [("golden – no_context", "F1")]
    assert "| golden – no_context | F1 |" in str(planned)
    (row,) = planned.rows
    assert (row["metric"], row["first"], row["second"]) == ("F1", *names)
    assert section.rows[0][2] == f"{row['questions']:,}"
    assert row["pilot_difference"] == kgqa.compare(*runs, metrics="f1").rows[0]["difference"]
    assert "<table" in planned._repr_html_()


def test_comparison_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    kgqa.sweep(name="main", method=["golden", "no_context"], display=QUIET, **QUICK)
    compared = kgqa.compare("main", metrics="F1", scoring="hotpotqa", alpha=0.1, difference=5)
    words = ["metrics=F1", "scoring=hotpotqa", "alpha=0.1", "difference=5", "--out", "c.json"]
    assert compared.heading in run_command(capsys, "compare", "main", *words)
    (row,) = json.loads(Path("c.json").read_text(encoding="utf-8"))["differences"]
    assert json.loads(json.dumps(compared.rows))[0].items() <= row.items()
    assert (row["metric"], row["alpha"]) == ("F1", 0.1)
    assert kgqa.compare("main", metrics=["f1"], scoring="hotpotqa", alpha=0.1).rows == compared.rows


@pytest.mark.parametrize("name", ["compare", "plan", "explain"])
def test_keys_in_python_are_those_of_the_command(name: str) -> None:
    keys = set(BY_NAME[name].own_keys)
    assert (
        keys <= signature(getattr(kgqa, name)).parameters.keys() <= {*keys, "run", "runs", "common"}
    )


def test_explanation_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = kgqa.sweep(method=["golden", "no_context"], display=QUIET, **QUICK)
    page = kgqa.explain(first, second, seed=3).write(first.folder)
    text = page.read_text(encoding="utf-8")
    run_command(capsys, "explain", str(first.folder), str(second.folder), "seed=3")
    assert page.read_text(encoding="utf-8") == text
    assert "baseline:" in text
    rows = kgqa.explain(first, second, seed=3).rows
    assert json.loads(json.dumps(rows)) == rows
    causes = [row for row in rows if row["table"] == "Causes, one per question"]
    (reading,) = (row for row in causes if row["name"] == "reading")
    assert (reading["questions"], reading["percent"], reading["baseline"]) == (3, 100.0, 0.0)
    assert reading["percent_low"] < reading["percent"] == reading["percent_high"]


def test_evaluation_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    kgqa.sweep(name="main", method=["golden", "no_context"], display=QUIET, **QUICK)
    evaluations = kgqa.evaluate("main", judge="containment", scoring="hotpotqa", display=QUIET)
    runs: list[kgqa.Run] = kgqa.load("main")
    files = [json.loads((run.folder / "evaluation.json").read_text()) for run in runs]
    assert [evaluation.json() for evaluation in evaluations] == files
    assert [run.predictions[0]["verdict"] for run in runs] == ["incorrect"] * 2
    run_command(capsys, "evaluate", "main", "judge=containment", "scoring=hotpotqa")
    again = [json.loads((run.folder / "evaluation.json").read_text()) for run in runs]
    assert again == files


def test_plan_names_cells_without_results(capsys: pytest.CaptureFixture[str]) -> None:
    methods = ["golden", "no_context", "all_documents"]
    kgqa.sweep(name="main", method=methods, display=QUIET, **QUICK)
    file = Path("outputs/sweeps/main/cells/002.json")
    state = json.loads(file.read_text())
    file.write_text(json.dumps({**state, "status": "failed", "error": "no memory"}))
    capsys.readouterr()
    kgqa.plan("main")
    lines = capsys.readouterr().err.splitlines()
    missing = "cell 2 (method=all_documents) has no results and is omitted: failed (no memory)"
    assert lines == [f"warning: {missing}"]


@pytest.mark.parametrize("name", ["main", "sweeps/main", "outputs/sweeps/main"])
def test_sweep_in_place_of_a_run_lists_its_runs(name: str) -> None:
    golden_run, _ = kgqa.sweep(name="main", method=["golden", "no_context"], display=QUIET, **QUICK)
    folder = golden_run.folder.relative_to("outputs")
    message = f"{name} is a sweep: name one of its runs: {folder} (method=golden), demo/no_context"
    assert refusal(kgqa.explain, name).startswith(message)


@pytest.mark.parametrize(
    ("cell", "hint"),
    [("goldn", "Did you mean golden?"), ("9", "Choose from: 0, 1, golden, no_context.")],
)
def test_unknown_cell_of_a_sweep_is_named(cell: str, hint: str) -> None:
    kgqa.sweep(name="main", method=["golden", "no_context"], display=QUIET, **QUICK)
    message = f"main/{cell}: no finished cell {cell} in the sweep main. {hint}"
    assert refusal(kgqa.load, f"main/{cell}") == message


@pytest.mark.parametrize("sweep", ["main", "sweeps/main", "outputs/sweeps/main"])
def test_sweep_and_method_name_a_run(sweep: str) -> None:
    runs = kgqa.sweep(name="main", method=["golden", "no_context"], display=QUIET, **QUICK)
    names = [f"{sweep}/golden", f"{sweep}/no_context"]
    assert [kgqa.load(name).folder for name in names] == [run.folder for run in runs]
    compared = kgqa.compare(*names, baseline=names[1])
    assert {each.second for each in compared.differences} == {"B"}


def test_sweep_named_as_a_dataset_hides_no_baseline() -> None:
    _ = kgqa.sweep(name="demo", method=["golden", "no_context"], display=QUIET, seed=1, **QUICK)
    runs = kgqa.sweep(method=["golden", "no_context"], display=QUIET, **QUICK)
    compared = kgqa.compare(*runs, baseline="demo/golden")
    assert {each.second for each in compared.differences} == {"A"}


def test_method_of_several_cells_of_a_sweep() -> None:
    first, _ = kgqa.sweep("method=golden", "seed=0,1", name="main", display=QUIET, **QUICK)
    folder = first.folder.relative_to("outputs")
    message = "main/golden: several runs of this sweep have this method: name one of its runs: "
    assert refusal(kgqa.load, "main/golden").startswith(f"{message}{folder} (seed=0), demo/golden")


def test_comparison_of_a_sweep_is_tables_and_rows() -> None:
    kgqa.sweep(method=["no_context", "golden"], display=QUIET, **QUICK)
    (sweep,) = Path("outputs/sweeps").iterdir()
    compared = kgqa.compare(sweep)
    assert "| metric | runs |" in str(compared)
    assert "<table" in compared._repr_html_()
    (em, f1) = compared.rows
    assert (em["metric"], f1["metric"], em["n"]) == ("EM", "F1", 3)
    assert em.keys() >= {
        "first",
        "second",
        "first_mean",
        "second_mean",
        "difference",
        "low",
        "high",
        "p",
        "adjusted",
    }
    assert "golden" in em["second"]


def test_a_question_is_answered_over_ones_own_passages() -> None:
    answered = kgqa.ask(
        "Who built the mill?", MILL, method="all_documents", engine="scripted", display=QUIET
    )
    assert answered.prediction.error is None
    assert answered.prediction.answer
    assert (answered.prediction.evidence_titles, answered.calls[0].template) == (
        ("Mill", "Town"),
        "reader/answer",
    )
    assert sorted(path.name for path in Path("outputs").iterdir()) == [".cache"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(
            lambda: kgqa.run(method="trase", **QUICK),
            "method=trase: no such method. Did you mean trace",
            id="unknown method",
        ),
        pytest.param(
            lambda: kgqa.run(method="golden", dry_run=True, **QUICK),
            "dry_run",
            id="command-line option",
        ),
        pytest.param(lambda: kgqa.load("nowhere"), "nowhere", id="unknown run"),
        pytest.param(
            lambda: golden().question("none"), "none: no such question", id="unknown question"
        ),
        pytest.param(
            lambda: golden().question("3"), "The closest ids: ", id="number of a question"
        ),
        pytest.param(
            lambda: kgqa.compare(golden()),
            "1 finished run. Name two or more runs",
            id="one run to compare",
        ),
        pytest.param(
            lambda: kgqa.plan("nowhere", "last"), "nowhere: no finished run", id="unknown pilot"
        ),
        pytest.param(
            lambda: kgqa.plan("nowhere", power=2),
            "power=2: must be above 0.05 and below 1",
            id="power",
        ),
        pytest.param(
            lambda: kgqa.compare(*sweep_two(), alpha=2),
            "alpha=2: must be above 0 and up to 0.5",
            id="alpha",
        ),
        pytest.param(
            lambda: kgqa.plan(*sweep_two(), metrics="f2"),
            "metrics=f2: no score with a test",
            id="metric as a text",
        ),
        pytest.param(
            lambda: kgqa.explain(golden(), golden()), "the same run twice", id="own baseline"
        ),
        pytest.param(
            lambda: kgqa.evaluate(golden(), judg="em"),
            "judg=em: not a key of kgqa.evaluate. Did you mean judge?",
            id="unknown key of an evaluation",
        ),
        pytest.param(lambda: kgqa.evaluate(), "name one or more runs", id="nothing to evaluate"),
        pytest.param(
            lambda: kgqa.evaluate(golden(), labels="a.csv"),
            "labels=a.csv: works only with a judge",
            id="labels without a judge",
        ),
        pytest.param(
            lambda: kgqa.evaluate(golden(), checks=True),
            "checks=True: works only with a judge",
            id="checks without a judge",
        ),
        pytest.param(lambda: kgqa.ask(" ", MILL), "a question and a passage", id="empty question"),
        pytest.param(
            lambda: kgqa.ask("Who?", "a text"),  # type: ignore[arg-type]
            r"expected pairs of title and text",
            id="text",
        ),
        pytest.param(
            lambda: kgqa.ask("Who?", [("Title", "")]),
            "a question and a passage",
            id="empty passage",
        ),
    ],
)
def test_a_mistake_is_an_error_of_one_line(wrong: Callable[[], object], message: str) -> None:
    assert message in refusal(wrong)


@pytest.mark.slow
def test_importing_it_imports_nothing_else() -> None:
    script = "import kgqa, sys; assert not {'hydra', 'rich', 'numpy', 'pydantic'} & set(sys.modules); kgqa.run"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "value",
    [
        "trace", " lead", "it's", "C:\\x\\'y", "trailing\\", "12", "1e5", "true", "null", "", "nan", "a,b", "f#n",
        "${x}", "é", "a b/c.jsonl", "range(1)", "~x", None, True, 3, 2.5, ["a", "b,c"], {"a": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_every_value_means_itself_in_hydras_grammar(value: Any) -> None:
    override = OverridesParser.create().parse_override(format_override("key", value))
    assert not override.is_sweep_override()
    parsed = override.value()
    assert getattr(parsed, "text", parsed) == value

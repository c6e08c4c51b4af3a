"""Tables for papers and written comparisons, from the command line."""

from __future__ import annotations

import csv
import json
import re
from importlib import resources
from pathlib import Path

import pytest

from kgqa.api import load
from tests.e2e.conftest import DEMO, QUICK, Kgqa, refused, run_in, write_rules

METHODS = ("golden", "no_context")


@pytest.fixture
def sweep(kgqa: Kgqa) -> str:
    assert (
        kgqa("run", "-m", "method=golden,no_context", "limit=4", "sweep.name=main", *QUICK).code
        == 0
    )
    return "main"


def test_sweep_and_run_become_one_table(kgqa: Kgqa, sweep: str) -> None:
    assert kgqa("run", "method=all_documents", "limit=4", "output_dir=more", *QUICK).code == 0
    ran = kgqa(
        "report",
        sweep,
        "more",
        "--table",
        "paper",
        "--format",
        "csv",
        "baseline=golden",
        "--out",
        "t.csv",
    )
    assert ran.code == 0, ran.err
    with Path("t.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["method"] for row in rows if row["metric"] == "em"] == [
        "Gold passages",
        "No context",
        "All documents",
    ]
    metrics = json.loads(Path("more/metrics.json").read_text(encoding="utf-8"))
    assert float(rows[-1]["value"]) == pytest.approx(metrics["scores"]["f1"]["mean"])


def test_csv_marks_values_without_a_model(kgqa: Kgqa, sweep: str) -> None:
    assert kgqa("report", sweep, "--table", "paper", "--format", "csv", "--out", "t.csv").code == 0
    with Path("t.csv").open(encoding="utf-8") as lines:
        assert {row["model"] for row in csv.DictReader(lines)} == {"no model"}


def test_caption_names_no_model_that_was_not_called(kgqa: Kgqa) -> None:
    words = ("method=retrieve_read", "model=qwen2_5_coder_1_5b", "limit=2", "output_dir=r")
    assert kgqa("run", *words, *QUICK).code == 0
    assert kgqa("report", "r", "--table", "paper", "--format", "md").code == 0
    text = Path("r/table.md").read_text(encoding="utf-8")
    assert "with retriever BM25." in text


@pytest.fixture
def sweep_with_failure(kgqa: Kgqa) -> str:
    command = ("run", "-m", "method=golden,no_context,all_documents", "limit=4", *QUICK)
    folder = kgqa(*command, "sweep.name=main").folder
    state = folder / "cells/002.json"
    state.write_text(state.read_text().replace('"done"', '"failed"').replace("null", '"disk full"'))
    return "main"


OMITTED = "Without results and omitted: cell 2 (method=all_documents)."


@pytest.mark.parametrize("form", ["md", "csv", "latex"])
def test_table_names_cells_without_results(kgqa: Kgqa, sweep_with_failure: str, form: str) -> None:
    ran = kgqa("report", sweep_with_failure, "--table", "paper", "--format", form)
    assert ran.err == (
        "warning: cell 2 (method=all_documents) has no results and is omitted: failed (disk full)\n"
    )
    text = Path(ran.out.strip()).read_text(encoding="utf-8").replace("\\_", "_")
    assert (OMITTED in text) == (form != "csv")


@pytest.mark.parametrize("end", ["md", "tex", "json"])
def test_comparison_names_cells_without_results(
    kgqa: Kgqa, sweep_with_failure: str, end: str
) -> None:
    ran = kgqa("compare", sweep_with_failure, "--out", f"c.{end}")
    assert "warning: cell 2 (method=all_documents) has no results" in ran.err
    assert OMITTED in ran.out
    assert OMITTED in Path(f"c.{end}").read_text(encoding="utf-8").replace("\\_", "_")


def test_rows_of_single_runs_name_their_settings(kgqa: Kgqa) -> None:
    for name, perturb in (("plain", "null"), ("without", "remove_gold")):
        words = (
            "method=all_documents",
            "limit=4",
            f"dataset.perturb={perturb}",
            f"output_dir={name}",
        )
        assert kgqa("run", *words, *QUICK).code == 0
    ran = kgqa("report", "plain", "without", "--table", "paper", "--format", "md")
    assert ran.code == 0, ran.err
    assert "| All documents · perturb remove_gold |" in Path("plain/table.md").read_text(
        encoding="utf-8"
    )


def test_rows_of_sweeps_name_their_fixed_settings(kgqa: Kgqa) -> None:
    for steps in ("1", "2"):
        words = ("method=ircot", f"method.max_steps={steps}", "limit=2", f"sweep.name=steps{steps}")
        assert kgqa("run", "-m", *words, *QUICK).code == 0
    ran = kgqa("report", "steps1", "steps2", "--table", "paper", "--format", "md")
    assert ran.code == 0, ran.err
    rows = Path("outputs/sweeps/steps1/table.md").read_text(encoding="utf-8").splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:4]] == [
        "IRCoT · max steps 1",
        "IRCoT · max steps 2",
    ]


def test_settings_without_effect_name_no_row(kgqa: Kgqa) -> None:
    for name, setting in (("one", "max_parallel_questions=1"), ("two", "ids=[3hop1__demo_03]")):
        words = ("method=no_context", "limit=1", setting, f"output_dir={name}")
        assert kgqa("run", *words, *QUICK).code == 0
    ran = kgqa("report", "one", "two", "--table", "paper", "--format", "md")
    refused(ran, "2 runs of no_context on demo")


def test_judge_of_a_later_evaluation_has_a_column(kgqa: Kgqa, sweep: str) -> None:
    assert kgqa("evaluate", sweep, "judge=containment").code == 0
    ran = kgqa("report", sweep, "--table", "paper", "--format", "md", "metrics=judge")
    assert ran.code == 0, ran.err
    text = Path(ran.out.strip()).read_text(encoding="utf-8")
    assert "demo judge accuracy" in text
    assert "The judge is not calibrated." in text
    assert kgqa("report", sweep, "--format", "md").code == 0
    assert "| judge accuracy |" in Path("outputs/sweeps/main/report.md").read_text(encoding="utf-8")


def test_csv_of_a_sweep_has_a_later_judge(kgqa: Kgqa, sweep: str) -> None:
    assert kgqa("evaluate", sweep, "judge=containment").code == 0
    assert kgqa("report", sweep, "--format", "csv", "--out", "s.csv").code == 0
    with Path("s.csv").open(encoding="utf-8") as lines:
        accuracies = [row["judge accuracy"] for row in csv.DictReader(lines)]
    assert accuracies == ["0.0", "0.0"]


def test_sweep_shows_the_judge_that_it_chose(kgqa: Kgqa) -> None:
    rules = write_rules([("Compare an answer", {"verdict": "correct"}), (".", "Nowhere")])
    words = ("run", "-m", "method=golden,no_context", "limit=4", rules, *QUICK)
    assert kgqa(*words, "sweep.name=a").code == 0
    assert kgqa("evaluate", "a", "judge=em").code == 0
    ran = kgqa(*words, "judge=three_way", "sweep.name=b")
    assert "the verdicts of judge=three_way replace those of judge=em" in ran.out
    assert kgqa("report", "b", "--format", "csv", "--out", "s.csv").code == 0
    with Path("s.csv").open(encoding="utf-8") as lines:
        assert [row["judge accuracy"] for row in csv.DictReader(lines)] == ["100.0", "100.0"]
    assert [run.scores["judge"].mean for run in load("b")] == [100.0, 100.0]
    table = kgqa("report", "b", "--table", "paper", "--format", "md", "metrics=judge")
    assert "Judge: three_way" in Path(table.out.strip()).read_text(encoding="utf-8")


def test_sweep_judges_again_what_another_judge_replaced(kgqa: Kgqa) -> None:
    rules = write_rules([("Compare an answer", {"verdict": "correct"}), (".", "Nowhere")])
    words = ("run", "-m", "method=golden,no_context", "limit=4", rules, "judge=three_way", *QUICK)
    folder = kgqa(*words).folder
    run = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["cells"][1]["run"]
    assert kgqa("evaluate", run, "judge=em").code == 0
    assert kgqa("report", run, "--format", "md").code == 0
    assert "Judge: em" in Path(run, "report.md").read_text(encoding="utf-8")
    assert "cells: 1 done before, 1 done" in kgqa(*words).out
    verdicts = Path(run, "verdicts.jsonl").read_text(encoding="utf-8")
    assert verdicts.count('"judge": "three_way') == 4
    assert load(run).scores["judge"].mean == 100.0


@pytest.fixture
def two_runs(kgqa: Kgqa) -> None:
    codes = [
        kgqa("run", f"method={name}", "limit=4", f"output_dir={name}", *QUICK).code
        for name in METHODS
    ]
    assert codes == [0, 0]


PAIR = {
    "md": "| EM | Gold passages | No context | 4 | ",
    "tex": "EM & Gold passages & No context & 4 & ",
    "json": '"first_name": "Gold passages"',
}
WARNINGS = "No model was called: the scores are meaningless."


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("end", PAIR)
def test_comparison_is_written(kgqa: Kgqa, end: str) -> None:
    ran = kgqa("compare", *METHODS, "--out", f"c.{end}")
    assert ran.code == 0, ran.err
    text = Path(f"c.{end}").read_text(encoding="utf-8")
    visible = "\n".join(line for line in text.splitlines() if line[:1] != "%")
    assert PAIR[end] in visible
    assert "with Holm's correction over 2 tests." in visible
    assert WARNINGS in visible


AGAINST = {
    "md": ["| metric | run | n | mean | No context | ", "| EM | Gold passages | 4 | "],
    "tex": ["Metric & Run & $n$ & Mean & No context & ", "EM & Gold passages & 4 & "],
}


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("end", AGAINST)
def test_baseline_is_a_column_of_the_comparison(kgqa: Kgqa, end: str) -> None:
    ran = kgqa("compare", *METHODS, "baseline=no_context", "--out", f"c.{end}")
    assert "baseline: B  no_context" in ran.out
    text = Path(f"c.{end}").read_text(encoding="utf-8")
    assert [part for part in AGAINST[end] if part not in text] == []
    assert "Each run minus No context on the same questions" in text


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["correction=bh"], "p (BH)"),
        (["correction=none"], "test, with no correction."),
        (["difference=99"], "equal within 99"),
    ],
    ids=["bh", "none", "equal"],
)
def test_comparison_has_other_tests(kgqa: Kgqa, words: list[str], text: str) -> None:
    ran = kgqa("compare", *METHODS, *words)
    assert ran.code == 0, ran.err
    assert text in ran.out


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("correction=hol", "correction=hol: no such correction. Did you mean holm?"),
        ("alpha=2", "alpha=2: must be above 0"),
    ],
    ids=["correction", "alpha"],
)
def test_wrong_test_is_rejected(kgqa: Kgqa, words: str, message: str) -> None:
    refused(kgqa("compare", *METHODS, words), message)
    refused(kgqa("report", *METHODS, "--table", "paper", "--format", "md", words), message)


@pytest.mark.usefixtures("two_runs")
def test_wrong_suffix_is_found_before_comparing(kgqa: Kgqa) -> None:
    ran = kgqa("compare", *METHODS, "--out", "c.txt")
    refused(ran, "--out c.txt: choose a name that ends in .md, .tex, .html or .json")
    assert ran.out == ""


def test_comparison_page_has_the_flipped_questions(kgqa: Kgqa) -> None:
    rules = write_rules([("architect of the Candle", "Pellery")])
    for name, more in (("golden", [rules]), ("no_context", [])):
        kgqa("run", f"method={name}", "limit=4", f"output_dir={name}", *more, *QUICK)
    assert kgqa("compare", *METHODS, "--out", "c.html").code == 0
    page = Path("c.html").read_text("utf-8")
    assert page.lstrip().startswith("<!doctype html>")
    titles = re.findall(r"<h2[^>]*>([^<]*)</h2>", page)
    assert any(title.startswith("Flipped") for title in titles), titles


@pytest.mark.usefixtures("two_runs")
def test_rows_are_chosen_named_and_have_costs(kgqa: Kgqa) -> None:
    keys = ("rows=no_context:Without passages,golden", "metrics=EM,Calls", "intervals=true")
    ran = kgqa("report", *METHODS, "--table", "paper", "--format", "md", *keys, "--out", "t.md")
    assert ran.code == 0, ran.err
    lines = Path("t.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "| method | demo EM | demo calls |"
    assert lines[2:4] == [
        "| Without passages | 0.0 [0.0, 49.0] | 1.0 |",
        "| Gold passages | 0.0 [0.0, 49.0] | 1.0 |",
    ]


def test_equal_methods_are_named_by_settings(kgqa: Kgqa) -> None:
    for name, steps in (("s1", 1), ("s2", 2), ("s3", 1)):
        words = ("method=ircot", f"method.max_steps={steps}", "limit=2", f"output_dir={name}")
        assert kgqa("run", *words, *QUICK).code == 0
    assert kgqa("compare", "s1", "s2", "s3", "--out", "c.tex").code == 0
    table = Path("c.tex").read_text(encoding="utf-8")
    assert "EM & IRCoT · max steps 1 (s1) & IRCoT · max steps 2 & 2 & " in table


def test_paper_table_is_latex_by_default(kgqa: Kgqa, sweep: str) -> None:
    assert kgqa("report", sweep, "--table", "paper").out.strip().endswith("table.tex")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--table", "paper", "--format", "html"], "--format html: not with --table paper"),
        (
            ["baseline=golden"],
            "baseline=golden: works only with --table paper. Write: kgqa report ",
        ),
        (
            ["--table", "paper", "--format", "md", "metrics=nothing"],
            "metrics=nothing: no such score",
        ),
    ],
    ids=["format", "no table", "metric"],
)
def test_wrong_table_command_is_rejected(
    kgqa: Kgqa, sweep: str, words: list[str], message: str
) -> None:
    refused(kgqa("report", sweep, *words), message)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("--out r.md", "# "),
        ("--out r.tex", "% needs"),
        ("--out r.html", "<!doctype html>"),
        ("--out r.md --format html", "<!doctype html>"),
        ("--out r.csv --table paper", "method,dataset,"),
    ],
    ids=["md", "tex", "html", "format", "table"],
)
def test_name_of_a_report_chooses_its_format(
    kgqa: Kgqa, sweep: str, words: str, start: str
) -> None:
    assert kgqa("report", sweep, *words.split()).code == 0
    assert Path(words.split()[1]).read_text(encoding="utf-8").startswith(start)


def test_report_with_another_ending_is_rejected(kgqa: Kgqa, sweep: str) -> None:
    ran = kgqa("report", sweep, "--out", "chart.png")
    refused(ran, "--out chart.png: choose a name that ends in .html, .md, .csv or .tex")
    assert not Path("chart.png").exists()


@pytest.mark.usefixtures("two_runs")
def test_report_of_two_runs_shows_the_commands(kgqa: Kgqa) -> None:
    first, second = METHODS[:2]
    ran = kgqa("report", first, second)
    assert ran.err.startswith(f"kgqa: {first} {second}: a report is of one run or sweep\n")
    commands = re.findall(r": kgqa (.*)$", ran.err, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["report", "compare"]
    assert [kgqa(*command.split()).code for command in commands] == [0, 0]


NO_TO_ALL = [("Where|Which|Who|What", "no")]


def test_explain_detects_answers_to_another_kind(kgqa: Kgqa) -> None:
    rules = write_rules(NO_TO_ALL)
    assert kgqa("run", "method=golden", "limit=8", "output_dir=no", *QUICK, rules).code == 0
    assert kgqa("run", "method=all_documents", "limit=8", "output_dir=base", *QUICK).code == 0
    ran = kgqa("explain", "no", "baseline=base")
    assert ran.code == 0, ran.err
    (line,) = (line for line in ran.out.splitlines() if line.startswith("yes or no "))
    assert int(line.split()[3]) >= 5
    assert "+75.0" in line
    assert "2hop__demo_02" in line
    text = Path("no/explain.md").read_text(encoding="utf-8")
    assert "report.html#q=" in text
    assert "By hops" in text


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the report of a run that has every answer right, with a baseline that always answers no."""
    folder = tmp_path_factory.mktemp("explained")
    golds = [json.loads(line) for line in DEMO.read_text(encoding="utf-8").splitlines()]
    rules = [(re.escape(gold["question"]), gold["answer"]) for gold in golds]
    for name, replies in (("mine", rules), ("base", [("", "no")])):
        write_rules(replies, folder / f"{name}.jsonl")
        words = ("limit=8", f"output_dir={name}", f"engine.rules={name}.jsonl", *QUICK)
        assert run_in(folder, "run", "method=all_documents", *words, "judge=em").code == 0
    assert run_in(folder, "explain", "mine", "baseline=base").code == 0
    return (folder / "mine/explain.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "row",
    [
        "| EM | 2 | 5 | 100.0  [56.6, 100.0] | 0.0  [0.0, 43.4] | +100.0 [+",
        "| judge accuracy | 2 | 5 | 100.0  [56.6, 100.0] | 0.0  [0.0, 43.4] | +100.0 [+",
        "| reading | 2 | 5 | 0.0  [0.0, 43.4] | 100.0  [56.6, 100.0] | -100.0 [-",
        "| passages: recall | 8 | 100.0",
    ],
    ids=["score", "judge", "cause", "citations"],
)
def test_explain_compares_groups_with_the_baseline(explained: str, row: str) -> None:
    assert row in explained, explained


def test_explain_shows_the_number_of_its_tests(explained: str) -> None:
    header = re.search(r"difference \(p of (\d+)\)", explained)
    causes = explained.partition("## Signs")[0]
    ps = re.findall(r"\(p ([\d.]+)\)", causes)
    assert header
    # 7 of 8 questions are right in one run only, and have the cause reading in the other
    assert (len(ps), int(header[1])) == (2, 2)
    assert ps == [f"{2 * 2 / 2**7:.3f}"] * 2
    assert "p of N: McNemar's exact test, with Holm's correction over N tests" in explained


@pytest.mark.usefixtures("two_runs")
def test_number_of_tests_is_on_one_line(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    # where the table fits only with a header on two lines
    monkeypatch.setenv("COLUMNS", "75")
    assert re.search(r"(?m)^.* \(p of \d\)$", kgqa("explain", *METHODS[:2]).out)


def test_comparison_is_readable_in_60_columns(
    kgqa: Kgqa, sweep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kgqa("run", "method=all_documents", "limit=4", "output_dir=more", *QUICK).code == 0
    monkeypatch.setenv("COLUMNS", "60")
    table = kgqa("compare", sweep, "more").out.partition("Differences\n")[2].splitlines()
    assert max(map(len, table)) <= 60
    assert table[1].endswith("  difference  p (Holm)  result")
    # the rows of a metric are below its name
    assert [line for line in table if line in ("EM", "F1")] == ["EM", "F1"]
    assert re.match(r"  A – B† +\d+\.\d  \d+\.\d  ", table[3])


def test_explain_omits_causes_of_neither_run(explained: str) -> None:
    assert "| reading | 2 |" in explained
    assert "| no evidence | 2 |" not in explained


def test_explain_corrects_for_causes_that_occur(explained: str) -> None:
    # two causes occur: seven of seven questions that differ, p is 2 * 2 / 2^7
    assert re.search(r"^\| right \| 8 .* \+87\.5 \(p 0\.031\)\* \|", explained, re.MULTILINE)
    assert re.search(r"^\| retrieval \| 0 .* – \|  \|", explained, re.MULTILINE)


@pytest.mark.parametrize("command", ["explain mine", "explain mine base"], ids=["run", "baseline"])
def test_explain_fits_a_terminal(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    for name, method in (("mine", "retrieve_read"), ("base", "all_documents")):
        assert kgqa("run", f"method={method}", f"output_dir={name}", *QUICK).code == 0
    monkeypatch.setenv("COLUMNS", "80")
    ran = kgqa(*command.split())
    groups = ran.out.partition("By hops\n")[2].splitlines()
    assert any(re.match(r"retrieval +4 +6 +100\.0 ", line) for line in groups), ran.out
    assert not any(line.startswith("not shown") for line in groups)
    assert all(len(line) <= 80 for line in groups)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (4, "baseline: base, on the 3 questions that both have: 3 of 3 and of 4"),
        (2, "baseline: base, on the 2 questions that both have: 2 of 3 and of 2"),
        (3, "baseline: base, on the same questions"),
    ],
    ids=["more", "fewer", "equal"],
)
def test_explain_names_the_questions_of_both(kgqa: Kgqa, limit: int, text: str) -> None:
    assert kgqa("run", "method=golden", "limit=3", "output_dir=mine", *QUICK).code == 0
    words = ("method=no_context", f"limit={limit}", "output_dir=base")
    assert kgqa("run", *words, *QUICK).code == 0
    assert text in kgqa("explain", "mine", "baseline=base").out.splitlines()


@pytest.mark.usefixtures("two_runs")
def test_explain_accepts_the_baseline_as_a_second_run(kgqa: Kgqa) -> None:
    first, second = METHODS[:2]
    outputs = [kgqa("explain", first, word).out for word in (second, f"baseline={second}")]
    assert outputs[0] == outputs[1]
    assert f"baseline: {second}" in outputs[0]
    refused(
        kgqa("explain", first, second, f"baseline={second}"),
        f"baseline={second}: {second} is the baseline. Name one",
    )


def test_compare_of_two_datasets_suggests_no_profile(kgqa: Kgqa) -> None:
    for name, profile in (("2hop__demo_01", "musique"), ("2hop__demo_02", "hotpotqa")):
        words = ("run", "method=golden", f"ids=[{name}]", f"scoring={profile}", *QUICK)
        assert kgqa(*words, f"output_dir={profile}").code == 0
    refused(kgqa("compare", "musique", "hotpotqa"), "no question in common")


@pytest.mark.parametrize("command", ["compare", "explain", "plan"])
def test_runs_with_other_rules_need_scoring(kgqa: Kgqa, command: str) -> None:
    for name, profile in (("golden", "musique"), ("no_context", "hotpotqa")):
        words = (f"method={name}", "limit=2", f"scoring={profile}", f"output_dir={name}")
        assert kgqa("run", *words, *QUICK).code == 0
    refused(kgqa(command, *METHODS), "scored by hotpotqa and musique. Choose one with scoring=")
    assert kgqa(command, *METHODS, "scoring=2wiki").code == 0


@pytest.mark.usefixtures("two_runs")
def test_suggested_explanation_has_the_rules(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = kgqa("compare", *METHODS, "scoring=2wiki", "seed=3", "alpha=0.01").out
    assert re.search(r"next: kgqa explain golden no_context scoring=2wiki seed=3", out)
    assert "profile 2wiki" in kgqa("explain", *METHODS, "scoring=2wiki").out


def test_explain_needs_common_questions(kgqa: Kgqa) -> None:
    assert kgqa("run", "method=golden", "ids=[2hop__demo_01]", "output_dir=a", *QUICK).code == 0
    assert kgqa("run", "method=golden", "ids=[2hop__demo_02]", "output_dir=b", *QUICK).code == 0
    refused(kgqa("explain", "a", "baseline=b"), "no question in common")


def _answer_from(passages: str, own: str) -> str:
    """Return the rules of a reader that finds one answer in its passages, or else gives its own."""
    return write_rules([(passages, "Pellery"), ("architect of the Candle", own)], "reader.jsonl")


@pytest.mark.parametrize(
    ("own", "fate"),
    [("Pellery", "own knowledge"), ("I don't know", "abstained")],
    ids=["knows", "abstains"],
)
def test_removed_gold_passages_show_own_knowledge(kgqa: Kgqa, own: str, fate: str) -> None:
    rules = _answer_from("born in Pellery", own)
    same = ("method=all_documents", "ids=[2hop__demo_01]", *QUICK, rules)
    assert kgqa("run", *same, "output_dir=plain").code == 0
    assert kgqa("run", *same, "dataset.perturb=remove_gold", "output_dir=without").code == 0
    assert kgqa("compare", "plain", "without", "--out", "c.md").code == 0
    lines = [line.split(" | ") for line in Path("c.md").read_text(encoding="utf-8").splitlines()]
    header = next(line for line in lines if "changed passages" in line)
    row = next(line for line in lines if line[1:2] == ["remove_gold"])
    assert row[header.index(fate)].startswith("100.0")


def test_evidence_is_followed_by_the_same_method(kgqa: Kgqa) -> None:
    same = ("ids=[2hop__demo_01]", *QUICK)
    assert kgqa("run", "method=all_documents", *same, "output_dir=plain").code == 0
    for method in ("all_documents", "no_context"):
        words = (f"method={method}", "dataset.perturb=remove_gold", f"output_dir={method}")
        assert kgqa("run", *words, *same).code == 0
    ran = kgqa("compare", "plain", "all_documents", "no_context")
    _, table = ran.out.split("Followed the evidence")
    assert "A – B" in table.partition("\n\n")[0]
    assert "A – C" not in table.partition("\n\n")[0]


def test_searching_method_cannot_be_perturbed(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=retrieve_read", "dataset.perturb=shuffle", "limit=1", *QUICK)
    refused(ran, "method=retrieve_read searches a corpus")


def test_perturbed_run_has_another_name(kgqa: Kgqa) -> None:
    plain = kgqa("run", "method=all_documents", "limit=2", *QUICK).folder
    assert (
        kgqa("run", "method=all_documents", "limit=2", "dataset.perturb=shuffle", *QUICK).folder
        != plain
    )


@pytest.mark.usefixtures("two_runs")
def test_plan_shows_questions_and_cost(kgqa: Kgqa) -> None:
    ran = kgqa("plan", *METHODS, "difference=10")
    assert ran.code == 0, ran.err
    assert "questions for 10 points" in ran.out
    assert "set metrics=f1 here and in kgqa compare." in ran.out
    assert "shows 1 point with power 0.8" in kgqa("plan", *METHODS, "difference=1").out
    # of METHODS' four questions
    assert "Warning: the pilot has 4 questions, so that these numbers are very uncertain" in ran.out
    refused(kgqa("plan", *METHODS, "power=2"), "power=2")
    refused(kgqa("plan", *METHODS, "power=0.2", "alpha=0.3"), "power=0.2: must be above alpha=0.3")


@pytest.mark.parametrize(
    ("limit", "advice"),
    [
        (4, "Run the methods on all 36 of the dataset: limit=36."),
        (36, "the pilot has 36 questions, so that these numbers are very uncertain. The dataset has no others."),
    ],
    ids=["some", "all"],
)  # fmt: skip
def test_plan_needs_no_more_than_the_dataset_has(kgqa: Kgqa, limit: int, advice: str) -> None:
    ran = ("dataset=demo", f"limit={limit}", *QUICK)
    sweep = kgqa("run", "-m", "method=golden,no_context", *ran).folder
    planned = kgqa("plan", str(sweep)).out
    assert advice in planned
    assert "all 36 show" in planned
    assert "the cautious number, at most 36," in planned
    # the same as "all 36 show" if the pilot has all
    assert ("pilot shows" in planned) == (limit < 36)


@pytest.mark.parametrize(
    ("copies", "advice"),
    [
        (2, "on all 72 of the dataset: limit=72."),
        (3, "on 40 or more, then plan again: limit=40."),
    ],
    ids=["72", "108"],
)
def test_pilot_suits_the_size_of_the_dataset(kgqa: Kgqa, copies: int, advice: str) -> None:
    demo = resources.files("kgqa.datasets").joinpath("demo.jsonl").read_text(encoding="utf-8")
    # the same questions with other ids
    files = [demo.replace('"id": "', f'"id": "{number}_') for number in range(copies)]
    Path("own.jsonl").write_text("".join(files), encoding="utf-8")
    ran = ("dataset=demo", "dataset.path=own.jsonl", "limit=10", *QUICK)
    sweep = kgqa("run", "-m", "method=golden,no_context", *ran).folder
    planned = kgqa("plan", str(sweep), "difference=60", "metrics=f1").out
    assert f"Run the methods {advice}" in planned
    (command,) = re.findall(r"next: kgqa (.*)", planned)
    assert command.endswith(re.findall(r"limit=\d+", advice)[0])


NO_SPREAD, NO_PRICE = "–: no question of the pilot differs.", "USD: – if a model has no price."
PRICES = "model.prices.input=1 model.prices.cached=1 model.prices.output=1"


@pytest.mark.parametrize(
    ("metric", "prices", "legends"),
    [
        pytest.param("f1", "", [NO_PRICE], id="no price"),
        pytest.param("em", "", [NO_SPREAD, NO_PRICE], id="neither"),
        pytest.param("em", PRICES, [NO_SPREAD], id="no spread"),
        pytest.param("f1", PRICES, [], id="both known"),
    ],
)
def test_plan_explains_the_dashes_it_shows(
    kgqa: Kgqa, metric: str, prices: str, legends: list[str]
) -> None:
    ran = ("dataset=demo", "limit=4", *QUICK, *prices.split())
    sweep = kgqa("run", "-m", "method=no_context,golden", *ran).folder
    planned = kgqa("plan", str(sweep), f"metrics={metric}").out
    assert [line for line in planned.splitlines() if line.startswith(("–", "USD"))] == legends


def test_plan_of_many_pairs_is_short(kgqa: Kgqa) -> None:
    """Test that pairs without a differing question are counted, and that a baseline and metrics narrow the plan."""
    ran = ("dataset=demo", "limit=2", *QUICK)
    sweep = str(kgqa("run", "-m", "method=golden,no_context,all_documents", *ran).folder)
    planned = kgqa("plan", sweep).out
    assert "EM: in 3 pairs no question of the pilot differs" in planned
    assert "golden – no_context  EM" not in planned
    assert planned.index("Warning") < planned.index("Questions:")
    assert "divided by 4 tests" in kgqa("plan", sweep, "baseline=golden").out
    assert "EM" not in kgqa("plan", sweep, "metrics=f1").out
    refused(kgqa("plan", sweep, "metrics=em2"), "metrics=em2")


@pytest.mark.parametrize("command", ["plan", "compare"])
@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("", "p < 0.05 divided by 2 tests, with golden p < 0.05 divided by 4 tests"),
        ("metrics=f1", "p < 0.05, with golden p < 0.05 divided by 2 tests"),
        ("metrics=f1 baseline=no_context", "p < 0.05"),
        ("metrics=f1 baseline=no_context alpha=0.01", "p < 0.01"),
    ],
    ids=["pairs and metrics", "pairs", "single tests", "level"],
)
def test_plan_divides_p_as_a_comparison(kgqa: Kgqa, words: str, level: str, command: str) -> None:
    ran = ("dataset=demo", "limit=2", *QUICK)
    sweep = str(kgqa("run", "-m", "method=golden,no_context,all_documents", *ran).folder)
    assert f"at {level}" in kgqa(command, sweep, *words.split()).out


def test_plan_repeats_runs_that_differ_in_much(kgqa: Kgqa) -> None:
    short = "method.max_answer_tokens=20"
    one = kgqa("run", "method=golden", short, "sample=4", "dataset=demo", *QUICK).folder
    other = kgqa("run", "method=no_context", "sample=4", "dataset=demo", *QUICK).folder
    planned = kgqa("plan", str(one), str(other), "difference=5").out
    engine = " ".join(QUICK)
    assert (
        f"kgqa run method=golden {short} dataset=demo {engine} limit=36 && "
        f"kgqa run method=no_context dataset=demo {engine} limit=36"
    ) in planned.replace("\n", " ")


def test_plan_of_a_sweep_has_the_keys_of_the_sweep(kgqa: Kgqa) -> None:
    words = ("dataset=demo", "limit=4", *QUICK)
    kgqa("run", "-m", "method=golden,no_context", *words, "sweep.name=mine")
    planned = kgqa("plan", "mine").out
    assert (
        f"kgqa run -m method=golden,no_context dataset=demo {' '.join(QUICK)} limit=36" in planned
    )
    # the manifest of the shared run has the command of this sweep now
    kgqa("run", "-m", "method=golden,all_documents", *words, "judge=em", "sweep.name=other")
    assert kgqa("plan", "mine").out.splitlines()[-1] == planned.splitlines()[-1]


def test_plan_needs_no_data(kgqa: Kgqa) -> None:
    """Test that a plan without the file of the questions does not count them."""
    demo = resources.files("kgqa.datasets").joinpath("demo.jsonl").read_text(encoding="utf-8")
    Path("own.jsonl").write_text(demo, encoding="utf-8")
    ran = ("dataset=demo", "dataset.path=own.jsonl", "limit=4", *QUICK)
    sweep = kgqa("run", "-m", "method=golden,no_context", *ran).folder
    Path("own.jsonl").unlink()
    planned = kgqa("plan", str(sweep)).out
    assert "Run the methods on 40 or more, then plan again: limit=40." in planned
    assert "\nnext: kgqa run -m method=golden,no_context" in planned
    assert "all 36 show" not in planned


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize(
    "words",
    ["compare {0} {0}", "compare {0} ./{0}", "plan {0} {0}", "explain {0} baseline={0}"],
)
def test_same_run_twice_is_an_error(kgqa: Kgqa, words: str) -> None:
    line = words.format(METHODS[0])
    refused(kgqa(*line.split()), f"{METHODS[0]}: the same run twice. Name different runs.")


@pytest.mark.usefixtures("two_runs")
def test_explanation_shows_an_example(kgqa: Kgqa) -> None:
    lines = kgqa("explain", METHODS[0]).out.splitlines()
    assert sum(line.startswith("Percent of all questions") for line in lines) == 1
    (command,) = (line.partition("here: kgqa ")[2] for line in lines if "To show one" in line)
    shown = kgqa(*command.split())
    assert shown.code == 0
    assert "\n2hop__demo_01  " in shown.out


def test_citations_of_the_upper_bound(kgqa: Kgqa) -> None:
    assert kgqa("run", "method=golden", "limit=6", "output_dir=golden", *QUICK).code == 0
    assert kgqa("explain", "golden").code == 0
    lines = Path("golden", "explain.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith("| passages: recall"))
    assert line.split(" | ")[2].startswith("100.0")


@pytest.mark.parametrize(
    ("methods", "is_ranked"),
    [("golden", True), ("golden,no_context", False)],
    ids=["alone", "with another method"],
)
def test_upper_bound_is_ranked_only_alone(kgqa: Kgqa, methods: str, is_ranked: bool) -> None:
    write_rules([(".", "Pellery")], "right.jsonl")
    write_rules([(".", "Nowhere")], "wrong.jsonl")
    rules = "engine.rules=right.jsonl,wrong.jsonl"
    ran = kgqa("run", "-m", f"method={methods}", "dataset=demo", "limit=2", rules, *QUICK)
    assert ("It is an upper bound, and not ranked" in ran.out) is not is_ranked
    kgqa("report", str(ran.folder), "--format", "md")
    report = (ran.folder / "report.md").read_text(encoding="utf-8")
    golden_row = next(line for line in report.splitlines() if line.startswith("| 0 |"))
    assert ("**" in golden_row) is is_ranked


def test_upper_bound_is_not_on_the_frontier(kgqa: Kgqa) -> None:
    rules = write_rules(
        [("stone bridge over the River Corrow", "Pellery"), (".", "-")], "rules.jsonl"
    )
    ran = kgqa("run", "-m", "method=golden,no_context", "dataset=demo", "limit=2", rules, *QUICK)
    kgqa("report", str(ran.folder), "--format", "md")
    _, frontier = (ran.folder / "report.md").read_text(encoding="utf-8").split("## Cost–accuracy")
    rows = [line.split(" | ")[0] for line in frontier.splitlines() if line.startswith("| ")]
    assert rows == ["| settings", "| ---", "| no_context"]

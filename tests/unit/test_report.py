"""The sections of a run and their writers: equal figures in every form, texts stay texts, pages keep their size."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
import zlib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zstandard import ZstdCompressor

from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.predictions import Prediction, question_ids
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import (
    PARTIAL_TRACE,
    TracedCall,
    choose_own_calls,
    read_costs,
    read_frames,
    read_trace,
)
from kgqa.cli.main import main
from kgqa.errors import DataError
from kgqa.experiment.compare import compare_answers
from kgqa.extras.exports.every_eval_ever import _record
from kgqa.extras.viewer.table import columns_of, read_rows
from kgqa.report import explorer, run_report
from kgqa.report.explorer import REFERENCE, abridge_call, pack, run_page
from kgqa.report.exports import write_export, write_report
from kgqa.report.flags import explain_flag
from kgqa.report.page import mark_text, notebook_html, svg
from kgqa.report.plots import (
    NARROW,
    BarPlot,
    Plot,
    Point,
    Series,
    lay_out_bars,
    lay_out_points,
    log_ticks,
)
from kgqa.report.questions import RunQuestions
from kgqa.report.run_report import notices, sections, title_with_settings
from kgqa.report.section import (
    MarkedCell,
    Section,
    csv_text,
    escape_latex,
    escape_markdown,
    latex,
    markdown,
    quote_formula,
    unquote_formula,
)
from kgqa.report.sweeps import SweepReport, write_sweep_report
from kgqa.scoring.questions import BUILT_IN, Metric, ScoredQuestion
from kgqa.sweeps.cells import check_metric, freeze_cells

HOSTILE = "</script><script>alert(1)</script><!-- & | \x01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of five questions, one of which has a hostile question and passage."""
    base = tmp_path_factory.mktemp("report")
    lines = (
        (Path(__file__).parents[2] / "kgqa/datasets/demo.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()[:5]
    )
    first = json.loads(lines[0])
    first["paragraphs"][0]["paragraph_text"] += HOSTILE
    first["question"] += HOSTILE
    (base / "questions.jsonl").write_text(
        "\n".join([json.dumps(first), *lines[1:]]), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        patch.delenv("KGQA_CACHE", raising=False)
        asked = (
            "method=trace",
            "dataset=musique",
            f"dataset.path={base / 'questions.jsonl'}",
            "engine=scripted",
        )
        lexical = ("ranker=lexical", "demonstrations_ranker=lexical")
        assert main(["run", *asked, *lexical, f"output_dir={base / 'run'}"]) == 0
    return base / "run"


@pytest.fixture(scope="module")
def run(folder: Path) -> FinishedRun:
    return FinishedRun.read(folder)


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def inflated(line: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(line), -zlib.MAX_WBITS))


def packed(page: str) -> list[Any]:
    """Return the rows of a page, the texts that its questions share, and its questions."""
    texts = re.findall(r'id="(?:index|traces)">([^<]*)<', page)
    return [inflated(line) for text in texts for line in text.split("\n")]


def whole(value: Any, texts: list[str]) -> Any:
    if isinstance(value, dict):
        if REFERENCE in value:
            return "\n\n".join(texts[place] for place in value[REFERENCE])
        return {key: whole(each, texts) for key, each in value.items()}
    return [whole(each, texts) for each in value] if isinstance(value, list) else value


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def without_marks(html: str) -> str:
    """Return HTML without what only changes how tables look."""
    return re.sub(r' (class="number"|data-(?:brief|head)="[^"]*")|<wbr>', "", unescape(html))


def csv_rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_every_table_is_in_all_formats(run: FinishedRun, folder: Path, page: str) -> None:
    text, html = (
        (folder / "report.md").read_text("utf-8"),
        without_marks(page),
    )
    fragment = without_marks(notebook_html(run.title, sections(run)))
    assert len(sections(run)) >= 8
    rows = [row for section in sections(run) for row in section.rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    assert [line for line in lines if line not in text] == []
    html_rows = [
        f'<th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in cells)
        for name, *cells in rows
    ]
    assert [row for row in html_rows if row not in html] == []
    assert [row for row in html_rows if row not in fragment] == []
    titles = [
        (section.title, "summary" if section.is_folded else "h2") for section in sections(run)
    ]
    assert [title for title, tag in titles if f"<{tag}>{title}</{tag}>" not in html] == []
    assert [title for title, _ in titles if f"## {title}\n" not in text] == ["Scores"]


def test_latex_has_scores_and_escapes(run: FinishedRun, folder: Path) -> None:
    f1, text = (
        run.metrics.score("f1"),
        write_report(FinishedRun.read(folder), "latex").read_text(encoding="utf-8"),
    )
    assert f"F1 & {f1.mean:.1f} & [{f1.low:.1f}, {f1.high:.1f}] & 5 \\\\" in text
    assert (
        text.count(r"\begin{table*}") == text.count(r"\end{table*}") == text.count(r"\toprule") >= 4
    )
    assert "{Scores by scoring profile: trace on musique with scripted}" in text
    assert "% Scripted replies: no model was called." in text
    escaped = r"50 \% of A\_b \& \{c\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert escape_latex("50 % of A_b & {c}\n~^\\") == escaped


def test_question_scores_average_to_run_scores(run: FinishedRun, folder: Path) -> None:
    rows = [reported.row for reported in RunQuestions(run)]
    names = ("em", "f1", "containment", "support_recall", "support_error_rate")
    means = {name: sum(row[name] or 0 for row in rows) / len(rows) for name in names}
    assert means == pytest.approx({name: run.metrics.score(name).mean for name in names})
    assert sum(row["prompt_tokens"] for row in rows) == run.metrics.cost.method.prompt_tokens
    assert sum(row["output_tokens"] for row in rows) == run.metrics.cost.method.output_tokens
    by_id = {row["question_id"]: row for row in rows}
    lines = csv_rows(write_report(FinishedRun.read(folder), "csv"))
    assert [line["question_id"] for line in lines] == question_ids(run.folder)
    values = {
        line["question_id"]: (line["answer"], float(line["f1"]), json.loads(line["gold"]))
        for line in lines
    }
    assert values == {name: (row["answer"], row["f1"], row["gold"]) for name, row in by_id.items()}


def test_page_has_traces_and_needs_no_network(run: FinishedRun, folder: Path, page: str) -> None:
    rows, shared, *traces = packed(page)
    assert [row["question_id"] for row in rows] == question_ids(run.folder)
    by_id = {traced.question.id: traced for traced in read_trace(folder)}
    records = []
    for row in rows:
        traced = by_id[row["question_id"]]
        calls = [abridge_call(call) for call in traced.calls]
        meanings = {flag: explain_flag(flag) for flag in row["flags"]}
        extra = {"judgement": None, "meanings": meanings, "own_scores": {}}
        record = {**traced.json(), "calls": calls, **extra}
        records.append(rounded(record))
    assert [whole(trace["value"], [*shared, *trace["paragraphs"]]) for trace in traces] == records
    paragraphs = [text for trace in traces for text in trace["paragraphs"]]
    assert set(shared).isdisjoint(paragraphs)
    # of the few-shot examples, which all questions have
    assert any(text.startswith("Title: ") for text in shared)
    assert rows[0]["question"].endswith(HOSTILE)
    assert "alert(1)" not in page
    assert page.count("<script") == page.count("</script>") == 3
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|script src)|@import|url\((?!#)", page)
    assert "default-src 'none'" in page


def test_spans_of_a_choice_have_the_likeliest_option(folder: Path, tmp_path: Path) -> None:
    choices = [
        call for traced in read_trace(folder) for call in traced.calls if call.kind == "choose"
    ]
    answers = [
        call.request["options"][call.reply["logprobs"].index(max(call.reply["logprobs"]))]
        for call in choices
    ]
    file = write_export(folder, tmp_path / "spans", "otlp")[0]
    spans = [
        {each["key"]: each["value"] for each in span["attributes"]}
        for line in file.read_text("utf-8").splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
        if span["name"] == "choose trace/select"
    ]
    # spans are in the order of predictions, the trace is in the order in which questions finished
    assert sorted(span["output.value"]["stringValue"] for span in spans) == sorted(answers)


def test_page_has_each_text_once() -> None:
    value = [
        float("-inf"),
        1.5,
        ("a pair", "half a character: \ud800"),
        "é",
        {"texts": ["forty " * 9], "n": 0.123456},
    ]
    before = deepcopy(value)
    line = inflated(pack(value))
    assert value == before
    texts = ["forty " * 9]
    expected = [
        "-inf",
        1.5,
        ["a pair", "half a character: \ud800"],
        "é",
        {"texts": texts, "n": 0.1235},
    ]
    assert whole(line["value"], texts) == expected
    ours, others = (
        "A demonstration that every prompt repeats, word for word.",
        "What only one prompt contains.",
    )
    packed = inflated(pack({"prompts": [f"{ours}\n\n{others} {n}" for n in range(50)]}))
    assert (packed["paragraphs"].count(ours), len(packed["paragraphs"])) == (1, 51)
    ranked, scores = [f"text {n}" for n in range(40)], [n / 40 for n in range(40)]
    request: dict[str, Any] = {"call": "rank", "scorer": "ranker", "query": "q", "texts": ranked}
    ranking = TracedCall(path=(0,), reply=scores, cached=False, **request)
    abridged = abridge_call(ranking)
    assert (abridged["of"], abridged["texts"][:2], abridged["reply"][:2]) == (
        40,
        ["text 39", "text 38"],
        [39 / 40, 38 / 40],
    )
    assert len(abridged["texts"]) == len(abridged["reply"]) == 10
    failed = ranking.replace(reply={"error": "EngineError", "message": "no"})
    assert abridge_call(failed) == failed.json()


def test_page_has_calls_of_wrong_answers_first(
    run: FinishedRun, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def traces() -> Any:
        (text,) = re.findall(r'id="traces">([^<]*)<', "".join(run_page(run, [], [])))
        return text.split("\n")

    right = [row["question_id"] for row in inflated(re.findall(r'id="index">([^<]*)<', page)[0])][
        ::2
    ]
    monkeypatch.setattr(explorer, "is_right", lambda row: row["question_id"] in right)
    wrong_first = [1, 3, 0, 2, 4]
    assert 'id="selection"' not in "".join(run_page(run, [], []))
    shared, *whole = traces()
    for count in (3, 4, 5):
        rows = wrong_first[:count]
        room = len(shared) + sum(len(whole[n]) for n in rows)
        monkeypatch.setattr(explorer, "TRACE_BYTES", room)
        assert traces() == [shared, *(trace if n in rows else "" for n, trace in enumerate(whole))]
    # the first one always has room
    monkeypatch.setattr(explorer, "TRACE_BYTES", 0)
    assert "The calls of 1 of these questions are in this page" in "".join(run_page(run, [], []))


def test_links_code_and_bold_in_each_format() -> None:
    row = [
        MarkedCell("1", link="a.html"),
        MarkedCell("50.0", "best"),
        MarkedCell("4_0", "second", worse=True),
        "text",
    ]
    section = Section("T", ("cell", "EM", "F1", "x"), [row])
    assert "| [1](a.html) | **50.0** | <u>4_0</u>\\* | text |" in markdown("title", [section])
    assert r"1 & \textbf{50.0} & \underline{4\_0$^*$} & text \\" in latex("title", [section])
    assert section.numeric_columns() == [True, True, True, False]
    assert mark_text("by `musique`, **never** <b> & `<i>`") == (
        "by <code>musique</code>, <strong>never</strong> &lt;b&gt; &amp; <code>&lt;i&gt;</code>"
    )


def test_title_has_what_a_sweep_varies(run: FinishedRun) -> None:
    words = (
        "kgqa",
        "run",
        "method=trace",
        "method.beam=3",
        "dataset=musique",
        "limit=5",
        "repeat=2",
    )
    cell = replace(run, manifest=run.manifest.replace(command=words))
    title = "trace on musique with scripted · beam 3 · repeat 2"
    assert title_with_settings(cell) == title
    assert f"<h1>{title}</h1>" in "".join(run_page(cell, [], []))
    assert title_with_settings(run) == "trace on musique with scripted"


def test_notices_report_failures_and_no_model(run: FinishedRun) -> None:
    (scripted,) = notices(run)
    assert scripted.startswith("**Scripted replies: no model was called.**")
    failed = replace(run, metrics=run.metrics.replace(failed=2, trained_questions={"kg.model": 3}))
    _, learned, why = notices(failed)
    assert learned.startswith("**kg.model was trained on 3 of 5 questions.**")
    assert (
        "2 of 5 questions failed** and count as wrong, more than max_failure_rate=0.05 allows"
        in why
    )


@pytest.mark.parametrize(
    ("errors", "end"),
    [
        pytest.param(["a", "b", "c"], "1 × c", id="all"),
        pytest.param(["a", "b", "c", "d", "d", "e"], "; 2 other reasons", id="most frequent"),
    ],
)
def test_notice_has_the_most_frequent_reasons(
    errors: list[str], end: str, run: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = [Prediction(f"q{place}", None, error=error) for place, error in enumerate(errors)]
    monkeypatch.setattr(run_report, "run_predictions", lambda _: predictions)
    failed = replace(run, metrics=run.metrics.replace(questions=9, failed=len(errors)))
    text = notices(failed)[-1]
    assert text.endswith(end), text
    assert ("2 × d" in text) == ("d" in errors)


@pytest.mark.parametrize("answer", ["a", "half a character: \\ud83d"], ids=["text", "half"])
def test_costs_are_those_of_the_complete_trace(folder: Path, tmp_path: Path, answer: str) -> None:
    frames = [
        ZstdCompressor().compress(
            traced.line().replace(b'"answer":"', f'"answer":"{answer}'.encode())
        )
        for traced in read_trace(folder)
    ]
    (tmp_path / PARTIAL_TRACE).write_bytes(b"".join(frames))
    complete, costs = list(read_frames(tmp_path)), list(read_costs(tmp_path))
    assert [(each.offset, each.question) for each in costs] == [
        (offset, traced.question) for offset, traced in complete
    ]
    for each, (_, traced) in zip(costs, complete, strict=True):
        own = choose_own_calls(each.calls)
        assert [call.path for call in own] == [call.path for call in traced.own_calls]
        assert [call.usage for call in own] == [call.usage for call in traced.own_calls]


def test_damaged_call_is_an_error_of_its_frame(folder: Path, tmp_path: Path) -> None:
    (first, *_) = read_trace(folder)
    line = first.line().replace(b'"path":[', b'"path":["x",', 1)
    (tmp_path / PARTIAL_TRACE).write_bytes(ZstdCompressor().compress(line))
    with pytest.raises(DataError, match=r"trace.partial.jsonl.zst:1: calls\.0\.path"):
        list(read_costs(tmp_path))


def test_trace_without_a_question_is_rejected(folder: Path, tmp_path: Path) -> None:
    # each question is a separate zstd frame
    damaged, magic = tmp_path / "damaged", b"\x28\xb5\x2f\xfd"
    shutil.copytree(folder, damaged)
    _, _, *others = (damaged / "trace.jsonl.zst").read_bytes().split(magic)
    (damaged / "trace.jsonl.zst").write_bytes(magic + magic.join(others))
    (damaged / "manifest.json").write_text(
        Manifest.read(folder).replace(files=None).model_dump_json()
    )
    for form in ("html", "csv"):
        with pytest.raises(
            DataError, match=r"trace\.jsonl\.zst: no question .*, which predictions\.jsonl has"
        ):
            write_report(FinishedRun.read(damaged), form)


def test_verdicts_belong_to_their_answers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second answer is another one since, the third got no verdict, the fourth question had failed."""
    judged = tmp_path / "judged"
    shutil.copytree(folder, judged)
    predictions = [
        json.loads(line) for line in (judged / "predictions.jsonl").read_text("utf-8").splitlines()
    ]
    verdicts = [
        ("correct", "judged"), ("correct", "judged"), (None, "judged"), (None, "failed"), ("incorrect", "exact"),
    ]  # fmt: skip
    lines = []
    for place, ((verdict, fate), prediction) in enumerate(zip(verdicts, predictions, strict=True)):
        answer = "another" if place == 1 else prediction["answer"]
        votes = [{"verdict": verdict, "replies": ["a reply"], "error": None}]
        line = {
            "question_id": prediction["question_id"],
            "verdict": verdict,
            "fate": fate,
            "answer": answer,
        }
        lines.append(json.dumps({**line, "votes": votes, "judge": "three_way"}))
    (judged / "verdicts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = csv_rows(write_report(FinishedRun.read(judged), "csv"))
    expected = ["correct", "", "unscored", "", "incorrect"]
    assert [line["verdict"] for line in rows] == expected
    pages = []
    for prediction in predictions:
        assert main(["show", str(judged), prediction["question_id"]]) == 0
        pages.append(
            [line for line in capsys.readouterr().out.splitlines() if line.startswith("judge:")]
        )
    assert [line.split()[1] if line else "" for line in map("".join, pages)] == expected


@pytest.mark.parametrize(
    ("key", "values", "names"),
    [
        ("method.max_answer_tokens", "10,1,2", ["1", "2", "10"]),
        ("method", "golden,no_context", None),
    ],
    ids=["numbers", "names"],
)
def test_bars_of_a_swept_number_are_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, values: str, names: list[str] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("dataset=demo", "limit=3", "engine=scripted", "ranker=lexical", "sweep.name=s")
    others = () if key == "method" else ("method=golden",)
    assert main(["run", "-m", *others, f"{key}={values}", *words]) == 0
    (table,) = SweepReport.read(Path("outputs/sweeps/s")).tables
    plot = table.plots[0]
    assert isinstance(plot, BarPlot)
    layout: Any = lay_out_bars(plot)["bars"]
    if names is None:
        assert not plot.in_order
    else:
        assert [bar.name.split()[-1] for bar, _ in layout] == names


def test_a_metric_that_is_registered_is_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(row: ScoredQuestion) -> float:
        return min(len((row.answer or "").split()), 10) / 10

    monkeypatch.setitem(
        BUILT_IN, "words", Metric("words", "word share", words, column=True, tested=True)
    )
    monkeypatch.chdir(tmp_path)
    arguments = (
        "method=golden",
        "method.max_answer_tokens=1,2",
        "dataset=demo",
        "limit=3",
        "engine=scripted",
    )
    assert main(["run", "-m", *arguments, "ranker=lexical", "sweep.name=s"]) == 0
    report = SweepReport.read(Path("outputs/sweeps/s"))
    (table,), runs = report.tables, [item.run for item in report.done]
    assert "word share" in table.header
    # the score that differs is first
    assert [plot.choice for plot in table.plots] == [
        label for label in ("F1", "EM", "word share") for _ in range(2)
    ]
    assert report.csv().startswith(
        "cell,name,method.max_answer_tokens,status,questions,EM,F1,containment,"
    )
    assert "word share low" in report.csv()
    # of method=verify only
    assert "noise" not in report.csv()
    mean = runs[0].metrics.score("words").mean
    assert mean is not None
    assert f"| word share | {mean:.1f}  [" in (runs[0].folder / "report.md").read_text("utf-8")
    for form in ("latex", "csv"):
        write_report(runs[0], form)
    assert "word share & " in (runs[0].folder / "report.tex").read_text("utf-8")
    scores = [float(line["words"]) for line in csv_rows(runs[0].folder / "report.csv")]
    assert sum(scores) / 3 == pytest.approx(mean)
    compared = compare_answers({f"{each.folder}": [each.folder] for each in runs}, flips=0)
    assert {"EM", "F1", "word share"} <= {row[0] for row in compared.sections[0].rows}
    assert "word share" in columns_of(read_rows(Path("outputs")))
    check_metric("tune.metric", "words")
    (cell,) = freeze_cells([("", ["method=golden"])])
    cell.finished, cell.status = runs[0], "done"
    assert cell.score("words", "tune.metric") == runs[0].metrics.score("words")
    export = write_export(runs[0].folder, tmp_path / "eee", "eee")[0].read_text("utf-8")
    assert "kgqa.words" in export


def test_sweep_links_cells_and_omits_passage_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("method=no_context,golden", "dataset=demo", "limit=3", "engine=scripted")
    assert main(["run", "-m", *arguments, "sweep.name=s"]) == 0
    (scores,) = SweepReport.read(Path("outputs/sweeps/s")).tables
    recall = [row[list(scores.header).index("support recall")] for row in scores.rows]
    csv_recall = [
        line["support recall"]
        for line in csv_rows(write_sweep_report(Path("outputs/sweeps/s"), "csv"))
    ]
    assert csv_recall == ["", "100.0"]
    # a method without passages has none
    assert recall == ["–", "100.0 [43.9, 100.0]"]
    page = write_sweep_report(Path("outputs/sweeps/s"), "html").read_text("utf-8")
    links = re.findall(r'<a href="([^"]*)/[^/"]*/report.html">(\w+)</a>', page)
    assert links == [(f"../../demo/{name}/scripted", name) for name in ("no_context", "golden")]


def test_csv_marks_formulas_as_text() -> None:
    for text in (
        "=1+1",
        "+1+1",
        "-1+1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "=cmd|' /C calc'!A0",
        "-",
        "'=1",
        "''@x",
        "+a",
    ):
        assert quote_formula(text) == f"'{text}"
    for value in (
        -1.5,
        -3,
        0,
        None,
        True,
        "",
        "a=b",
        "-1.5",
        "+3",
        "1e-5",
        "-1,200.5",
        "'",
        "O'Neill",
    ):
        assert quote_formula(value) is value


@pytest.mark.slow
@given(st.text(alphabet="'=+-@\t\ra1. ", max_size=6) | st.text())
def test_a_text_is_read_back_from_csv_as_it_was(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_text([[text, "end"]]), newline=""))
    assert unquote_formula(row[0]) == text
    assert not row[0].startswith(("=", "@", "\t", "\r"))


def test_every_eval_ever_has_failed_questions(run: FinishedRun) -> None:
    answered = {"em": Estimate(mean=100.0, low=100.0, high=100.0, n=17)}
    settings = tuple(each for each in run.settings if each[0] != "model.hub")
    failed = replace(
        run,
        metrics=run.metrics.replace(failed=3, answered=answered),
        settings=(*settings, ("model.hub", "null", "")),
    )
    record = _record(failed)
    details = record["evaluation_results"][0]["score_details"]["details"]
    assert details == {"failed_questions": "3", "score_of_answered_questions": "100.0000"}
    assert record["model_info"]["additional_details"]["model_availability"] == "unknown"
    assert record["model_info"]["id"].startswith("scripted/")


def named_plot(names: Sequence[str]) -> Plot:
    """Return a plot with a rising line through points that are close to each other."""
    points = [Point(100 + n, 50 + n, label=name) for n, name in enumerate(names)]
    line = Series("frontier", [Point(0, 0), Point(200, 100)], 1)
    return Plot("F1 against cost", "tokens", "F1", [Series("", points, 0, line=False), line])


def test_each_point_has_a_name_or_a_number() -> None:
    names = [f"a method with a long name {n}" for n in range(6)]
    plot = named_plot(names)
    layout: Any = lay_out_points(plot)
    numbers = dict(line.split(": ") for line in layout["keys"])
    shown = [text for _, _, text, _ in layout["labels"]]
    assert [numbers.get(text, text) for text in shown] == names
    assert 0 < len(numbers) < len(names)
    assert f">1: {numbers['1']}</text>" in svg(plot)


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [(1.0, 4.0, (0.0, 100.0)), (70.0, 100.0, (0.0, 100.0)), (None, None, (2.0, 2.5))],
    ids=["low", "high", "no score"],
)
def test_scores_have_one_scale(
    low: float | None, high: float | None, ends: tuple[float, float]
) -> None:
    points = [Point(5, 2.0, low, high), Point(9, 2.5, low, high)]
    axis: Any = lay_out_points(Plot("t", "tokens", "EM", [Series("", points, 0)]))["y"]
    assert (axis.low, axis.high) == ends


def test_numbered_names_fit_a_phone() -> None:
    name = "no_context · " + "word " * 20 + "x" * 90
    layout: Any = lay_out_points(named_plot([name, name[::-1]]), NARROW)
    lines = layout["keys"]
    assert [line[:3] for line in lines if line[0] != "\N{NO-BREAK SPACE}"] == ["1: ", "2: "]
    # a bold letter has at most 7 pixels
    assert max(map(len, lines)) < NARROW / 6.8
    text = "".join(lines).replace("\N{NO-BREAK SPACE}", "").replace(" ", "")
    assert text == f"1:{name}2:{name[::-1]}".replace(" ", "")
    bottoms = [
        float(y) for y in re.findall(r'<text x="4" y="([\d.]+)"', svg(layout["plot"], NARROW))
    ]
    assert len(bottoms) == len(lines)
    assert max(bottoms) < layout["height"]


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ((26459.6,), ("23,000", "30,000")),
        ((26459.2, 26459.9), ("26,459.2", "26,459.9")),
        ((0.0,), ("0", "1")),
        ((0.0123,), ("0.011", "0.014")),
        ((-3.0,), ("-3.3", "-2.7")),
    ],
)
def test_ticks_differ_and_fit(values: tuple[float, ...], ends: tuple[str, str]) -> None:
    points = [Point(x, 50.0) for x in values]
    picture = svg(Plot("t", "x", "y", [Series("s", points, 0)]))
    labels = re.findall(r'<text class="tick[^>]*>([^<]*)<', picture)
    assert (labels[0], labels[-1]) == ends
    assert 4 < len(labels) == len(set(labels)) < 12


def test_ticks_of_a_phone_are_apart() -> None:
    points = [Point(x, 50.0) for x in (10, 20_000)]
    picture = svg(Plot("t", "x", "y", [Series("s", points, 0)], x_is_cost=True))
    shown = re.findall(r'<text class="tick" x="([^"]*)"[^>]*>([^<]*)<', picture)
    assert [label for _, label in shown] == ["10", "50", "200", "1,000", "5,000", "20,000"]
    # a digit has at most 9 of the 16 pixels of a phone's text
    assert min(float(x) - float(before) for (before, _), (x, _) in pairwise(shown)) > 9 * 6


def test_many_ticks_of_costs_are_powers_of_ten() -> None:
    assert log_ticks(22, 120_000) == [10, 100, 1_000, 10_000, 100_000, 1_000_000]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p < 0.05", "p < 0.05"),
        ("<0.001", "<0.001"),
        ("<b>", "&lt;b>"),
        ("</b>", "&lt;/b>"),
        ("<!--", "&lt;!--"),
    ],
)
def test_only_tags_are_escaped_in_markdown(text: str, expected: str) -> None:
    assert escape_markdown(text) == expected


def test_small_p_values_are_numbers() -> None:
    assert Section("S", ("p",), [("<0.001",), ("0.040",)]).numeric_columns() == [True]


def test_list_of_values_is_no_number() -> None:
    section = Section("S", ("key", "values"), [("method.beam", "3 (cell 0); 5 (cell 1)")])
    assert section.numeric_columns() == [False, False]


def test_notes_are_below_and_warnings_above_the_table() -> None:
    section = Section("S", ("name",), [("row",)], ("**Warning**: careful.", "Scores in percent."))
    page = notebook_html("", [section])
    assert page.index("careful") < page.index("row") < page.index("Scores in percent")


def test_keys_can_break_after_their_dots() -> None:
    page = notebook_html("", [Section("S", (), [("models.<b>.class", "a.b")])])
    assert "models.<wbr>&lt;b&gt;.<wbr>class" in page
    assert ">a.b<" in page


def test_names_avoid_intervals_and_each_other() -> None:
    points = [Point(x, 50, 20, 80, f"method {x}") for x in (100, 120, 140, 500)]
    layout: Any = lay_out_points(Plot("t", "x", "y", [Series("", points, 0, line=False)]))
    boxes = [
        (at - {"start": 0, "middle": 0.5, "end": 1}[anchor] * 6.8 * len(text), text)
        for at, _, text, anchor in layout["labels"]
    ]
    places = [layout["x"](point.x) for point in points]
    crossed = [
        text
        for left, text in boxes
        for place in places
        if left < place + 2 and place - 2 < left + 6.8 * len(text)
    ]
    assert (len(boxes), crossed) == (4, [])


def test_points_without_room_are_counted() -> None:
    points = [Point(100, 50, label=f"method {n}") for n in range(30)]
    layout: Any = lay_out_points(Plot("t", "x", "y", [Series("", points, 0, line=False)]))
    *keys, rest = layout["keys"]
    labels = {text for _, _, text, _ in layout["labels"]}
    assert [key.partition(":")[0] in labels for key in keys] == [True] * len(labels)
    assert rest == f"{30 - len(labels)} points without room for a number"


def test_long_names_of_a_legend_are_wrapped() -> None:
    names = ["word " * 30, "a short name"]
    series = [Series(name, [Point(1, 1), Point(2, 2)], 0) for name in names]
    picture = svg(Plot("t", "x", "y", series), NARROW)
    lines = re.findall(r'<text x="70.0" y="(\d+)">([^<]*)<', picture)
    assert " ".join(text for _, text in lines) == " ".join(names).replace("  ", " ")
    assert max(len(text) for _, text in lines) < (NARROW - 70) / 6.8
    assert len({y for y, _ in lines}) == len(lines) > 3


def test_labels_avoid_the_frontier() -> None:
    layout: Any = lay_out_points(named_plot(["trace"]))
    ((at, base, text, anchor),) = layout["labels"]
    middle = at + {"start": 0.5, "middle": 0, "end": -0.5}[anchor] * 6.8 * len(text)
    height = layout["y"](layout["plot"].series[1].points[0].y)
    start, end = layout["x"](0), layout["x"](200)
    top = layout["y"](100)
    on_line = height + (middle - start) / (end - start) * (top - height)
    assert abs(on_line - (base - 4)) > 6


@pytest.mark.parametrize(("ranked", "count"), [(True, 0), (False, 2)], ids=["one", "several"])
def test_recall_of_several_searches_has_a_caveat(ranked: bool, count: int) -> None:
    run = FinishedRun.read(Path(__file__).parents[1] / "golden/artefacts/retrieval")
    assert run.metrics.retrieval is not None
    retrieval = run.metrics.retrieval.replace(ranked=ranked)
    text = markdown("", sections(replace(run, metrics=run.metrics.replace(retrieval=retrieval))))
    assert text.count("several searches. Only the recall of the largest budget") == count

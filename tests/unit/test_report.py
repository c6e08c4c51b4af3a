"""One content, several writers: a run has the same figures in Markdown, HTML, CSV and LaTeX; text stays text."""

from __future__ import annotations

import base64
import csv
import json
import re
import shutil
import zlib
from copy import deepcopy
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TracedCall, read_trace
from kgqa.cli.main import main
from kgqa.errors import DataError
from kgqa.report.content import sections
from kgqa.report.html import html
from kgqa.report.latex import escape_latex, latex
from kgqa.report.markdown import markdown
from kgqa.report.packing import REFERENCE, Packing, abridge_trace
from kgqa.report.page import mark_text
from kgqa.report.questions import QuestionRow, load_reported_questions
from kgqa.report.writing import WRITERS, write_report

HOSTILE = "</script><script>alert(1)</script><!-- & | \x01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of five questions, one of whose passages and answers is hostile."""
    base = tmp_path_factory.mktemp("report")
    questions = base / "questions.jsonl"
    lines = (Path(__file__).parents[2] / "kgqa/datasets/demo.jsonl").read_text(encoding="utf-8").splitlines()[:5]
    first = json.loads(lines[0])
    first["paragraphs"][0]["paragraph_text"] += HOSTILE
    first["question"] += HOSTILE
    questions.write_text("\n".join([json.dumps(first), *lines[1:]]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        patch.delenv("KGQA_CACHE", raising=False)
        asked = ("method=trace", "dataset=musique", f"dataset.path={questions}", "engine=scripted")
        lexical = ("ranker=lexical", "demonstrations_ranker=lexical")
        assert main(["run", *asked, *lexical, f"out={base / 'run'}"]) == 0
    return base / "run"


@pytest.fixture(scope="module")
def run(folder: Path) -> FinishedRun:
    return FinishedRun.read(folder)


def packed(page: str) -> list[Any]:
    """The rows, the shared texts and the traces, as a browser unpacks them."""
    lines = [line for element in re.findall(r'id="(?:index|traces)">([^<]*)<', page) for line in element.split("\n")]
    return [json.loads(zlib.decompress(base64.b64decode(line), -zlib.MAX_WBITS)) for line in lines]


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


def test_every_table_of_the_markdown_is_in_the_html(run: FinishedRun) -> None:
    page = unescape(re.sub(r"<svg.*?</svg>", "", "".join(html(run)), flags=re.DOTALL))
    text = markdown(run)
    assert len(sections(run)) >= 8
    for section in sections(run):
        assert f"<h2>{section.title}</h2>" in page
        assert section.title == "Scores" or f"## {section.title}\n" in text
        for row in section.rows:
            assert "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" in text
            name, *cells = row
            assert f'<th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) in page


def test_questions_average_to_the_scores_of_the_run(run: FinishedRun) -> None:
    rows = [reported.row for reported in load_reported_questions(run)]
    for name in ("em", "f1", "support_recall"):
        mean = 100 * sum(getattr(row, name) for row in rows) / len(rows)
        assert mean == pytest.approx(run.metrics.scores.named()[name].mean)
    assert sum(row.prompt_tokens or 0 for row in rows) == run.metrics.cost.method.prompt_tokens
    assert sum(row.output_tokens or 0 for row in rows) == run.metrics.cost.method.output_tokens


def test_the_traces_in_the_html_are_those_of_the_run(run: FinishedRun, folder: Path) -> None:
    rows, shared, *traces = packed((folder / "report.html").read_text(encoding="utf-8"))
    assert [row["id"] for row in rows] == question_ids(run.folder)
    assert shared
    kept = {traced.question.id: traced for traced in read_trace(folder)}
    for row, trace in zip(rows, traces, strict=True):
        texts = [shared[each] if isinstance(each, int) else each for each in trace["paragraphs"]]
        traced = kept[row["id"]]
        calls = [abridge_trace(call) for call in traced.calls]
        assert whole(trace["value"], texts) == rounded({**traced.json(), "calls": calls, "judgement": None})


def test_of_a_ranking_the_best_texts_are_shown() -> None:
    texts, scores = [f"text {n}" for n in range(40)], [n / 40 for n in range(40)]
    ranking = TracedCall((0,), "rank", {"scorer": "ranker", "query": "q", "texts": texts}, scores, cached=False)
    shown = abridge_trace(ranking)
    assert (shown["of"], shown["texts"][:2], shown["reply"][:2]) == (40, ["text 39", "text 38"], [39 / 40, 38 / 40])
    assert len(shown["texts"]) == len(shown["reply"]) == 10
    failed = replace(ranking, reply={"error": "EngineError", "message": "no"})
    assert abridge_trace(failed) == failed.json()


def test_hostile_text_ends_no_element(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    rows, *_ = packed(page)
    assert rows[0]["question"].endswith(HOSTILE)
    assert "alert(1)" not in page
    assert page.count("<script") == page.count("</script>") == 3


def test_the_page_asks_no_network(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|script src)|@import|url\((?!#)", page.replace("url(#arrow", ""))
    assert "default-src 'none'" in page


def test_a_paragraph_that_two_questions_have_is_kept_once() -> None:
    packing = Packing()
    ours, theirs = "A demonstration that every prompt repeats, word for word.", "What only this question has to say."
    sizes = [len(packing.pack({"prompts": [f"{ours}\n\n{theirs} {n}"] * 50})) for n in range(4)]
    assert packing.shared == [ours]
    assert sizes[1] < sizes[0]
    assert max(sizes) < 400


def test_what_json_does_not_know_is_packed_all_the_same() -> None:
    line = Packing().pack([float("-inf"), 1.5, ("a pair", "half a character: \ud800"), "é"])
    value = json.loads(zlib.decompress(base64.b64decode(line), -zlib.MAX_WBITS))["value"]
    assert value == ["-inf", 1.5, ["a pair", "half a character: \ud800"], "é"]


def test_what_is_packed_stays_as_it_is() -> None:
    value = {"texts": ["A text of more than forty characters, which is cut."] * 2, "scores": (0.123456, 1.0)}
    before = deepcopy(value)
    Packing().pack(value)
    assert value == before


def test_the_csv_has_a_line_a_question_in_the_files_order(run: FinishedRun, folder: Path) -> None:
    with write_report(folder, "csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == question_ids(run.folder)
    rows = {reported.row.id: reported.row for reported in load_reported_questions(run)}
    for line in lines:
        row: QuestionRow = rows[line["id"]]
        assert (line["answer"], float(line["f1"])) == (row.answer, row.f1)
        assert json.loads(line["gold"]) == list(row.gold)


def test_latex_has_the_scores_with_their_intervals(run: FinishedRun) -> None:
    f1 = run.metrics.scores.f1
    text = latex(run)
    assert f"F1 & {f1.mean:.1f} & [{f1.low:.1f}, {f1.high:.1f}] & 5 \\\\" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == text.count(r"\toprule") >= 4
    assert "{EM and F1 by scoring profile: trace on musique with smollm2\\_135m, scripted}" in text


def test_latex_takes_special_characters_as_they_are() -> None:
    assert escape_latex("50 % of A_b & {c}\n~^\\") == (
        r"50 \% of A\_b \& \{c\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    )


@pytest.mark.parametrize("form", WRITERS)
def test_a_report_can_be_written_elsewhere(folder: Path, tmp_path: Path, form: str) -> None:
    before = (folder / "report.md").read_bytes()
    assert main(["report", str(folder), "--format", form, "--out", str(tmp_path / "here")]) == 0
    assert (tmp_path / "here").stat().st_size > 500
    assert (folder / "report.md").read_bytes() == before


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics\.json: no such file, so this is not the folder of a run that ended"):
        write_report(tmp_path, "html")
    assert not list(tmp_path.iterdir())


def test_an_unknown_form_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--format", "pdf"]) == 2
    assert "--format pdf: no such value; choose from: card, csv, eee, html" in capsys.readouterr().err


def test_texts_of_sections_keep_their_code_and_nothing_else_is_markup() -> None:
    assert mark_text("by `musique`, **never** <b> & `<i>`") == (
        "by <code>musique</code>, <strong>never</strong> &lt;b&gt; &amp; <code>&lt;i&gt;</code>"
    )


def test_verdicts_stand_beside_the_answers_they_were_given_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second answer is another one since, the third got no verdict, the fourth question had failed."""
    judged = tmp_path / "judged"
    shutil.copytree(folder, judged)
    predictions = [json.loads(line) for line in (judged / "predictions.jsonl").read_text("utf-8").splitlines()]
    given = [("correct", "judged"), ("correct", "judged"), (None, "judged"), (None, "failed"), ("incorrect", "exact")]
    lines = []
    for place, ((verdict, fate), prediction) in enumerate(zip(given, predictions, strict=True)):
        answer = "another" if place == 1 else prediction["answer"]
        votes = [{"verdict": verdict, "replies": ["a reply"], "error": None}]
        line = {"question_id": prediction["question_id"], "verdict": verdict, "fate": fate, "answer": answer}
        lines.append(json.dumps({**line, "votes": votes, "judge": "three_way"}))
    (judged / "verdicts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with write_report(judged, "csv").open(encoding="utf-8", newline="") as file:
        assert [line["verdict"] for line in csv.DictReader(file)] == ["correct", "", "unscored", "", "incorrect"]
    shown = []
    for prediction in predictions:
        assert main(["show", str(judged), prediction["question_id"]]) == 0
        shown.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("judge:")])
    assert shown == [
        ["judge:  correct (three_way)"],
        [],
        ["judge:  unscored (three_way)"],
        [],
        ["judge:  incorrect (three_way)"],
    ]


def test_a_line_that_is_no_verdict_is_refused(folder: Path, tmp_path: Path) -> None:
    judged = tmp_path / "judged"
    shutil.copytree(folder, judged)
    (judged / "verdicts.jsonl").write_text('{"question_id": "q", "verdict": "correct"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"verdicts\.jsonl:1: not a verdict: fate is missing: .*; judge the run again"):
        write_report(judged, "html")


@pytest.mark.parametrize("form", ["html", "csv"])
def test_a_trace_that_lacks_a_question_is_refused(folder: Path, tmp_path: Path, form: str) -> None:
    lacking, magic = tmp_path / "lacking", b"\x28\xb5\x2f\xfd"  # each question is a zstd frame of its own
    shutil.copytree(folder, lacking)
    _, _, *others = (lacking / "trace.jsonl.zst").read_bytes().split(magic)
    (lacking / "trace.jsonl.zst").write_bytes(magic + magic.join(others))
    with pytest.raises(DataError, match=r"trace\.jsonl\.zst: no question .*, which predictions\.jsonl beside it has"):
        write_report(lacking, form)


def test_runs_on_other_questions_do_not_stand_against_each_other(folder: Path, tmp_path: Path) -> None:
    shorter = tmp_path / "shorter"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        asked = ("method=no_context", "dataset=demo", "limit=2", "engine=scripted")
        assert main(["run", *asked, f"out={shorter}"]) == 0
    with pytest.raises(DataError, match=r"3 questions are not in both .* only in .*run; give two runs"):
        write_report(folder, "html", None, shorter)
    assert not list(folder.glob("against-*"))


def test_only_a_page_stands_against_another_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--against", str(folder), "--format", "md"]) == 2
    assert "only for the HTML report of a run" in capsys.readouterr().err

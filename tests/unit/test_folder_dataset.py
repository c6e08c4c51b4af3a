"""`dataset=folder`: a person's own documents and questions, and what is wrong with them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kgqa.config import factories as parts
from kgqa.config.composing import compose
from kgqa.datasets.folder import Folder
from kgqa.datasets.html_text import plain_text
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import run_identity
from kgqa.experiment.session.session import Session
from kgqa.types import Question
from tests.unit.test_pdf import SENTENCE, STATIONS, make

KINDS = (".txt", ".md", ".markdown", ".html", ".htm", ".docx", ".pdf")
WHO = {"question": "Who built the mill?", "answer": "Ann Reed"}


def folder(path: Path | None, size: int = 250, questions_file: str | None = None) -> Folder:
    return Folder("folder", None if path is None else str(path), KINDS, questions_file, size, "hotpotqa", "hotpotqa")


def ask(path: Path, *records: dict[str, Any]) -> list[Question]:
    lines = [json.dumps(record) for record in (records or (WHO,))]
    (path / "questions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return list(folder(path).questions())


def test_text_markdown_html_and_pdf_are_read_by_path(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("A text.", encoding="utf-8-sig")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.md").write_text("# Mill\n\nBuilt by Ann.", encoding="utf-8")
    (tmp_path / "a.HTML").write_text("<title>x</title><p>A <b>page</b>.", encoding="utf-8")
    make(tmp_path / "d.pdf", ["Printed."])
    (question,) = ask(tmp_path)
    assert [(passage.title, passage.place, passage.text) for passage in question.passages] == [
        ("x", "", "A page."),
        ("b", "", "A text."),
        ("d", "page 1", "Printed."),
        ("d", "", "Printed."),
        ("Mill", "", "# Mill\n\nBuilt by Ann."),
    ]


def test_all_questions_share_one_tuple_of_passages(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SENTENCE * 20, encoding="utf-8")
    first, second = ask(tmp_path, WHO, {**WHO, "question": "Why?"})
    assert first.passages is second.passages
    assert (first.id, second.id) == ("q1", "q2")


def test_passages_have_the_size_asked_for_and_end_at_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SENTENCE * 20, encoding="utf-8")
    ask(tmp_path)
    passages = list(folder(tmp_path, size=150).passages())
    assert {len(passage.text) for passage in passages} == {2 * len(SENTENCE) - 1}
    assert all(passage.text.endswith(".") for passage in passages)


def test_a_question_says_its_answers_type_and_support(tmp_path: Path) -> None:
    (tmp_path / "mill.txt").write_text(f"{SENTENCE * 4}\n\nThe mill was built by\nAnn Reed.", encoding="utf-8")
    make(tmp_path / "tables.pdf", ["Words.", "Table 2: Flow", STATIONS])
    support = [
        "mill",
        {"title": "mill", "text": "built by Ann Reed"},
        {"title": "tables", "place": "table 2"},
        {"title": "tables", "place": "page 1"},
    ]
    record = {"id": "a", "question": "Who?", "answers": ["Ann", "Reed"], "type": "structural", "support": support}
    (question,) = ask(tmp_path, record)
    assert (question.id, question.answers, question.type) == ("a", ("Ann", "Reed"), "structural")
    gold = [passage for passage in question.passages if passage.id in question.support]
    assert [passage.place for passage in gold] == ["", "page 1", "table 2 page 1"]
    assert gold[0].text.endswith("Ann Reed.")
    assert question.support_titles == {"mill", "tables"}


def test_support_by_title_alone_names_no_passage(tmp_path: Path) -> None:
    (tmp_path / "mill.txt").write_text("The mill.", encoding="utf-8")
    (question,) = ask(tmp_path, {**WHO, "support": ["mill"]})
    assert not question.support
    assert question.support_titles == {"mill"}


def test_support_names_the_file_and_its_passages_have_the_heading(tmp_path: Path) -> None:
    (tmp_path / "mill.md").write_text("# The old mill\n\nBuilt by Ann.", encoding="utf-8")
    (question,) = ask(tmp_path, {**WHO, "support": ["mill", {"title": "mill", "text": "by Ann"}]})
    assert question.support_titles == {"The old mill"} == {passage.title for passage in question.passages}
    assert question.support == {passage.id for passage in question.passages}


@pytest.mark.parametrize(
    ("support", "message"),
    [
        ("Mil", r"questions\.jsonl:1: support: no document has the name 'Mil'; did you mean Mill"),
        ({"title": "Mill", "place": "page 9"}, r"questions\.jsonl:1: support: 'page 9' is not in 'Mill'"),
        ({"title": "Mill", "text": "nowhere"}, r"questions\.jsonl:1: support: 'nowhere' is not in 'Mill'"),
        (7, r"questions\.jsonl:1: .*support"),
    ],
)
def test_support_that_is_not_there_is_refused(tmp_path: Path, support: Any, message: str) -> None:
    (tmp_path / "Mill.txt").write_text("The mill.", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        ask(tmp_path, {**WHO, "support": [support]})


def test_a_question_without_an_answer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Words.", encoding="utf-8")
    with pytest.raises(DataError, match=r"questions\.jsonl:2: answer=None: a question needs an answer"):
        ask(tmp_path, WHO, {"question": "Who?"})


def test_two_files_of_one_name_are_titled_by_their_paths(tmp_path: Path) -> None:
    for place in ("a/notes.txt", "b/notes.txt", "b/other.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(f"Words of {place}.", encoding="utf-8")
    (question,) = ask(tmp_path)
    assert [passage.title for passage in question.passages] == ["a/notes.txt", "b/notes.txt", "other"]


def test_an_empty_document_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    make(tmp_path / "scan.pdf", [""])
    (tmp_path / "full.txt").write_text("Words.", encoding="utf-8")
    (tmp_path / "sheet.xlsx").write_bytes(b"x")
    (tmp_path / ".hidden.txt").write_text("Hidden.", encoding="utf-8")
    with caplog.at_level(logging.WARNING, "kgqa"):
        (question,) = ask(tmp_path)
    assert [passage.text for passage in question.passages] == ["Words."]
    said = "\n".join(caplog.messages)
    assert "2 of 3 documents have no text: empty, scan" in said
    assert "files of other kinds are left out: 1 .xlsx" in said


def test_documents_without_any_text_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "scan.pdf", [""])
    with pytest.raises(DataError, match=r"no text in scan; scanned documents need text recognition"):
        ask(tmp_path)


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no documents in it; put \.txt, .*\.pdf files there"):
        ask(tmp_path)


def test_a_document_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo \xff\xfe")
    with pytest.raises(DataError, match=r"a\.txt:2: not UTF-8 \(byte 0xff\); convert the file to UTF-8"):
        ask(tmp_path)


def test_a_missing_folder_or_questions_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name the folder with your documents: dataset\.path=FOLDER"):
        list(folder(None).questions())
    with pytest.raises(DataError, match="no such folder"):
        list(folder(tmp_path / "no").questions())
    (tmp_path / "a.txt").write_text("Words.", encoding="utf-8")
    with pytest.raises(DataError, match=r"no questions\.jsonl in it: no such file; .*dataset\.questions_file=FILE"):
        list(folder(tmp_path).questions())
    with pytest.raises(DataError, match=r"dataset\.questions_file=nothing\.jsonl: no such file"):
        list(folder(tmp_path, questions_file="nothing.jsonl").questions())


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.kinds: \.odt: no reader"):
        Folder("folder", None, (".odt",), None, 250, "hotpotqa", "hotpotqa")


def test_questions_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.txt").write_text("Words.", encoding="utf-8")
    (tmp_path / "mine.jsonl").write_text(json.dumps(WHO), encoding="utf-8")
    (question,) = folder(tmp_path / "documents", questions_file=str(tmp_path / "mine.jsonl")).questions()
    assert (question.text, len(question.passages)) == ("Who built the mill?", 1)


def test_identity_follows_documents_questions_and_size_but_no_paths(tmp_path: Path) -> None:
    identities = []
    for name, text, question in (
        ("a", "One.", "Who?"),
        ("b", "One.", "Who?"),
        ("c", "Two.", "Who?"),
        ("d", "One.", "?"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(text, encoding="utf-8")
        ask(tmp_path / name, {**WHO, "question": question})
        identities.append(folder(tmp_path / name).sha256)
    assert identities[0] == identities[1]
    assert len({*identities, folder(tmp_path / "a", size=100).sha256}) == 4


def test_a_runs_identity_holds_hashes_and_no_paths() -> None:
    with Session(Experiment.of(["dataset=pdf", "method=no_context"])) as session:
        identity = run_identity(session)["dataset"]
    assert set(identity) == {"_target_", "name", "kinds", "passage_size", "sha256"}


def test_html_gives_its_blocks_without_scripts_styles_and_head() -> None:
    page = """<html><head><title>T</title><style>p {}</style><body><h1>Mill &amp; weir</h1>
    <script>var a = "<p>no</p>";</script><p>One <i>two</i>
    three<br>four</p><table><tr><td>a</td><td>b</td></tr><tr><td>c<td>d</table>"""
    assert plain_text(page) == "Mill & weir\n\nOne two three\n\nfour\n\na b\n\nc d"


def test_broken_html_still_gives_its_text() -> None:
    assert plain_text("<p>One</b></p></div><p>Two <unknown>three <") == "One\n\nTwo\n\nthree <"


def test_the_shipped_set_has_forty_questions_half_of_them_structural() -> None:
    dataset = parts.dataset(compose(["dataset=pdf"])["dataset"])
    questions = list(dataset.questions())
    assert (len(questions), [question.type for question in questions].count("structural")) == (40, 20)
    passages = {passage.id: passage for passage in questions[0].passages}
    assert len(passages) == 79
    assert len({passage.title for passage in passages.values()}) == 5
    for question in questions:
        gold = [passages[id_] for id_ in question.support]
        assert gold
        assert all(bool(passage.place) == (question.type == "structural") for passage in gold)
    several = [question for question in questions if len(question.support_titles) > 1]
    assert len(several) == 6


def test_the_shipped_answers_stand_in_their_support() -> None:
    """But for those that compare pages, or are computed."""
    dataset = parts.dataset(compose(["dataset=pdf"])["dataset"])
    elsewhere = set()
    for question in dataset.questions():
        gold = " ".join(passage.text.lower() for passage in question.passages if passage.id in question.support)
        if not any(answer.lower() in gold for answer in question.answers):
            elsewhere.add(question.id)
    assert elsewhere == {"structural_08", "structural_12", "structural_14"}

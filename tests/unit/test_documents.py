"""A user's own documents and questions: what is read of them and their places, and what is wrong with them."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kgqa.errors import ConfigError, DataError
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.identity import identify
from kgqa.extras.documents.document_text import markdown_heading, parse_html, read_document
from kgqa.extras.documents.documents import KINDS, Documents, Where
from kgqa.extras.documents.folder import Folder
from kgqa.types import Question
from tests.e2e.invented_island import FILES, write_docx, write_island
from tests.unit.files import jsonl, write
from tests.unit.test_pdf import SENTENCE, STATIONS, make


def documents(*places: Path, size: int = 500) -> Documents:
    return Documents(places, KINDS, size)


def test_passages_of_every_kind_have_place_and_title(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    island = write_island(tmp_path / "island")
    read = documents(island, size=200)
    assert sorted(file.name for file in read.files.values()) == sorted(FILES)
    assert not read.unreadable
    places = {str(read.where(passage)).removeprefix(f"{island}/") for passage in read.passages()}
    assert {
        "survey.pdf, page 1",
        "survey.pdf, page 2",
        "minutes.docx",
        "oustry.html",
        "vall.txt:3",
    } <= places
    (keepers,) = [passage for passage in read.passages() if "Piet Marlow" in passage.text]
    assert read.where(keepers, "Visitors may climb") == Where(island / "lighthouse.md", line=9)
    assert {passage.title for passage in read.passages()} == {
        "The lighthouse of Korrin Head", "vall", "Oustry", "minutes", "survey"
    }  # fmt: skip
    assert read.identity()["titles"] == "headings"
    assert "titles" not in documents(island / "survey.pdf").identity()


def test_word_file_has_heading_and_blocks_in_order(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    file = tmp_path / "a.docx"
    write_docx(file, ["A & B", "", "Second."])
    plain, whole = read_document(file), file.read_bytes()
    assert (plain.heading, plain.text) == ("", "A & B\n\nSecond.")
    styled = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>A'
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(tmp_path / "b.docx", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).decode().replace("<w:p><w:r><w:t>A", styled))
    assert read_document(tmp_path / "b.docx").heading == "A & B"
    for damaged in (
        b"no archive",
        b"PK\x03\x04 cut short",
        whole.replace(b"</w:document>", b"</w:dokument>"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(
            DataError, match=r"a\.docx: not a readable DOCX \(.*\). Save it again as \.docx$"
        ):
            read_document(file)


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        pytest.param(
            "Words before.\n\n## Part\n\n# The *old* [mill](a.md) of `Oustry` #\n",
            "The old mill of Oustry",
            id="marks",
        ),
        pytest.param("## Part one\n\n### A\n\n## Part two\n", "Part one", id="second level"),
        pytest.param("The mill\n========\n\nWords.", "The mill", id="underline"),
        pytest.param("- an item\n---\n\n| a |\n|---|\n", "", id="no heading"),
        pytest.param("```sh\n# no heading\n```\n\nWords.", "", id="code"),
        pytest.param(
            "---\ntags: [a]\ntitle: 'Harbour minutes'\n---\n\n# Others\n",
            "Harbour minutes",
            id="title of the header",
        ),
        pytest.param(
            "---\ntags: [a]\n---\n\n# The mill\n", "The mill", id="header without a title"
        ),
    ],
)
def test_heading_of_markdown(text: str, heading: str) -> None:
    assert markdown_heading(text) == heading


@pytest.mark.parametrize(
    ("html", "heading", "text"),
    [
        pytest.param(
            "<title>Towns</title><h1>Oustry <b>a</b></h1><h1>Two</h1>Words",
            "Oustry a",
            "Oustry a\n\nTwo\n\nWords",
            id="first heading",
        ),
        pytest.param(
            "<head><title>Towns &amp; rivers</title></head><p>Words.",
            "Towns & rivers",
            "Words.",
            id="title",
        ),
        pytest.param("<h1>Oustry", "Oustry", "Oustry", id="open heading"),
        pytest.param(
            "<script>'<h1>No</h1>'</script><style>p {}</style><p>Words.",
            "",
            "Words.",
            id="script and style",
        ),
        pytest.param(
            "<svg><title>A picture</title><svg></svg></svg><p>Words.", "", "Words.", id="picture"
        ),
        pytest.param(
            "<p>One <i>two</i>\n three<br>four</p><table><tr><td>a</td><td>b</table>",
            "",
            "One two three\n\nfour\n\na b",
            id="table",
        ),
        pytest.param(
            "<p>One</b></p></div><p>Two <unknown>three <",
            "",
            "One\n\nTwo\n\nthree <",
            id="unbalanced tags",
        ),
        pytest.param(
            "<p>one</p><![if !vml]><p>two</p><![nonsense]>",
            "",
            "one\n\ntwo",
            id="conditional comments",
        ),
    ],
)
def test_heading_and_blocks_of_html(html: str, heading: str, text: str) -> None:
    blocks = parse_html(html)
    assert (blocks.heading, blocks.text) == (heading, text)


def test_unreadable_files_are_skipped_with_reasons(tmp_path: Path) -> None:
    write(tmp_path / "good.txt", "Words.")
    bad: dict[str, str | bytes] = {
        "bad.txt": b"one\ntwo \xff",
        "empty.md": " \n",
        "fake.pdf": "no PDF",
    }
    bad["utf16.txt"] = "One.".encode("utf-16-le")
    for name, content in bad.items():
        write(tmp_path / name, content)
    read = documents(tmp_path)
    assert [passage.text for passage in read.passages()] == ["Words."]
    reasons = {file.name: str(reason) for file, reason in read.unreadable.items()}
    assert sorted(reasons) == list(bad)
    assert all(str(tmp_path / name) in reason for name, reason in reasons.items())
    assert "bad.txt:2: not UTF-8 (byte 0xff). Convert the file to UTF-8" in reasons["bad.txt"]
    assert "utf16.txt:1: not text " in reasons["utf16.txt"]
    assert [name for name, _ in read.identity()["files"]] == ["good"]
    (tmp_path / "good.txt").unlink()
    with pytest.raises(DataError, match=r"bad\.txt:2: not UTF-8"):
        _ = documents(tmp_path).collection


def test_equal_names_become_paths(tmp_path: Path) -> None:
    for place in ("a/notes.txt", "b/notes.txt", "b/other.txt"):
        write(tmp_path / place, place)
    assert list(documents(tmp_path).files) == ["a/notes.txt", "b/notes.txt", "other"]
    several = documents(tmp_path / "a", tmp_path / "b", tmp_path / "b" / "other.txt").files
    assert list(several) == ["notes.txt", (tmp_path / "b" / "notes.txt").as_posix(), "other"]
    for name in ("may", "june"):
        write(tmp_path / "c" / f"{name}.md", f"# Notes\n\nWritten in {name}.")
    assert [passage.title for passage in documents(tmp_path / "c").passages()] == [
        "Notes (june)",
        "Notes (may)",
    ]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        pytest.param(
            "nowhere", r"nowhere: no such file or folder. Name your documents", id="missing"
        ),
        pytest.param(
            "x.odt",
            r"x\.odt: file type not supported. Name \.txt, .* files, UTF-8 text, or a folder",
            id="file type",
        ),
        pytest.param("hidden", r"hidden: no documents. Name \.txt", id="hidden files"),
        pytest.param("odd", r"the file's name is not UTF-8. Rename it", id="file name"),
    ],
)
def test_place_without_documents_is_rejected(tmp_path: Path, place: str, message: str) -> None:
    for file in ("x.odt", "hidden/.a.txt", f"odd/{os.fsdecode(bytes([0xE9]))}.txt"):
        write(tmp_path / file, "text")
    (tmp_path / "x.odt").write_bytes(b"PK\x03\x04\xff")
    with pytest.raises(DataError, match=message):
        _ = documents(tmp_path / place).files


WHO = {"question": "Who built the mill?", "answer": "Ann Reed"}


def folder(path: Path | None, size: int = 250, questions_file: str | None = None) -> Folder:
    return Folder(
        "folder",
        None if path is None else str(path),
        KINDS,
        questions_file,
        size,
        "hotpotqa",
        "hotpotqa",
    )


def ask(path: Path, *records: dict[str, Any]) -> list[Question]:
    write(path / "questions.jsonl", jsonl(*(records or (WHO,))))
    return list(folder(path).questions())


def test_a_question_says_its_answers_type_and_support(tmp_path: Path) -> None:
    (tmp_path / "mill.txt").write_text(
        f"{SENTENCE * 4}\n\nThe mill was built by\nAnn Reed.", encoding="utf-8"
    )
    make(tmp_path / "tables.pdf", ["Words.", "Table 2: Flow", STATIONS])
    support = [
        "mill", {"title": "mill", "text": "built by Ann Reed"}, {"title": "tables", "place": "table 2"},
        {"title": "tables", "place": "page 1"},
    ]  # fmt: skip
    record = {
        "id": "a",
        "question": "Who?",
        "answers": ["Ann", "Reed"],
        "type": "structural",
        "support": support,
    }
    (question,) = ask(tmp_path, record)
    assert (question.id, question.answers, question.type) == ("a", ("Ann", "Reed"), "structural")
    gold = [passage for passage in question.passages if passage.id in question.support]
    assert [passage.place for passage in gold] == ["", "page 1", "table 2 page 1"]
    assert gold[0].text.endswith("Ann Reed.")
    assert question.support_titles == {"mill", "tables"}


def test_missing_support_and_answers_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "Mill.txt").write_text("The mill.", encoding="utf-8")
    supports: list[tuple[Any, str]] = [
        ("Mil", r"questions\.jsonl:1: support: no document has the name 'Mil'. Did you mean Mill"),
        (
            {"title": "Mill", "place": "page 9"},
            r"questions\.jsonl:1: support: 'page 9' is not in 'Mill'",
        ),
        (
            {"title": "Mill", "text": "nowhere"},
            r"questions\.jsonl:1: support: 'nowhere' is not in 'Mill'",
        ),
        (7, r"questions\.jsonl:1: .*support"),
    ]
    for support, message in supports:
        with pytest.raises(DataError, match=message):
            ask(tmp_path, {**WHO, "support": [support]})
    with pytest.raises(DataError, match=r"questions\.jsonl:2: answer=None: no gold answer"):
        ask(tmp_path, WHO, {"question": "Who?"})


def test_missing_and_unreadable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"name the folder with your documents: dataset\.path=FOLDER"
    ):
        list(folder(None).questions())
    with pytest.raises(DataError, match="no such folder"):
        list(folder(tmp_path / "no").questions())
    with pytest.raises(
        DataError, match=r"no documents. Name \.txt, .* files. For questions .*: dataset=.*s\.jsonl"
    ):
        ask(tmp_path)
    file = tmp_path / "questions.jsonl"
    with pytest.raises(DataError, match=f"a file. For questions without documents: dataset={file}"):
        list(folder(file).questions())
    (tmp_path / "questions.jsonl").unlink()
    (tmp_path / "a.txt").write_text("Words.", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"no questions\.jsonl in it: no such file. .*dataset\.questions_file=FILE"
    ):
        list(folder(tmp_path).questions())
    with pytest.raises(DataError, match=r"dataset\.questions_file=nothing\.jsonl: no such file"):
        list(folder(tmp_path, questions_file="nothing.jsonl").questions())
    (tmp_path / "a.txt").unlink()
    make(tmp_path / "scan.pdf", [""])
    with pytest.raises(
        DataError, match=r"scan.pdf: no text. Scanned documents need text recognition"
    ):
        ask(tmp_path)
    with pytest.raises(ConfigError, match=r"dataset\.kinds: \.odt: file type not supported"):
        Folder("folder", None, (".odt",), None, 250, "hotpotqa", "hotpotqa")


def test_identity_ignores_paths_of_documents(tmp_path: Path) -> None:
    identities = []
    for name, text, question in [
        ("a", "One.", "Who?"), ("b", "One.", "Who?"), ("c", "Two.", "Who?"), ("d", "One.", "?"),
    ]:  # fmt: skip
        write(tmp_path / name / "x.txt", text)
        ask(tmp_path / name, {**WHO, "question": question})
        identities.append(folder(tmp_path / name).sha256)
    assert (identities[0], len({*identities, folder(tmp_path / "a", size=100).sha256})) == (
        identities[1],
        4,
    )


def test_demo_set_is_half_structural_questions() -> None:
    experiment = compose_experiment(["dataset=pdf", "method=no_context"])
    assert set(identify(experiment)["dataset"]) == {
        "_target_",
        "name",
        "kinds",
        "passage_size",
        "sha256",
    }
    questions = experiment.data.questions
    assert (len(questions), [question.type for question in questions].count("structural")) == (
        40,
        20,
    )
    passages = {passage.id: passage for passage in questions[0].passages}
    assert (len(passages), len({passage.title for passage in passages.values()})) == (79, 5)
    kinds = [{bool(passages[id_].place) for id_ in question.support} for question in questions]
    assert kinds == [{question.type == "structural"} for question in questions]
    assert len([question for question in questions if len(question.support_titles) > 1]) == 6

"""`dataset=folder`: a person's own documents and questions, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets.folder import Folder
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.experiment import Experiment
from kgqa.types import Question
from tests.unit.test_pdf import SENTENCE, STATIONS, make

KINDS = (".txt", ".md", ".markdown", ".html", ".htm", ".docx", ".pdf")
WHO = {"question": "Who built the mill?", "answer": "Ann Reed"}


def folder(path: Path | None, size: int = 250, questions_file: str | None = None) -> Folder:
    return Folder("folder", None if path is None else str(path), KINDS, questions_file, size, "hotpotqa", "hotpotqa")


def ask(path: Path, *records: dict[str, Any]) -> list[Question]:
    (path / "questions.jsonl").write_text("\n".join(map(json.dumps, records or (WHO,))), encoding="utf-8")
    return list(folder(path).questions())


def test_a_question_says_its_answers_type_and_support(tmp_path: Path) -> None:
    (tmp_path / "mill.txt").write_text(f"{SENTENCE * 4}\n\nThe mill was built by\nAnn Reed.", encoding="utf-8")
    make(tmp_path / "tables.pdf", ["Words.", "Table 2: Flow", STATIONS])
    support = [
        "mill", {"title": "mill", "text": "built by Ann Reed"}, {"title": "tables", "place": "table 2"},
        {"title": "tables", "place": "page 1"},
    ]  # fmt: skip
    record = {"id": "a", "question": "Who?", "answers": ["Ann", "Reed"], "type": "structural", "support": support}
    (question,) = ask(tmp_path, record)
    assert (question.id, question.answers, question.type) == ("a", ("Ann", "Reed"), "structural")
    gold = [passage for passage in question.passages if passage.id in question.support]
    assert [passage.place for passage in gold] == ["", "page 1", "table 2 page 1"]
    assert gold[0].text.endswith("Ann Reed.")
    assert question.support_titles == {"mill", "tables"}


def test_support_and_answers_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "Mill.txt").write_text("The mill.", encoding="utf-8")
    supports: list[tuple[Any, str]] = [
        ("Mil", r"questions\.jsonl:1: support: no document has the name 'Mil'. Did you mean Mill"),
        ({"title": "Mill", "place": "page 9"}, r"questions\.jsonl:1: support: 'page 9' is not in 'Mill'"),
        ({"title": "Mill", "text": "nowhere"}, r"questions\.jsonl:1: support: 'nowhere' is not in 'Mill'"),
        (7, r"questions\.jsonl:1: .*support"),
    ]
    for support, message in supports:
        with pytest.raises(DataError, match=message):
            ask(tmp_path, {**WHO, "support": [support]})
    with pytest.raises(DataError, match=r"questions\.jsonl:2: answer=None: no gold answer"):
        ask(tmp_path, WHO, {"question": "Who?"})


def test_missing_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name the folder with your documents: dataset\.path=FOLDER"):
        list(folder(None).questions())
    with pytest.raises(DataError, match="no such folder"):
        list(folder(tmp_path / "no").questions())
    with pytest.raises(DataError, match=r"no documents. Name \.txt, .*\.pdf files"):
        ask(tmp_path)
    (tmp_path / "questions.jsonl").unlink()
    (tmp_path / "a.txt").write_text("Words.", encoding="utf-8")
    with pytest.raises(DataError, match=r"no questions\.jsonl in it: no such file. .*dataset\.questions_file=FILE"):
        list(folder(tmp_path).questions())
    with pytest.raises(DataError, match=r"dataset\.questions_file=nothing\.jsonl: no such file"):
        list(folder(tmp_path, questions_file="nothing.jsonl").questions())
    (tmp_path / "a.txt").unlink()
    make(tmp_path / "scan.pdf", [""])
    with pytest.raises(DataError, match=r"scan.pdf: no text. Scanned documents need text recognition"):
        ask(tmp_path)
    with pytest.raises(ConfigError, match=r"dataset\.kinds: \.odt: file type not supported"):
        Folder("folder", None, (".odt",), None, 250, "hotpotqa", "hotpotqa")


def test_identity_follows_documents_questions_and_size_but_no_paths(tmp_path: Path) -> None:
    identities = []
    for name, text, question in [
        ("a", "One.", "Who?"), ("b", "One.", "Who?"), ("c", "Two.", "Who?"), ("d", "One.", "?"),
    ]:  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(text, encoding="utf-8")
        ask(tmp_path / name, {**WHO, "question": question})
        identities.append(folder(tmp_path / name).sha256)
    assert (identities[0], len({*identities, folder(tmp_path / "a", size=100).sha256})) == (identities[1], 4)


def test_the_shipped_set_has_forty_questions_half_of_them_structural() -> None:
    experiment = Experiment.of(["dataset=pdf", "method=no_context"])
    assert set(experiment.identity["dataset"]) == {"_target_", "name", "kinds", "passage_size", "sha256"}
    questions = experiment.questions
    assert (len(questions), [question.type for question in questions].count("structural")) == (40, 20)
    passages = {passage.id: passage for passage in questions[0].passages}
    assert (len(passages), len({passage.title for passage in passages.values()})) == (79, 5)
    for question in questions:
        assert question.support
        assert {bool(passages[id_].place) for id_ in question.support} == {question.type == "structural"}
    assert len([question for question in questions if len(question.support_titles) > 1]) == 6

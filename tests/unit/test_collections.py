"""KGP's collections: gold documents and negatives, split, from questions' own paragraphs or from articles."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.datasets import collections
from kgqa.datasets.collections import Collections
from kgqa.datasets.hotpotqa import HotpotQA
from kgqa.datasets.iirc import IIRC
from kgqa.datasets.splitting import overlapping, split
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.experiment import Experiment
from kgqa.types import Passage, Question
from tests.unit.question_files import array, musique
from tests.unit.question_files import hotpotqa as read_hotpotqa

REAL = Path(os.environ.get("KGQA_DATA") or Path(__file__).parents[3] / "shared" / "data")
KGP = Collections(documents=12, passage_size=250, seed=0)
FILLER = "Nothing of interest is said here, and it goes on for quite a while. "


def hotpotqa(folder: Path, count: int = 3, paragraphs: int = 10, corpus: Path | None = None) -> HotpotQA:
    """Questions of two gold paragraphs each, "Gold n" and "Bridge n"; the rest is about other things."""
    records = []
    for number in range(count):
        context = [
            [f"Gold {number}", [f"Gold {number} is a mill.", f" {FILLER * 11}", f" It was built in 19{number:02}."]]
        ]
        context += [[f"Bridge {number}", [f"Bridge {number} leads there.", f" {FILLER}"]]]
        context += [[f"Other {number}.{other}", [FILLER * 3]] for other in range(paragraphs - 2)]
        facts = [[f"Gold {number}", 0], [f"Gold {number}", 2], [f"Bridge {number}", 0]]
        question = {"_id": f"q{number}", "question": "When?", "answer": f"19{number:02}", "type": "bridge"}
        records.append({**question, "context": context, "supporting_facts": facts})
    return read_hotpotqa(array(folder, *records), corpus=corpus)


def articles(folder: Path, *pages: tuple[str, str]) -> Path:
    file = folder / "articles.jsonl"
    lines = [json.dumps({"title": title, "text": text}) for title, text in pages]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def collected(dataset: Any, settings: Collections = KGP) -> list[Question]:
    return list(settings.over(dataset).questions())


def gold(question: Question) -> list[Passage]:
    return [passage for passage in question.passages if passage.id in question.support]


def test_support_is_the_passages_that_hold_the_supporting_sentences(tmp_path: Path) -> None:
    (question, *_) = collected(hotpotqa(tmp_path))
    texts = {passage.text for passage in gold(question)}
    assert len(texts) == 3
    assert any(text.startswith("Bridge 0 leads there.") for text in texts)
    assert any(text.startswith("Gold 0 is a mill.") for text in texts)
    assert any(text.endswith("It was built in 1900.") for text in texts)
    between = {passage.text for passage in question.passages if passage.title == "Gold 0"} - texts
    assert between == {(FILLER * 3).strip()}
    assert all(len(passage.text) <= 250 for passage in question.passages)
    assert question.support_titles == {"Gold 0", "Bridge 0"}


@given(text=st.text(st.sampled_from("ab .\n\u00e9\u2603\U0001f600\u0301-"), max_size=300), size=st.integers(1, 40))
def test_pieces_cover_a_text_in_order_and_are_never_longer_than_asked_for(text: str, size: int) -> None:
    pieces, at = split(text, size), 0
    for piece in pieces:
        end = piece.start + len(piece.text)
        assert text[piece.start : end] == piece.text
        assert not text[at : piece.start].strip()
        assert 0 < len(piece.text) <= max(size, 2)  # a letter and its accent are not parted
        at = end
    assert not text[at:].strip()
    assert overlapping(pieces, text, text.strip()) == list(range(len(pieces)))


def test_negatives_are_the_questions_own_paragraphs_before_those_of_others(tmp_path: Path) -> None:
    for question in collected(hotpotqa(tmp_path)):
        number = question.id[1:]
        titles = {passage.title for passage in question.passages}
        own = {title for title in titles if title.split()[1].split(".")[0] == number}
        assert (len(titles), len(own)) == (12, 10)


def test_one_seed_gives_one_collection_and_another_seed_another(tmp_path: Path) -> None:
    dataset = hotpotqa(tmp_path, count=5, paragraphs=20)
    other = Collections(documents=12, passage_size=250, seed=1)
    assert collected(dataset) == collected(dataset)
    assert collected(dataset) != collected(dataset, other)


def test_without_sentences_all_of_a_gold_paragraph_is_support(tmp_path: Path) -> None:
    long = {"idx": 0, "title": "Mill", "paragraph_text": FILLER * 6, "is_supporting": True}
    other = {"idx": 1, "title": "Mill", "paragraph_text": "Another mill.", "is_supporting": False}
    record = {"id": "2hop__1", "question": "?", "answer": "x", "paragraphs": [long, other]}
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(record), encoding="utf-8")
    (question,) = collected(musique(file))
    assert {passage.text for passage in question.passages} - {p.text for p in gold(question)} == {"Another mill."}
    assert len(gold(question)) == 1  # equal pieces of one title are one passage


def test_a_pinned_passage_is_a_gold_document(tmp_path: Path) -> None:
    pinned = {"idx": 0, "title": "Main", "paragraph_text": "The main page.", "is_supporting": True}
    linked = {"idx": 1, "title": "Linked", "paragraph_text": "The linked page.", "is_supporting": True}
    record = {
        "question_id": "a",
        "question_text": "?",
        "contexts": [pinned, linked],
        "pinned_contexts": [pinned],
        "answers_objects": [{"spans": ["x"]}],
    }
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(record), encoding="utf-8")
    (question,) = collected(IIRC("iirc", "dev", {"dev": ("x",)}, "drop", "iirc", path=str(file)))
    assert question.pinned == ()
    assert {passage.title for passage in gold(question)} == {"Main", "Linked"}


def test_whole_articles_are_all_passages_of_a_title(tmp_path: Path) -> None:
    other = [(f"Page {number}", f"{FILLER}{number}") for number in range(30)]
    body = f"{FILLER * 4}It was built in 1900."
    corpus = articles(
        tmp_path, ("gold_0", "Gold 0 is a mill."), *other, ("Gold 0", body), ("Bridge 0", "It is a bridge.")
    )
    (question,) = collected(hotpotqa(tmp_path, count=1, corpus=corpus))
    assert len({passage.title for passage in question.passages}) == 12
    assert not any(passage.title.startswith("Other") for passage in question.passages)
    texts = {passage.text for passage in gold(question)}
    assert "It is a bridge." in texts  # not word for word, and the nearest
    assert {text[-21:] for text in texts if "built" in text} == {"It was built in 1900."}
    assert any("Gold 0 is a mill." in text for text in texts)


def test_gold_that_is_nowhere_stays_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = articles(tmp_path, *[(f"Page {number}", f"{FILLER}{number}") for number in range(30)])
    file = tmp_path / "open.jsonl"
    record = {"id": "a", "question": "?", "answer": "x", "type": "bridge", "supporting_titles": ["Page 3", "Lost"]}
    file.write_text(json.dumps(record), encoding="utf-8")
    dataset = read_hotpotqa(file, corpus=corpus)
    with caplog.at_level(logging.WARNING, "kgqa"):
        (question,) = collected(dataset)
    assert question.support == {"missing:Lost"}
    assert "Page 3" in {passage.title for passage in question.passages}
    assert caplog.messages == ["collections: 1 of 1 questions lack a gold document"]


def test_questions_without_passages_need_articles(tmp_path: Path) -> None:
    file = tmp_path / "open.jsonl"
    file.write_text(json.dumps({"id": "a", "question": "?", "answer": "x", "type": "bridge"}), encoding="utf-8")
    dataset = read_hotpotqa(file)
    with pytest.raises(DataError, match=r"question a came without passages. .*dataset\.corpus=FILE"):
        collected(dataset)


def test_negatives_are_drawn_from_a_bounded_sample_of_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "RESERVOIR", 15)
    corpus = articles(tmp_path, *[(f"Page {number}", f"{FILLER}{number}") for number in range(200)])
    titles = [
        {passage.title for passage in question.passages} for question in collected(hotpotqa(tmp_path, 9, 10, corpus))
    ]
    drawn = {title for each in titles for title in each if title.startswith("Page")}
    assert len(drawn) <= 15
    assert max(int(title.split()[1]) for title in drawn) > 100  # not the first ones of the file
    assert all(len(each) == 12 for each in titles)


def test_what_is_one_collection_already_takes_no_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dataset=documents has collections already"):
        KGP.over(Path("documents"))


COUNTS = {
    # questions; passages and support of all of them
    "hotpotqa": (200, 7492, 473),
    "2wiki": (200, 5227, 503),
    "musique": (160, 5248, 1094),
    "iirc": (12, 395, 123),
}


@pytest.mark.skipif(not REAL.is_dir(), reason="no real data sets beside the repository: set KGQA_DATA")
@pytest.mark.parametrize(("dataset", "counts"), COUNTS.items())
def test_real_questions_have_twelve_documents_with_all_gold(
    dataset: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KGQA_DATA", str(REAL))
    experiment = Experiment.of(["engine=scripted", f"dataset={dataset}", "collection=kgp"])
    source, found = list(experiment.source.questions()), experiment.questions
    assert not caplog.messages  # which would say how many have fewer, or lack gold
    assert [question.id for question in found] == [question.id for question in source]
    for before, after in zip(source, found, strict=True):
        assert after.support
        assert after.support <= {passage.id for passage in after.passages}
        words = {word for passage in gold(after) for word in re.findall(r"\w+", passage.text)}
        assert all(words.issuperset(re.findall(r"\w+", sentence)) for _, sentence in before.facts)
    assert (len(found), sum(len(q.passages) for q in found), sum(len(q.support) for q in found)) == counts

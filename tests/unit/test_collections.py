"""KGP's collections: gold documents and negatives, split, from questions' own paragraphs or from articles."""

from __future__ import annotations

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
from kgqa.experiment.composing import compose_experiment
from kgqa.types import Passage, Question
from tests.unit.files import jsonl, write
from tests.unit.question_files import array, built_dataset, lines, musique, musique_record
from tests.unit.question_files import hotpotqa as read_hotpotqa

REAL = Path(os.environ.get("KGQA_DATA") or Path(__file__).parents[3] / "shared" / "data")
FILLER = "Nothing of interest is said here, and it goes on for quite a while. "


def hotpotqa(
    folder: Path, count: int = 3, paragraphs: int = 10, corpus: Path | None = None
) -> HotpotQA:
    """Questions of two gold paragraphs each, "Gold n" and "Bridge n"; the rest is about other things."""
    records = []
    for number in range(count):
        context = [
            [
                f"Gold {number}",
                [
                    f"Gold {number} is a mill.",
                    f" {FILLER * 11}",
                    f" It was built in 19{number:02}.",
                ],
            ]
        ]
        context += [[f"Bridge {number}", [f"Bridge {number} leads there.", f" {FILLER}"]]]
        context += [[f"Other {number}.{other}", [FILLER * 3]] for other in range(paragraphs - 2)]
        facts = [[f"Gold {number}", 0], [f"Gold {number}", 2], [f"Bridge {number}", 0]]
        question = {
            "_id": f"q{number}",
            "question": "When?",
            "answer": f"19{number:02}",
            "type": "bridge",
        }
        records.append({**question, "context": context, "supporting_facts": facts})
    return read_hotpotqa(array(folder, *records), corpus=corpus)


def articles(folder: Path, *pages: tuple[str, str]) -> Path:
    return write(
        folder / "articles.jsonl", jsonl(*({"title": title, "text": text} for title, text in pages))
    )


def collected(dataset: Any, seed: int = 0) -> list[Question]:
    collection = Collections(documents=12, passage_size=250, seed=seed, dataset=dataset)
    return list(collection.collect(list(dataset.questions())))


def gold(question: Question) -> list[Passage]:
    return [passage for passage in question.passages if passage.id in question.support]


def test_support_passages_have_supporting_sentences(tmp_path: Path) -> None:
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


@given(
    text=st.text(st.sampled_from("ab .\n\u00e9\u2603\U0001f600\u0301-"), max_size=300),
    size=st.integers(1, 40),
)
def test_pieces_cover_a_text_within_the_length(text: str, size: int) -> None:
    pieces = split(text, size)
    assert [text[piece.start : piece.start + len(piece.text)] for piece in pieces] == [
        piece.text for piece in pieces
    ]
    ends = [0, *(piece.start + len(piece.text) for piece in pieces)]
    starts = [*(piece.start for piece in pieces), len(text)]
    assert "".join(text[end:start] for end, start in zip(ends, starts, strict=True)).strip() == ""
    assert ends == sorted(ends)
    # a letter and its accent stay together
    assert [piece for piece in pieces if not 0 < len(piece.text) <= max(size, 2)] == []
    assert overlapping(pieces, text, text.strip()) == list(range(len(pieces)))


def test_negatives_start_with_own_paragraphs(tmp_path: Path) -> None:
    counts = []
    for question in collected(hotpotqa(tmp_path)):
        titles = {passage.title for passage in question.passages}
        own = {title for title in titles if title.split()[1].split(".")[0] == question.id[1:]}
        counts.append((len(titles), len(own)))
    assert set(counts) == {(12, 10)}
    dataset = hotpotqa(tmp_path, count=5, paragraphs=20)
    assert collected(dataset) == collected(dataset)
    assert collected(dataset) != collected(dataset, seed=1)


def test_gold_paragraph_is_support_without_sentences(tmp_path: Path) -> None:
    long = {"idx": 0, "title": "Mill", "paragraph_text": FILLER * 6, "is_supporting": True}
    other = {"idx": 1, "title": "Mill", "paragraph_text": "Another mill.", "is_supporting": False}
    (question,) = collected(
        musique(
            lines(tmp_path, musique_record(paragraphs=[long, other], question_decomposition=[]))
        )
    )
    assert {passage.text for passage in question.passages} - {p.text for p in gold(question)} == {
        "Another mill."
    }
    # equal pieces of one title are one passage
    assert len(gold(question)) == 1
    answer = {"question_id": "a", "question_text": "?", "answers_objects": [{"spans": ["x"]}]}
    file = lines(
        tmp_path,
        {**answer, "contexts": [long, {**long, "title": "Linked"}], "pinned_contexts": [long]},
    )
    (question,) = collected(IIRC("iirc", "dev", {"dev": ("x",)}, "drop", "iirc", path=str(file)))
    assert (question.pinned, {passage.title for passage in gold(question)}) == (
        (),
        {"Mill", "Linked"},
    )


def test_whole_articles_are_all_passages_of_a_title(tmp_path: Path) -> None:
    other = [(f"Page {number}", f"{FILLER}{number}") for number in range(30)]
    body = f"{FILLER * 4}It was built in 1900."
    corpus = articles(
        tmp_path,
        ("gold_0", "Gold 0 is a mill."),
        *other,
        ("Gold 0", body),
        ("Bridge 0", "It is a bridge."),
    )
    (question,) = collected(hotpotqa(tmp_path, count=1, corpus=corpus))
    assert len({passage.title for passage in question.passages}) == 12
    assert not any(passage.title.startswith("Other") for passage in question.passages)
    texts = {passage.text for passage in gold(question)}
    # not word for word, and the nearest
    assert "It is a bridge." in texts
    assert {text[-21:] for text in texts if "built" in text} == {"It was built in 1900."}
    assert any("Gold 0 is a mill." in text for text in texts)


def test_gold_that_is_nowhere_stays_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = articles(tmp_path, *[(f"Page {number}", f"{FILLER}{number}") for number in range(30)])
    record = {
        "id": "a",
        "question": "?",
        "answer": "x",
        "type": "bridge",
        "supporting_titles": ["Page 3", "Lost"],
    }
    with caplog.at_level(logging.WARNING, "kgqa"):
        (question,) = collected(read_hotpotqa(lines(tmp_path, record), corpus=corpus))
    assert question.support == {"missing:Lost"}
    assert "Page 3" in {passage.title for passage in question.passages}
    assert caplog.messages == ["collections: 1 of 1 questions lack a gold document"]
    with pytest.raises(
        DataError, match=r"question a came without passages. .*dataset\.corpus=FILE"
    ):
        collected(read_hotpotqa(lines(tmp_path, record)))
    with pytest.raises(ConfigError, match="dataset=documents has collections already"):
        collected(Path("documents"))


def test_negatives_come_from_a_bounded_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "RESERVOIR", 15)
    corpus = articles(tmp_path, *[(f"Page {number}", f"{FILLER}{number}") for number in range(200)])
    titles = [
        {passage.title for passage in question.passages}
        for question in collected(hotpotqa(tmp_path, 9, 10, corpus))
    ]
    pages = {title for each in titles for title in each if title.startswith("Page")}
    assert len(pages) <= 15
    # not the first ones of the file
    assert max(int(title.split()[1]) for title in pages) > 100
    assert all(len(each) == 12 for each in titles)


COUNTS = {
    # questions; passages and support of all of them
    "2wiki": (200, 5227, 503),
    "musique": (160, 5248, 1094),
    "iirc": (12, 395, 123),
}


def gold_words(question: Question) -> set[str]:
    return {word for passage in gold(question) for word in re.findall(r"\w+", passage.text)}


@pytest.mark.skipif(
    not REAL.is_dir(), reason="no real data sets beside the repository: set KGQA_DATA"
)
@pytest.mark.parametrize(("dataset", "counts"), COUNTS.items())
def test_real_questions_have_all_gold_documents(
    dataset: str,
    counts: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("KGQA_DATA", str(REAL))
    experiment = compose_experiment(["engine=scripted", f"dataset={dataset}", "collection=kgp"])
    source, questions = list(experiment.data.all_questions()), experiment.data.questions
    # which would say how many have fewer, or lack gold
    assert not caplog.messages
    assert [question.id for question in questions] == [question.id for question in source]
    assert [q.id for q in questions if not q.support] == []
    assert [
        q.id for q in questions if not q.support <= {passage.id for passage in q.passages}
    ] == []
    missing = [
        (after.id, sentence)
        for before, after in zip(source, questions, strict=True)
        for _, sentence in before.facts
        if not gold_words(after).issuperset(re.findall(r"\w+", sentence))
    ]
    assert missing == []
    assert (
        len(questions),
        sum(len(q.passages) for q in questions),
        sum(len(q.support) for q in questions),
    ) == counts


RECORD = {
    "question": "In which town was the composer born?",
    "answer": "Fauskenes",
    "titles": ["The Herring Queen", "Asbjarne Lyngholt"],
    "docs": ["The Herring Queen is an opera. It is long.", "He was born in Fauskenes."],
    "docs_chunks": [["It is long.", "The Herring Queen is an opera."], ["He was born in Fauskenes."]],
    "title_chunks": [
        ["The Herring Queen", "It is long."], ["The Herring Queen", "The Herring Queen is an opera."],
        ["Asbjarne Lyngholt", "He was born in Fauskenes."], ["Asbjarne Lyngholt", "He was born in Fauskenes."],
    ],
    "supports": [["Asbjarne Lyngholt", "He was born in Fauskenes."], ["The Herring Queen", "Nobody says this."]],
}  # fmt: skip


def dataset(folder: Path, *records: dict[str, Any]) -> Any:
    return built_dataset("kgp", write(folder / "test_docs.json", records))


def test_passages_and_support_are_the_files_own(tmp_path: Path) -> None:
    first, second = dataset(
        tmp_path, RECORD, {**RECORD, "supports": RECORD["supports"][:1]}
    ).questions()
    assert [(passage.title, passage.text) for passage in first.passages] == [
        ("The Herring Queen", "It is long."),
        ("The Herring Queen", "The Herring Queen is an opera."),
        ("Asbjarne Lyngholt", "He was born in Fauskenes."),
    ]
    assert first.support == {first.passages[2].id, "missing:The Herring Queen"}
    assert (second.support, first.id, second.id, first.answers) == (
        {second.passages[2].id},
        "0",
        "1",
        ("Fauskenes",),
    )
    assert first.support_titles == {"The Herring Queen", "Asbjarne Lyngholt"}
    other = {**RECORD, "title_chunks": [["Tveit", "Tveit is a fjord."]], "supports": []}
    assert [passage.title for passage in dataset(tmp_path, RECORD, other).passages()][-1] == "Tveit"


def test_file_of_another_dataset_is_rejected(tmp_path: Path) -> None:
    for path, message in [
        (None, "get the authors' file from https"),
        (tmp_path / "nowhere.json", "no such file"),
    ]:
        with pytest.raises(DataError, match=message):
            list(built_dataset("kgp", path).questions())
    records: list[tuple[dict[str, Any], str]] = [
        ({"id": "1", "question": "?", "answer": "a", "paragraphs": []}, "This looks like musique"),
        ({key: value for key, value in RECORD.items() if key != "supports"}, "no key 'supports'"),
        ({**RECORD, "answer": ""}, "no gold answer"),
    ]
    for record, message in records:
        with pytest.raises(DataError, match=message):
            list(dataset(tmp_path, record).questions())

"""The corpus reader on real files: number of passages, a hash over all of them, and the first, tenth and last."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kgqa.datasets import corpus
from kgqa.types import Passage
from tests.golden.test_readers import DATA, FILES, questions

CORPORA = DATA.parent / "corpora"
# Number of passages, hash over their ids in order, titles of the first, tenth and last. The HotpotQA file is one
# object of titles with sentences, two files are arrays, two have a record in each line.
PASSAGES = {
    "2wikimultihopqa_hipporag_corpus_6119.json.gz": (
        6119,
        "0106afb8bfa4a45b",
        ("Teutberga", "Theobald of Arles", "Margaret of L'Aigle"),
    ),
    "hotpotqa_train_hipporag_corpus_994.json.gz": (994, "eccb8fb18ccd7db7", ("Demon Dice", "Alû", "Ann B. Davis")),
    "musique_train_hipporag_corpus_1890.json.gz": (
        1890,
        "ddf1044cf578de3a",
        ("Journal of Mathematical Physics", "Fractional Calculus and Applied Analysis", "Lewistown, Illinois"),
    ),
    "hotpotqa_psirag_retrieved_passages.jsonl.gz": (
        4830,
        "3419dff258fff957",
        ("The Newcomers (film)", "Mickey Spillane's Mike Hammer", "Wheeler Peak Glacier"),
    ),
    "musique_psirag_retrieved_passages.jsonl.gz": (
        3372,
        "5140b6d5354e323f",
        ("FC Barcelona", "Warsaw Pact", "The Chosen One (2010 film)"),
    ),
}
CONTEXTS = {"musique": 2965, "hotpotqa": 1988, "hotpotqa_fullwiki": 499, "2wiki": 1445, "iirc": 78}  # distinct ones


def passages(file: Path) -> list[Passage]:
    if not file.is_file():
        pytest.skip(f"no {file}; KGQA_DATA names another folder")
    return list(corpus.read(file))


@pytest.mark.parametrize("name", PASSAGES)
def test_a_corpus_file_is_read_from_end_to_end(name: str) -> None:
    found = passages(CORPORA / name)
    hashed = hashlib.sha256(" ".join(passage.id for passage in found).encode()).hexdigest()[:16]
    assert (len(found), hashed, tuple(found[place].title for place in (0, 9, -1))) == PASSAGES[name]


@pytest.mark.parametrize("dataset", FILES)
def test_the_contexts_of_a_question_file_are_its_corpus(dataset: str) -> None:
    """The corpus reader and the dataset's own reader make the same passages of one file."""
    found = list(corpus.distinct(passages(DATA / FILES[dataset])))
    given = corpus.distinct(passage for question in questions(dataset) for passage in question.passages)
    assert found == list(given)
    assert len(found) == CONTEXTS[dataset]


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("hotpotqa", "hotpotqa_train_hipporag_corpus_994.json.gz"),
        ("musique", "musique_train_hipporag_corpus_1890.json.gz"),
    ],
)
def test_the_gold_passages_of_the_train_questions_are_in_their_corpus(dataset: str, name: str) -> None:
    """Under the same ids, though the file is in another format than the questions, 100 of which are of train."""
    ids = {passage.id for passage in passages(CORPORA / name)}
    covered = [question.support <= ids for question in questions(dataset)]
    assert covered.count(True) == 100

"""The readers on real files: counts, a hash over all passages, and the first, tenth and last record (`readers.jsonl`).

The files are not part of the project: `KGQA_DATA` names their folder, else `../shared/data` beside the repository.
Other files than these, say the official ones, are another edition: their tests are skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from kgqa.config.building import build
from kgqa.config.keys import load_node
from kgqa.datasets import corpus
from kgqa.datasets.passages import distinct
from kgqa.kg.exchange import ImportedTriples, read_passages
from kgqa.types import Passage, Question
from kgqa.util.fs import jsonl_text

REPOSITORY = Path(__file__).parents[2]
DATA = Path(os.environ.get("KGQA_DATA") or REPOSITORY.parent / "shared" / "data") / "questions"
CORPORA, TRIPLES = DATA.parent / "corpora", DATA.parent / "triples"
# Number of questions and of distinct passages, and a hash over the ids of all passages in file order: pins every title
# and text.
FILES = {
    "musique": ("musique_ans_dev.jsonl.gz", (160, 2965, "d86b6364d4daf4ef")),
    "hotpotqa": ("hotpotqa_dev.json.gz", (200, 1988, "b00f28397055771d")),
    "hotpotqa_fullwiki": ("hotpotqa_fullwiki_dev.json.gz", (50, 499, "968d6273e4171bd9")),
    "2wiki": ("2wikimultihopqa_dev.json.gz", (200, 1445, "d652e049ee32d357")),
    "iirc": ("iirc_from_ircot_prompts_dev.jsonl", (12, 78, "307b7d7579127666")),
}
# Dataset, id, question, answers, number of passages, titles of the support, hops, type, first passage.
RECORDS = [
    json.loads(line)
    for line in Path(__file__).with_name("readers.jsonl").read_text("utf-8").splitlines()
]
# Number of passages, hash over their ids in order, titles of the first, tenth and last. The HotpotQA file is one
# object of titles with sentences, two files are arrays, two have a record in each line.
CORPUS_FILES = {
    "2wikimultihopqa_hipporag_corpus_6119.json.gz": (
        6119, "0106afb8bfa4a45b", ("Teutberga", "Theobald of Arles", "Margaret of L'Aigle")),
    "hotpotqa_train_hipporag_corpus_994.json.gz": (994, "eccb8fb18ccd7db7", ("Demon Dice", "Alû", "Ann B. Davis")),
    "musique_train_hipporag_corpus_1890.json.gz": (1890, "ddf1044cf578de3a", (
        "Journal of Mathematical Physics", "Fractional Calculus and Applied Analysis", "Lewistown, Illinois")),
    "hotpotqa_psirag_retrieved_passages.jsonl.gz": (
        4830, "3419dff258fff957", ("The Newcomers (film)", "Mickey Spillane's Mike Hammer", "Wheeler Peak Glacier")),
    "musique_psirag_retrieved_passages.jsonl.gz": (
        3372, "5140b6d5354e323f", ("FC Barcelona", "Warsaw Pact", "The Chosen One (2010 film)")),
}  # fmt: skip


def existing(file: Path) -> Path:
    if not file.is_file():
        pytest.skip(f"no {file}; KGQA_DATA names another folder")
    return file


@cache
def questions(dataset: str) -> list[Question]:
    config = OmegaConf.create(load_node("dataset", dataset))
    OmegaConf.update(config, "path", str(existing(DATA / FILES[dataset][0])))
    resolved: Any = OmegaConf.to_container(config)
    return list(build(resolved, "dataset").questions())


def digest(passages: Iterable[Passage]) -> str:
    return hashlib.sha256(" ".join(passage.id for passage in passages).encode()).hexdigest()[:16]


def essence(dataset: str, question: Question) -> list[Any]:
    titles = {passage.id: passage.title for passage in question.passages}
    support = sorted(titles.get(gold, gold) for gold in question.support)
    facts = [question.id, question.text, list(question.answers), len(question.passages), support]
    return [dataset, *facts, question.hops, question.type, question.passages[0].text[:60]]


@pytest.mark.parametrize("dataset", FILES)
def test_a_dataset_is_read_from_end_to_end(dataset: str) -> None:
    """The corpus reader makes the same passages of the file as the dataset's own reader."""
    read = questions(dataset)
    passages = [passage for question in read for passage in question.passages]
    once = list(distinct(passages))
    assert (len(read), len(once), digest(passages)) == FILES[dataset][1]
    assert [essence(dataset, read[at]) for at in (0, 9, -1)] == [
        each for each in RECORDS if each[0] == dataset
    ]
    assert [
        question.id for question in read if question.support_titles != gold_titles(question)
    ] == []
    assert list(distinct(corpus.read(DATA / FILES[dataset][0]))) == once


def gold_titles(question: Question) -> set[str]:
    """Return the titles of the gold passages, also of those that the file lacks."""
    titles = {passage.id: passage.title for passage in question.passages}
    return {titles.get(gold, gold.removeprefix("missing:")) for gold in question.support}


def test_fields_of_one_dataset_only() -> None:
    musique, pinned = (
        questions("musique"),
        [[each.title for each in q.pinned] for q in questions("iirc")],
    )
    assert all(
        {hop.passage_id for hop in question.decomposition} == question.support
        for question in musique
    )
    assert sum(len(question.answers) > 1 for question in musique) == 49  # a third has aliases
    support = [question.support for question in questions("hotpotqa_fullwiki")]
    assert (
        sum(any(gold.startswith("missing:") for gold in each) for each in support) == 38
    )  # not retrieved
    assert {len(each) for each in support} == {2}
    assert [pinned[at] for at in (0, 9, -1)] == [
        ["Ivana Fišer"], ["William Wright (privateer)"], ["73rd (Perthshire) Regiment of Foot"]
    ]  # fmt: skip
    assert {len(each) for each in pinned} == {1}


@pytest.mark.parametrize("name", CORPUS_FILES)
def test_a_corpus_file_is_read_from_end_to_end(name: str) -> None:
    """It holds the gold passages of its 100 train questions, under the same ids, though in another format than they."""
    passages = list(corpus.read(existing(CORPORA / name)))
    assert (
        len(passages),
        digest(passages),
        tuple(passages[place].title for place in (0, 9, -1)),
    ) == CORPUS_FILES[name]
    if "train" in name:
        ids = {passage.id for passage in passages}
        assert [q.support <= ids for q in questions(name.partition("_")[0])].count(True) == 100


def test_triples_of_hipporag_match_by_title_and_text(tmp_path: Path) -> None:
    passages = read_passages(
        existing(TRIPLES / "musique_train_openie_gpt-3.5-turbo-1106_1890.json.gz"), "hipporag"
    )
    triples = [triple for passage in passages for triple in passage.triples]
    assert (len(passages), len(triples)) == (1886, 17_183)
    assert sum(passage.malformed for passage in passages) == 185
    assert sum(not passage.triples for passage in passages) == 2
    assert triples[0] == (
        "Journal of Mathematical Physics",
        "published by",
        "American Institute of Physics",
    )
    assert hashlib.sha256(json.dumps(triples).encode()).hexdigest()[:16] == "4ac62f438f7ec8d0"
    (tmp_path / "ours.jsonl").write_text(
        jsonl_text(passage.json() for passage in passages), encoding="utf-8"
    )
    asked = {
        passage.id: passage for question in questions("musique") for passage in question.passages
    }
    counts = ImportedTriples(str(tmp_path / "ours.jsonl")).counts(asked.values())
    assert counts == {"passages": 2965, "unmatched": 1075, "empty": 1077, "triples": 17_279}

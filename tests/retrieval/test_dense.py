"""Dense retrieval: every search against brute force, interrupted builds, what does not fit, and real encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Rank
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.errors import ConfigError, DataError
from kgqa.identity.component import identity_of
from kgqa.protocols import Query
from kgqa.retrieval import dense as dense_module
from kgqa.retrieval.dense import VECTORS
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.retrieval.lexical import Lexical
from kgqa.types import Passage
from tests.retrieval.word_vectors import (
    CORPUS,
    EXACT,
    QUERIES,
    Words,
    brute_force,
    dense,
    opened,
    skip_without,
)


@pytest.mark.parametrize("backend", [*EXACT, "ivf", "hnsw"])
def test_every_search_finds_what_brute_force_finds(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all lists probed, and more candidates followed than there are passages, so do the approximations."""
    skip_without(backend)
    # FAISS has every vector, so the exact search is never needed
    if backend in ("ivf", "hnsw"):
        monkeypatch.setattr(dense_module, "nearest_exactly", None)
    retriever = dense(Words(), backend=backend, lists=2, probes=2, breadth=200)
    results = opened(retriever, CORPUS, tmp_path).find_scored(QUERIES)
    assert [list(each) for each in results] == [
        brute_force(Words(), CORPUS, query) for query in QUERIES
    ]
    monkeypatch.undo()
    # FAISS refuses more lists than passages, and complains below 39 passages a list
    if backend == "ivf":
        finder = opened(
            dense(Words(), backend="ivf", lists=1024, probes=1), CORPUS[:50], tmp_path / "small"
        )
        assert list(finder.find_scored(QUERIES[:1])[0]) == brute_force(
            Words(), CORPUS[:50], QUERIES[0]
        )


@pytest.mark.parametrize("backend", EXACT)
def test_exact_searches(backend: str, tmp_path: Path) -> None:
    """By inner product also for long vectors, equal scores by place however many, and in the places of a query."""
    skip_without(backend)
    long = Words(scale=9.0)
    # the sum does not know the order
    alike = [Passage.of("", text) for text in ("kalo mire", "mire kalo")]
    corpus = [*CORPUS[:30], *(alike[at % 2] for at in range(60)), *CORPUS[30:40]]
    queries = [*QUERIES, *(Query("kalo mire", k) for k in (5, 30, 60))]
    queries += [Query("kalo mire", 3, among=(2, 50, 51, 99)), Query("vivi", 9, among=(7,))]
    results = opened(dense(long, backend=backend), corpus, tmp_path).find_scored(
        [*queries, Query("sato", 9, among=())]
    )
    assert [list(each) for each in results[:-1]] == [
        brute_force(long, corpus, query) for query in queries
    ]
    assert [place for place, score in results[6] if score == results[6][-1][1]] == list(
        range(30, 89)
    )
    assert list(results[-1]) == []


@pytest.mark.parametrize(
    "change", [{"backend": "hnsw"}, {"probes": 2}, {"lists": 9}, {"separator": "|"}], ids=str
)
def test_settings_of_the_search_are_another_retriever(change: dict[str, Any]) -> None:
    assert identity_of(dense(Words(), **change)) != identity_of(dense(Words()))


def test_interrupted_build_resumes_after_last_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_module, "SHARD", 40)
    whole, part = tmp_path / "whole", tmp_path / "part"
    opened(dense(Words()), CORPUS, whole)
    part.mkdir()
    with pytest.raises(KeyboardInterrupt):
        dense(Words(fails_at=80)).build(CORPUS, part, lambda _: None)
    encoder, sizes = Words(), list[int]()
    dense(encoder).build(CORPUS, part, sizes.append)
    assert len(encoder.encoded) == 70
    assert sum(sizes) == 150
    assert (part / VECTORS).read_bytes() == (whole / VECTORS).read_bytes()
    other = Words(scale=2.0)
    # vectors of another encoder are not reused
    dense(other).build(CORPUS, part, sizes.append)
    assert len(other.encoded) == 150


@pytest.mark.parametrize("content", [None, b"", b"no array", b"\x93NUMPY\x01\x00"], ids=str)
def test_damaged_part_of_an_index_is_encoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    monkeypatch.setattr(dense_module, "SHARD", 40)
    with pytest.raises(KeyboardInterrupt):
        dense(Words(fails_at=80)).build(CORPUS, tmp_path, lambda _: None)
    (tmp_path / VECTORS).unlink()
    if content is not None:
        (tmp_path / VECTORS).write_bytes(content)
    encoder = Words()
    dense(encoder).build(CORPUS, tmp_path, lambda _: None)
    assert len(encoder.encoded) == len(CORPUS)


def test_title_and_text_of_a_passage_are_encoded(tmp_path: Path) -> None:
    """A small corpus shares its vectors with the ranker."""
    encoder = Words(own="texts")
    encoder.score([Rank("kalo", ("title [SEP] kalo",))])
    corpus = [
        Passage.of(*parts)
        for parts in (("title", "kalo"), ("kalo", "mire"), ("", "sato"), ("vivi", " "))
    ]
    opened(dense(encoder, separator=" [SEP] "), corpus, tmp_path)
    assert encoder.encoded[0] == "title [SEP] kalo"
    assert sorted(encoder.encoded) == ["kalo [SEP] mire", "sato", "title [SEP] kalo", "vivi"]


def test_encoder_from_a_folder_has_finite_vectors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not finite\. Set retriever\.encoder\.dtype=float32"):
        opened(dense(Words(scale=float("inf"))), CORPUS, tmp_path / "infinite")
    with pytest.raises(
        ConfigError, match=r"retriever\.encoder: Lexical returns scores, not vectors"
    ):
        dense(Lexical())
    folder = build(
        compose(["retriever=dense", "retriever.encoder=some/folder"])["retriever"], "retriever"
    )
    assert folder.loaded_encoder == SentenceTransformer.of("some/folder")

"""Vectors on disk: an index of more passages encodes only the new ones."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.errors import DataError
from kgqa.retrieval.biencoder import get_biencoder
from kgqa.retrieval.dense import Dense
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.vector_store import VectorStore, encode_once, store_vectors
from kgqa.types import Passage
from tests.retrieval.conftest import MADE_FROM, retriever_of
from tests.retrieval.word_vectors import Words, dense, passages

CORPUS = passages(60)
OLD = CORPUS[:50]


def build(
    retriever: Any, corpus: Sequence[Passage], folder: Path, vectors: Path | None
) -> dict[str, bytes]:
    """Return the files of an index. No vectors are in memory."""
    get_biencoder.cache_clear()
    index = IndexFolder(folder, retriever, MADE_FROM, "kgqa data index dataset=d", vectors)
    index.build(corpus, lambda *_: None)
    files = (file for file in (folder / "finder").rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def encoder_of(retriever: Dense) -> Words:
    assert isinstance(retriever.encoder, Words)
    return retriever.encoder


def hipporag(folder: Path) -> Callable[[], Any]:
    """Return HippoRAG over words, with a triple for each passage; each call has its own encoder."""
    rows = [
        {"title": p.title, "text": p.text, "triples": [[p.title, "has", p.text.split()[0]]]}
        for p in CORPUS
    ]
    file = folder / "triples.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    def make() -> Any:
        retriever: Any = retriever_of("retriever=hipporag_bm25", f"retriever.triples.path={file}")
        words = dense(Words())
        return replace(retriever, passages=words, facts=words, filter=False)

    return make


def test_only_new_passages_are_encoded(tmp_path: Path) -> None:
    store, first, second = tmp_path / "vectors", dense(Words()), dense(Words())
    build(first, OLD, tmp_path / "old", store)
    assert len(encoder_of(first).encoded) == len(OLD)
    files = build(second, CORPUS, tmp_path / "new", store)
    assert sorted(encoder_of(second).encoded) == sorted(f"{p.title} {p.text}" for p in CORPUS[50:])
    assert files == build(dense(Words()), CORPUS, tmp_path / "once", None)


@pytest.mark.slow
def test_a_graph_encodes_only_new_texts(tmp_path: Path) -> None:
    make, store = hipporag(tmp_path), tmp_path / "vectors"
    build(make(), OLD, tmp_path / "old", store)
    retriever = make()
    files = build(retriever, CORPUS, tmp_path / "new", store)
    new = {text.split()[0].strip("(',") for text in encoder_of(retriever.passages).encoded}
    assert new <= {p.title for p in CORPUS[50:]} | {p.text.split()[0] for p in CORPUS[50:]}
    at_once = build(make(), CORPUS, tmp_path / "once", None)
    assert sorted(files) == sorted(at_once)
    differing = [name for name in files if files[name] != at_once[name]]
    # a zip file has the time of its members
    assert [name for name in differing if not name.endswith(".npz")] == []


def test_vectors_are_those_of_the_texts_in_order(tmp_path: Path) -> None:
    words, calls = Words(), list[Sequence[str]]()

    def encode(texts: Sequence[str]) -> Any:
        calls.append(texts)
        return words.encode("passage", texts)

    with store_vectors(tmp_path):
        encode_once({"kind": "passage"}, ["kalo", "mire"], encode)
        vectors = encode_once({"kind": "passage"}, ["vivi", "mire", "vivi", "kalo"], encode)
        other = encode_once({"kind": "query"}, ["kalo"], encode)
    assert calls == [["kalo", "mire"], ["vivi"], ["kalo"]]
    assert np.array_equal(vectors, words.encode("passage", ["vivi", "mire", "vivi", "kalo"]))
    assert np.array_equal(other[0], vectors[3])


@pytest.mark.parametrize("damage", ["X'00'", "X'0000803F'", "NULL", "'text'", "1"])
def test_damaged_vector_is_encoded_again(damage: str, tmp_path: Path) -> None:
    words = Words()
    store = VectorStore(tmp_path)
    expected = store.encode(
        {"kind": "passage"}, ["kalo"], lambda texts: words.encode("passage", texts)
    )
    (file,) = tmp_path.glob("*.sqlite")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"UPDATE texts SET vector = {damage}")
    encoded = words.encoded.copy()
    repaired = store.encode(
        {"kind": "passage"}, ["kalo"], lambda texts: words.encode("passage", texts)
    )
    assert np.array_equal(repaired, expected)
    assert words.encoded == encoded * 2
    stored = store.encode(
        {"kind": "passage"}, ["kalo"], lambda texts: words.encode("passage", texts)
    )
    assert np.array_equal(stored, expected)


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"x" * 200])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    words = Words()
    store = VectorStore(tmp_path)
    store.encode({"kind": "passage"}, ["kalo"], lambda texts: words.encode("passage", texts))
    (file,) = tmp_path.glob("*.sqlite")
    file.write_bytes(content)
    with pytest.raises(DataError, match="Delete the file and run again"):
        store.encode(
            {"kind": "passage"}, ["kalo", "mire"], lambda texts: words.encode("passage", texts)
        )

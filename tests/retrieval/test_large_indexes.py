"""Searches for large corpora: parts of an index on several devices, FAISS on GPUs, and compressed vectors."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kgqa.retrieval.dense import FAISS, GPU_LIMIT, VECTORS, Dense, nearest_exactly
from kgqa.retrieval.vector_store import store_vectors
from tests.retrieval.word_vectors import CORPUS, QUERIES, Words, brute_force, dense, opened


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_torch_searches_parts_on_several_devices(storage: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    retriever = dense(Words(), backend="torch", device="cpu,cpu,cpu", storage=storage)
    on_one = opened(dense(Words(), backend="numpy", storage=storage), CORPUS, tmp_path / "one")
    on_three = opened(retriever, CORPUS, tmp_path / "three")
    assert on_three.find_scored(QUERIES) == on_one.find_scored(QUERIES)


def test_vectors_of_a_huge_corpus_are_stored_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kgqa.retrieval.dense.MOST_STORED", len(CORPUS) - 1)
    with store_vectors(tmp_path / "vectors"):
        opened(dense(Words()), CORPUS[1:], tmp_path / "large")
        opened(dense(Words(own="huge")), CORPUS, tmp_path / "huge")
    (file,) = (tmp_path / "vectors").iterdir()
    with closing(sqlite3.connect(file)) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM texts").fetchone()
    assert count == len(CORPUS) - 1


class GpuIndex:
    """FAISS's index on GPUs: it returns at most 2,048 passages."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self.counts: list[int] = []

    def search(self, queries: Any, count: int) -> Any:
        if count > GPU_LIMIT:
            raise RuntimeError("GPU index only supports min/max-K selection up to 2048")
        self.counts.append(count)
        return self._index.search(queries, count)


class Gpus:
    """The part of faiss-gpu that faiss-cpu lacks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clones: list[tuple[dict[str, Any], list[int]]] = []
        self.indexes: list[GpuIndex] = []
        faiss = pytest.importorskip("faiss", reason="faiss is not installed")
        monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
        monkeypatch.setattr(faiss, "get_num_gpus", lambda: 8, raising=False)
        monkeypatch.setattr(faiss, "GpuMultipleClonerOptions", SimpleNamespace, raising=False)
        monkeypatch.setattr(faiss, "index_cpu_to_gpus_list", self._clone, raising=False)

    def _clone(self, index: Any, options: SimpleNamespace, gpus: list[int]) -> GpuIndex:
        self.clones.append((vars(options), gpus))
        self.indexes.append(GpuIndex(index))
        return self.indexes[-1]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return Gpus(monkeypatch)


@pytest.mark.parametrize(
    ("device", "numbers"),
    [("auto", list(range(8))), ("cuda:0,cuda:3", [0, 3])],
    ids=["all", "some"],
)
@pytest.mark.parametrize(
    ("backend", "storage"), [("flat", "float32"), ("flat", "float16"), ("ivf", "float32")]
)
def test_each_gpu_has_a_half_precision_part(
    backend: str, storage: str, device: str, numbers: list[int], gpus: Gpus, tmp_path: Path
) -> None:
    retriever = dense(Words(), backend=backend, storage=storage, lists=2, probes=2, device=device)
    on_cpu = dense(Words(), storage=storage)
    assert opened(retriever, CORPUS, tmp_path / "gpus").find_scored(QUERIES) == opened(
        on_cpu, CORPUS, tmp_path / "cpu"
    ).find_scored(QUERIES)
    options = {"shard": True, "useFloat16": True, "common_ivf_quantizer": backend == "ivf"}
    assert gpus.clones == [(options, numbers)]


def test_exact_search_stores_vectors_once(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    opened(dense(Words(), backend="flat"), CORPUS, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [VECTORS]


@pytest.mark.parametrize(
    "settings", [{"backend": "hnsw"}, {"backend": "flat", "device": "cpu"}], ids=["hnsw", "cpu"]
)
def test_index_stays_on_the_cpu(settings: dict[str, Any], gpus: Gpus, tmp_path: Path) -> None:
    opened(dense(Words(), **settings), CORPUS, tmp_path).find_scored(QUERIES)
    assert gpus.clones == []


def random_vectors(count: int, dimensions: int = 32) -> Any:
    """Return vectors of length 1 around a hundred centers, shape (count, dimensions)."""
    generator = np.random.default_rng(0)
    centers = generator.standard_normal((100, dimensions))
    vectors = centers[generator.integers(0, 100, count)] + 0.4 * generator.standard_normal(
        (count, dimensions)
    )
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def search(retriever: Dense, vectors: Any, folder: Path) -> Any:
    import faiss

    if retriever.backend != "flat":
        faiss.write_index(retriever._make_faiss(vectors), str(folder / FAISS))
    return retriever.search(vectors, folder)


def test_more_passages_than_a_gpu_returns(gpus: Gpus, tmp_path: Path) -> None:
    vectors = random_vectors(4_000)
    nearest = search(dense(Words(), backend="flat", device="auto"), vectors, tmp_path)
    assert set(nearest(vectors[:1], 3_000)[0]) == set(
        nearest_exactly(vectors, vectors[:1], 3_000)[0]
    )
    nearest(vectors[:1], 2_000)
    assert gpus.indexes[0].counts == [2_000]


@pytest.mark.slow
def test_compressed_vectors_propose_the_nearest(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    # few dimensions: training takes seconds instead of a minute
    vectors = random_vectors(17_000, 16)
    retriever = dense(Words(), backend="ivfpq", code_size=4, lists=16, probes=16)
    nearest = search(retriever, vectors, tmp_path)
    # 4 bytes instead of 64 per vector, and 8 for its number
    assert (tmp_path / FAISS).stat().st_size < 0.25 * vectors.nbytes
    expected = nearest_exactly(vectors, vectors[:50], 10)
    recall = [
        len(set(row) & set(wanted)) / 10
        for row, wanted in zip(nearest(vectors[:50], 10), expected, strict=True)
    ]
    assert np.mean(recall) > 0.9


def test_few_passages_are_not_compressed(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    results = opened(dense(Words(), backend="ivfpq"), CORPUS, tmp_path).find_scored(QUERIES)
    assert [list(each) for each in results] == [
        brute_force(Words(), CORPUS, query) for query in QUERIES
    ]

"""Import of an index that FAISS wrote for the records of a corpus, repeated ones included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.errors import ConfigError, DataError
from kgqa.retrieval.bm25 import Bm25
from kgqa.retrieval.dense import VECTORS, Dense
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.vector_import import VectorImport
from kgqa.types import Passage
from tests.retrieval.word_vectors import CORPUS, Words, dense

faiss: Any = pytest.importorskip("faiss", reason="faiss is not installed")
# the corpus of the file, with repeated passages
RECORDS = [*CORPUS[:60], CORPUS[3], CORPUS[59], *CORPUS[60:], CORPUS[0]]


def write_index(file: Path, records: Sequence[Passage], encoder: Words, kind: str = "Flat") -> Path:
    """Write an index as FlashRAG does: one vector for each record, in order."""
    index = faiss.index_factory(encoder.dimension, kind, faiss.METRIC_INNER_PRODUCT)
    rows = encoder.encode("passage", [f"{record.title} {record.text}" for record in records])
    index.train(rows)
    index.add(rows)
    faiss.write_index(index, str(file))
    return file


def build(folder: Path, retriever: Dense, file: Path | None = None) -> Any:
    """Build the index of the records and return its vectors."""
    index = IndexFolder(folder, retriever, {"corpus": "records"}, "kgqa data index")
    if file is None:
        index.build(RECORDS, lambda *_: None)
    else:
        imported = VectorImport.of(file, retriever, lambda: RECORDS)
        index.build(imported.passages(), lambda *_: None, prepare=imported.write)
    index.verify()
    return np.load(folder / "finder" / VECTORS)


@pytest.mark.parametrize("kind", ["Flat", "SQfp16", "HNSW8,Flat"])
@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_imported_vectors_are_those_of_the_encoder(storage: str, kind: str, tmp_path: Path) -> None:
    file = write_index(tmp_path / "e5.index", RECORDS, Words(), kind)
    encoder = Words(own="imports")
    imported = build(tmp_path / "imported", dense(encoder, storage=storage), file)
    encoded = build(tmp_path / "encoded", dense(Words(), storage=storage))
    assert imported.dtype == encoded.dtype
    np.testing.assert_allclose(imported, encoded, rtol=2e-3, atol=2e-3)
    # only those that are compared
    assert len(encoder.encoded) == 100


@pytest.mark.parametrize("backend", ["flat", "ivf"])
def test_imported_index_is_searched_as_any_other(backend: str, tmp_path: Path) -> None:
    file = write_index(tmp_path / "e5.index", RECORDS, Words())
    retriever = dense(Words(), backend=backend, lists=2, probes=2)
    build(tmp_path / "index", retriever, file)
    index = IndexFolder(tmp_path / "index", retriever, {"corpus": "records"}, "").open()
    assert index.corpus["count"] == len(CORPUS)
    assert len(index.find_titled(CORPUS[7].title)) == 1
    index.close()


def write_text(file: Path) -> Path:
    file.write_text("no index")
    return file


CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "other corpus": (
        lambda file: write_index(file, RECORDS[:-1], Words()),
        "152 vectors, but the corpus has 153 records",
    ),
    "other order": (
        lambda file: write_index(file, RECORDS[::-1], Words()),
        "of 100 passages have other vectors, such as record",
    ),
    "other dimensions": (
        lambda file: write_index(file, RECORDS, Words(dimension=8)),
        "vectors of 8 numbers, but the encoder gives 12",
    ),
    "without vectors": (
        lambda file: write_index(file, RECORDS, Words(), "IVF2,Flat"),
        "an index of type IndexIVFFlat does not return its vectors",
    ),
    "no index": (write_text, "cannot read this index"),
}


@pytest.mark.parametrize(("write", "message"), CASES.values(), ids=CASES)
def test_vectors_of_others_are_rejected(
    write: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "e5.index")
    with pytest.raises(DataError, match=message):
        build(tmp_path / "index", dense(Words()), file)
    assert not (tmp_path / "index" / "manifest.json").exists()


def test_import_needs_a_file_and_a_dense_retriever(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        VectorImport.of(tmp_path / "absent", dense(Words()), list)
    with pytest.raises(ConfigError, match="this retriever has no vectors"):
        VectorImport.of(tmp_path, Bm25({"title": 1.0, "text": 1.0}, fill=False), list)

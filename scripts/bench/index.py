"""Measure approximate indexes of many vectors: build, memory, search and recall.

Time and memory come from simulated vectors. Recall needs real ones: `--vectors FILE.npy`. Each step is a process with
one thread, so that its memory and its CPU time are its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.retrieval.dense import FAISS, import_faiss, nearest_exactly
from scripts.bench.local import Row
from scripts.bench.process import ROOT

# of the simulated vectors: as many dimensions as E5-base has
DIMENSIONS = 768
# by backend. An HNSW index of a million takes too long for a benchmark
PASSAGES = {"ivf": 1_000_000, "ivfpq": 1_000_000, "hnsw": 100_000}
# of real vectors, which are fewer, and the settings whose recall is measured
LISTS = "lists=256"
SETTINGS: dict[str, tuple[str, ...]] = {
    "ivf": ("probes=4", "probes=16", "probes=64"),
    "ivfpq": ("probes=16", "probes=64"),
    "hnsw": ("breadth=32", "breadth=256"),
}
# rows that are written at once, queries, passages of each
BLOCK, QUERIES, BEST = 50_000, 300, 10


def measure_index(real: Path | None) -> Iterator[Row]:
    """Yield build, memory, file size and search of each backend, and its recall if there are real vectors."""
    with tempfile.TemporaryDirectory() as name:
        file = write_vectors(Path(name) / "vectors.npy")
        for backend, count in PASSAGES.items():
            label = f"{backend}, {count:,} × {DIMENSIONS}"
            built = run_step("build", backend, file, count, Path(name))
            yield f"{label}: build", f"{built['cpu']:.0f} s CPU", f"{built['mebibytes']:.0f} MiB"
            found = run_step("search", backend, file, count, Path(name))
            yield f"{label}: query", f"{found['cpu']:.1f} ms CPU", f"{found['mebibytes']:.0f} MiB"
            size = (Path(name) / FAISS).stat().st_size / 1e6
            yield f"{label}: file", f"{size:.0f} MB", ""
        for backend in PASSAGES if real else ():
            assert real is not None
            count = len(np.load(real, mmap_mode="r")) - QUERIES
            run_step("build", backend, real, count, Path(name), LISTS)
            for setting in SETTINGS[backend]:
                found = run_step("recall", backend, real, count, Path(name), setting)
                label = f"{backend}, {setting}, {count:,} real vectors: recall@{BEST}"
                yield label, f"{found['recall']:.3f}", f"{found['cpu']:.1f} ms CPU a query"


def write_vectors(file: Path) -> Path:
    """Write random vectors of length 1 in half precision, and queries after them."""
    generator, count = np.random.default_rng(0), max(PASSAGES.values()) + QUERIES
    rows = np.lib.format.open_memmap(file, "w+", np.float16, (count, DIMENSIONS))
    for start in range(0, count, BLOCK):
        shape = min(BLOCK, count - start), DIMENSIONS
        block = generator.standard_normal(shape, dtype=np.float32)
        rows[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    rows.flush()
    return file


def run_step(
    step: str, backend: str, file: Path, count: int, folder: Path, *settings: str
) -> dict[str, float]:
    """Run `build`, `search` or `recall` in its own process and return what it measured."""
    arguments = [step, backend, str(file), str(count), str(folder), *settings]
    command = [sys.executable, "-m", "scripts.bench.index", *arguments]
    # threads that wait for each other on a busy machine would count as work
    single = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = subprocess.run(
        command, cwd=ROOT, env=single, check=True, stdout=subprocess.PIPE, text=True
    )
    measured: dict[str, float] = json.loads(output.stdout)
    return measured


def make_dense(backend: str, *settings: str) -> Any:
    """Return the retriever with this backend."""
    keys = [f"backend={backend}", "storage=float16", "device=cpu", *settings]
    config = compose(["retriever=dense", *(f"retriever.{key}" for key in keys)])
    return build(config["retriever"], "retriever")


def build_index(retriever: Any, vectors: Any, folder: Path) -> dict[str, float]:
    """Build and store the index. Return its CPU time in seconds, and the memory that it holds."""
    start = time.process_time()
    index = retriever._make_faiss(vectors)
    spent = time.process_time() - start
    measured = {"cpu": spent, "mebibytes": read_own_memory()}
    import_faiss().write_index(index, str(folder / FAISS))
    return measured


def search_index(
    retriever: Any, vectors: Any, queries: Any, folder: Path, *, with_recall: bool
) -> dict[str, float]:
    """Search for one query after the other. Return the CPU time in milliseconds, memory and recall."""
    nearest = retriever.search(vectors, folder)
    _ = nearest(queries[:1], BEST)
    start = time.process_time()
    candidates = [nearest(queries[[number]], BEST)[0] for number in range(len(queries))]
    spent = 1000 * (time.process_time() - start) / len(queries)
    measured = {"cpu": spent, "mebibytes": read_own_memory()}
    if not with_recall:
        return measured
    exact = nearest_exactly(vectors, queries, BEST)[:, :BEST]
    # candidates are scored exactly before the best are taken
    shares = [len({*best} & {*found}) / BEST for best, found in zip(exact, candidates, strict=True)]
    return {**measured, "recall": sum(shares) / len(shares)}


def read_own_memory() -> float:
    """Return the memory of this process in MiB, without pages of files."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    step, backend, file, count, folder, *settings = sys.argv[1:]
    rows = np.load(file, mmap_mode="r")
    vectors, retriever = rows[: int(count)], make_dense(backend, *settings)
    if step == "build":
        measured = build_index(retriever, vectors, Path(folder))
    else:
        queries = np.asarray(rows[-QUERIES:], dtype=np.float32)
        is_real = step == "recall"
        measured = search_index(retriever, vectors, queries, Path(folder), with_recall=is_real)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

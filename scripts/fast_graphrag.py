"""Compare kgqa's retrievers with the systems of fast-graphrag's comparison on its 101 questions of 2WikiMultiHopQA.

    python scripts/fast_graphrag.py
    python scripts/fast_graphrag.py --retrievers bm25 entity_graph_dense

Prints docs/FAST_GRAPHRAG.md's table: the share of questions with all gold passages in the first 8. The results of the
other systems are read from `--results`, the passages from `--corpus`. The repository of fast-graphrag has the results.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.protocols import Query, Retriever
from kgqa.scoring.intervals import estimate
from kgqa.types import Passage

DATA = Path(os.environ.get("KGQA_DATA") or "data")
# system → the start of its file's name
SYSTEMS = {
    "fast-graphrag": "graph",
    "GraphRAG (nano-graphrag)": "nano",
    "LightRAG": "lightrag",
    "vectors": "vdb",
}
PASSAGES = 8
Rows = Sequence[Mapping[str, Any]]


def read_json(file: Path) -> Any:
    """Return the value of a JSON file, or the lines of a JSONL file, plain or gzipped."""
    content = file.read_bytes()
    text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
    return (
        [json.loads(line) for line in text.splitlines()]
        if ".jsonl" in file.suffixes
        else json.loads(text)
    )


def score(rows: Rows, titles: Sequence[Sequence[str]]) -> str:
    """Return the cell of the table: the share with all gold titles in percent, with its 95 % interval."""
    found = [
        float({*row["ground_truth"]} <= {*some[:PASSAGES]})
        for row, some in zip(rows, titles, strict=True)
    ]
    return str(estimate(found))


def search(name: str, passages: Sequence[Passage], rows: Rows) -> list[list[str]]:
    """Return the titles of the first passages for each question."""
    retriever: Retriever = build(
        compose(["method=retrieve_only", f"retriever={name}"])["retriever"], "retriever"
    )
    with tempfile.TemporaryDirectory() as folder:
        retriever.build(passages, Path(folder), lambda _: None)
        finder = retriever.open(passages, Path(folder))
        rankings = finder.find([Query(row["question"], PASSAGES) for row in rows])
        finder.close()
    return [[passages[position].title for position in ranking] for ranking in rankings]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--retrievers", nargs="+", default=["bm25", "entity_graph"], help="values of retriever="
    )
    parser.add_argument("--results", type=Path, default=DATA / "field/fast_graphrag_retrieval")
    parser.add_argument(
        "--corpus", type=Path, default=DATA / "corpora/2wikimultihopqa_hipporag_corpus_6119.json.gz"
    )
    options = parser.parse_args()
    passages = [Passage.of(each["title"], each["text"]) for each in read_json(options.corpus)]
    print(f"| System | All gold passages in the first {PASSAGES} |\n|---|---|")
    rows: Rows = []
    for system, start in SYSTEMS.items():
        (file,) = options.results.glob(f"{start}_2wikimultihopqa_101*")
        rows = read_json(file)
        print(f"| {system} | {score(rows, [row['evidence'] for row in rows])} |")
    for name in options.retrievers:
        print(
            f"| kgqa, `retriever={name}` | {score(rows, search(name, passages, rows))} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

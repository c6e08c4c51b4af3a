"""Embedded BM25 against its peers: time to build, size, memory, first query, single queries, a batch.

    python scripts/bench_retrieval.py --passages 200000 [--only bm25] [--folder DIR]

Passages are made of real sentences: those of the corpora and question files below `KGQA_DATA` (Wikipedia), two to five
of them drawn by a seeded generator, under the title of the first. So words are real; a million passages have no more
distinct words than the sentences, and the words of questions about films and people are more frequent in them than in
all of Wikipedia. Queries are the real questions, and five words of a known passage, both without signs, as FTS5 and
tantivy's own parser want them. Every engine runs in a process of its own, reads the passages from one file, indexes
title and text and gives 20 places a query; times are wall clock, of building with the reading. "shared" is how many of
the first engine's places another one finds too: bm25s does not round lengths, and neither it nor FTS5 scores title and
text as Lucene does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa import records
from kgqa.calls import Search
from kgqa.datasets import corpus
from kgqa.protocols import Query
from kgqa.retrieval import analysis
from kgqa.retrieval.bm25 import Bm25
from kgqa.retrieval.index import IndexFolder
from kgqa.types import Passage

QUERIES, K = 1_000, 20


class Peer(Protocol):
    """A search engine under measurement, over one folder."""

    def build(self, passages: Iterator[Passage], folder: Path) -> None: ...

    def open(self, folder: Path) -> None: ...

    def search(self, queries: Sequence[str]) -> list[list[int]]:
        """Places of the best passages of each query, the whole list at once."""
        ...


class Retrieval:
    """`retriever=bm25` alone: like its peers it indexes what comes and gives places."""

    _retriever = Bm25({"title": 1.0, "text": 1.0})

    def build(self, passages: Iterator[Passage], folder: Path) -> None:
        self._retriever.build(_Stream(passages), folder, lambda _: None)

    def open(self, folder: Path) -> None:
        self._finder = self._retriever.open([], folder)

    def search(self, queries: Sequence[str]) -> list[list[int]]:
        return [list(found) for found in self._finder.find([Query(query, K) for query in queries])]


class _Stream(list[Passage]):
    """Passages that can be gone through once."""

    def __init__(self, passages: Iterator[Passage]) -> None:
        super().__init__()
        self._passages = passages

    def __iter__(self) -> Iterator[Passage]:
        return self._passages


class WholeIndex:
    """What a run uses: passages stored, hashed, checked, read again and indexed; replies are passages."""

    def build(self, passages: Iterator[Passage], folder: Path) -> None:
        self._folder(folder).build(passages, lambda *_: None)

    def open(self, folder: Path) -> None:
        self._index = self._folder(folder).open()

    def search(self, queries: Sequence[str]) -> list[list[int]]:
        found = self._index.search([Search(query, K) for query in queries])
        return [[int(passage.title.rpartition(" ")[2]) for passage in passages] for passages in found]  # its place

    def _folder(self, folder: Path) -> IndexFolder:
        return IndexFolder(folder, Bm25({"title": 1.0, "text": 1.0}), {"corpus": "benchmark"}, "")


class Bm25sNumba:
    """bm25s with numba, our analyzer, title and text as one."""

    def build(self, passages: Iterator[Passage], folder: Path) -> None:
        import bm25s

        numbers: dict[str, int] = {}
        rows = [
            [numbers.setdefault(term, len(numbers)) for term in analysis.terms(f"{passage.title} {passage.text}")]
            for passage in passages
        ]
        scored = bm25s.BM25(k1=1.2, b=0.75, backend="numba")
        scored.index((rows, numbers), show_progress=False)
        scored.save(folder, show_progress=False)

    def open(self, folder: Path) -> None:
        import bm25s

        self._opened = bm25s.BM25.load(folder, mmap=True)
        self._opened.backend = "numba"

    def search(self, queries: Sequence[str]) -> list[list[int]]:
        known = self._opened.vocab_dict
        numbers = [[known[term] for term in analysis.terms(query) if term in known] for query in queries]
        found, _ = self._opened.retrieve(numbers, k=K, show_progress=False, n_threads=2, backend_selection="numba")
        rows: list[list[int]] = found.tolist()
        return rows


class Fts5:
    """SQLite's full-text search with its Porter stemmer."""

    def build(self, passages: Iterator[Passage], folder: Path) -> None:
        with sqlite3.connect(folder / "index.sqlite") as connection:
            connection.execute(
                "CREATE VIRTUAL TABLE passages USING fts5(title, text, content='', tokenize='porter unicode61')"
            )
            rows = ((place, passage.title, passage.text) for place, passage in enumerate(passages))
            connection.executemany("INSERT INTO passages(rowid, title, text) VALUES (?, ?, ?)", rows)
        connection.close()

    def open(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "index.sqlite")

    def search(self, queries: Sequence[str]) -> list[list[int]]:
        statement = f"SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY bm25(passages) LIMIT {K}"
        asked = (" OR ".join(f'"{word}"' for word in query.split()) for query in queries)
        return [[place for (place,) in self._connection.execute(statement, (words,))] for words in asked]


class TantivyDefault:
    """tantivy as its documentation has it: `en_stem`, all cores, its query parser, stored places."""

    def build(self, passages: Iterator[Passage], folder: Path) -> None:
        import tantivy

        builder = tantivy.SchemaBuilder()
        for field in ("title", "text"):
            builder.add_text_field(field, tokenizer_name="en_stem")
        index = tantivy.Index(builder.add_integer_field("place", stored=True).build(), str(folder))
        writer = index.writer()
        for place, passage in enumerate(passages):
            writer.add_document(tantivy.Document(title=passage.title, text=passage.text, place=place))
        writer.commit()
        writer.wait_merging_threads()

    def open(self, folder: Path) -> None:
        import tantivy

        self._index = tantivy.Index.open(str(folder))
        self._searcher = self._index.searcher()

    def search(self, queries: Sequence[str]) -> list[list[int]]:
        found = []
        for query in queries:
            hits = self._searcher.search(self._index.parse_query(query.lower(), ["title", "text"]), K).hits
            found.append([self._searcher.doc(address)["place"][0] for _, address in hits])
        return found


PEERS: dict[str, Callable[[], Peer]] = {
    "bm25": Retrieval,
    "bm25, whole index": WholeIndex,
    "bm25s numba": Bm25sNumba,
    "SQLite FTS5": Fts5,
    "tantivy default": TantivyDefault,
}


def sentences() -> list[tuple[str, str]]:
    """Title and sentence, from every corpus and question file below `KGQA_DATA`, each once."""
    folder = Path(os.environ["KGQA_DATA"])
    files = [*sorted((folder / "corpora").iterdir()), *_question_files(folder)]
    pages = (page for file in files for page in corpus.read(file))
    return list(
        dict.fromkeys(
            (page.title, sentence)
            for page in pages
            for sentence in re.split(r"(?<=[.!?]) (?=[A-Z“\"(])", page.text)
            if len(sentence.split()) > 3
        )
    )


def questions() -> list[str]:
    """The questions of the files, and those of their decompositions that stand for themselves, as words."""
    asked: dict[str, None] = {}
    folder = Path(os.environ["KGQA_DATA"])
    for file in _question_files(folder):
        for _, record in records.records(file):
            steps = [
                step["question"] for step in record.get("question_decomposition", ()) if "#" not in step["question"]
            ]
            asked |= dict.fromkeys(" ".join(re.findall(r"\w+", text)) for text in (record["question"], *steps))
    return list(asked)


def _question_files(folder: Path) -> list[Path]:
    return sorted((folder / "questions").glob("*dev.json*.gz"))


def write_passages(count: int, file: Path, queries: Path) -> None:
    """The passages as lines of title and text, and the queries of both kinds."""
    known, generator = sentences(), random.Random(0)
    wanted, known_items = set(generator.sample(range(count), min(QUERIES, count))), []
    with file.open("w", encoding="utf-8") as lines:
        for place in range(count):
            drawn = generator.choices(known, k=generator.randint(2, 5))
            title, text = f"{drawn[0][0]} {place}", " ".join(sentence for _, sentence in drawn)
            lines.write(json.dumps([title, text], ensure_ascii=False) + "\n")
            if place in wanted:
                known_items.append(" ".join(generator.sample(sorted(set(re.findall(r"\w{4,}", text))), 5)))
    queries.write_text(json.dumps({"questions": questions()[:QUERIES], "known": known_items}))


def read_passages(file: Path) -> Iterator[Passage]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            yield Passage.of(*json.loads(line))


def measure(name: str, step: str, folder: Path, source: Path) -> dict[str, Any]:
    """One step of one engine, in this process; "_cpu" are seconds of all its threads together."""
    peer, asked = PEERS[name](), json.loads((source / "queries.json").read_text())
    if step == "build":
        wall, cpu = _timed(lambda: peer.build(read_passages(source / "passages.jsonl"), folder))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"build": wall, "build_cpu": cpu, "peak_mib": peak}
    for package in ("numpy", "bm25s" if name == "bm25s numba" else "tantivy"):
        __import__(package)  # loading packages is not opening
    analysis.terms("words, to load the stemmer")
    slow, queries = name == "SQLite FTS5", asked["questions"]
    cold = _timed(lambda: peer.open(folder))[0] + _timed(lambda: peer.search(queries[:1]))[0]
    peer.search(queries[1:20])  # compiles what is to be compiled, and touches pages
    found: dict[str, Any] = {"cold": cold}
    for kind, texts in asked.items():
        few, batch = texts[: 20 if slow else 300], texts[: 50 if slow else QUERIES]
        single = _timed(lambda: [peer.search([query]) for query in few])  # noqa: B023
        found[f"single {kind}"] = [1000 * seconds / len(few) for seconds in single]
        peer.search(batch)
        found[kind] = len(batch) / min(_timed(lambda: peer.search(batch))[0] for _ in range(1 if slow else 3))  # noqa: B023
    return {**found, "found": peer.search(queries[: 20 if slow else 300])}


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(count: int, only: Sequence[str], folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each engine's figures, in a process for building and one for searching."""
    if not (folder / "queries.json").exists():
        write_passages(count, folder / "passages.jsonl", folder / "queries.json")
    first: list[list[int]] = []
    for name in only or PEERS:
        if name == "bm25s numba" and not (find_spec("bm25s") and find_spec("numba")):
            print("bm25s numba is left out: it needs pip install bm25s numba", file=sys.stderr)
            continue
        place = folder / name.replace(" ", "_")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        figures: dict[str, Any] = {}
        for step in ("build", "search"):
            ran = subprocess.run(
                [sys.executable, __file__, "--step", step, "--only", name, "--folder", str(folder)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if ran.returncode:
                raise SystemExit(f"{name}, {step}: {ran.stderr}")
            figures |= json.loads(ran.stdout)
        first = first or figures["found"]
        figures["shared"] = sum(len({*a} & {*b}) for a, b in zip(first, figures["found"], strict=False)) / (
            sum(len(places) for places, _ in zip(first, figures["found"], strict=False))
        )
        figures["size"] = sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) / 1e6
        yield name, figures


COLUMNS = (
    "engine", "build s (CPU)", "peak MiB", "size MB", "cold query s", "question ms (CPU)", "known item ms (CPU)",
    "batch questions/s", "batch known items/s", "shared",
)  # fmt: skip


def row(name: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        f"{figures['build']:.1f} ({figures['build_cpu']:.1f})",
        f"{figures['peak_mib']:,.0f}",
        f"{figures['size']:,.0f}",
        f"{figures['cold']:.3f}",
        *("{:.2f} ({:.2f})".format(*figures[f"single {kind}"]) for kind in ("questions", "known")),
        f"{figures['questions']:,.0f}",
        f"{figures['known']:,.0f}",
        f"{100 * figures['shared']:.1f} %",
    )


def against(reference: str, count: int, measured: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Our CPU beside that of another engine, for scripts/bench_record.py."""
    other, word = measured[reference], reference.partition(" ")[0]
    for name in ("bm25", "bm25, whole index"):
        for what, unit, key in (("building", "s", "build_cpu"), ("a question", "ms", "single questions")):
            ours, theirs = (_cpu(figures[key]) for figures in (measured[name], other))
            yield f"{name}, {count:,} passages: CPU of {what}", f"{ours:.2f} {unit}", f"{ours / theirs:.2f}× {word}"


def _cpu(figure: float | tuple[float, float]) -> float:
    return figure if isinstance(figure, float) else figure[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=20_000)
    parser.add_argument("--only", action="append", choices=PEERS, default=[])
    parser.add_argument("--folder", type=Path, help="kept, so that a second run need not make the passages again")
    parser.add_argument("--step", choices=("build", "search"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step:
        (name,) = chosen.only
        print(json.dumps(measure(name, chosen.step, chosen.folder / name.replace(" ", "_"), chosen.folder)))
        return
    if not os.environ.get("KGQA_DATA"):
        print("BM25 is not measured: KGQA_DATA must name the folder with corpora/*hipporag*", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{chosen.passages:,} passages, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
        print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
        measured: dict[str, dict[str, Any]] = {}
        for name, figures in compare(chosen.passages, chosen.only, folder):
            measured[name] = figures
            print(f"| {' | '.join(row(name, figures))} |", flush=True)
        if not chosen.only:
            print("\n| what | measured | against |\n| --- | --- | --- |")
            for cells in against("tantivy default", chosen.passages, measured):
                print(f"| {' | '.join(cells)} |")
        print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()

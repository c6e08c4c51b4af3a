"""The call cache with many calls: size, put, look-up, opening, each beside plain SQLite with the same rows.

`--calls 10000000` fills about 6 GB on the disk of `--folder`. Prints a Markdown table; docs/PERFORMANCE.md keeps dated
copies. Figures of a busy machine are not comparable between runs, so read the ratios.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.runtime.cache import CallCache, Origin
from kgqa.types import Json

BATCH = 256  # calls committed together
LOOKUPS = 50_000
Rows = list[tuple[str, Json]]


def reply(number: int) -> tuple[str, Json]:
    """Of the size that runs' replies have on average: 470 bytes a row (docs/SCALING.md)."""
    text = f"{number} " + "words of a reply " * 18
    key = hashlib.sha256(str(number).encode()).hexdigest()
    return key, {"text": text, "finish": "stop", "usage": [940, 0, 80, 0.5], "flags": []}


def batches(calls: int) -> Iterator[Rows]:
    for start in range(0, calls, BATCH):
        yield [reply(number) for number in range(start, min(start + BATCH, calls))]


class Plain:
    """What a few lines do without checks: the reference."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(folder / "calls.sqlite", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")

    def get(self, key: str) -> Json:
        row = self._connection.execute("SELECT value FROM calls WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0])

    def put(self, items: Rows) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        rows = [(key, json.dumps(value)) for key, value in items]
        self._connection.executemany("INSERT OR IGNORE INTO calls VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def measured(opened: Callable[[Path], Plain | CallCache], folder: Path, calls: int) -> dict[str, float]:
    store = opened(folder)
    spent = 0.0
    for rows in batches(calls):
        started = time.process_time()
        if isinstance(store, CallCache):
            store.put(rows, Origin("bench", "synthetic"))
        else:
            store.put(rows)
        spent += time.process_time() - started
    store.close()
    started = time.process_time()
    store = opened(folder)
    first = store.get(reply(0)[0])
    opening = time.process_time() - started
    assert first == reply(0)[1]
    chance = random.Random(1)
    keys = [reply(chance.randrange(calls))[0] for _ in range(min(calls, LOOKUPS))]
    started = time.process_time()
    for key in keys:
        assert store.get(key) is not None
    looking = time.process_time() - started
    store.close()
    return {
        "bytes a call": (folder / "calls.sqlite").stat().st_size / calls,
        "put, µs of CPU a call": 1e6 * spent / calls,
        "opening and the first look-up, ms of CPU": 1e3 * opening,
        "look-up, µs of CPU": 1e6 * looking / len(keys),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; a temporary one unless given")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=given.folder))
    try:
        plain = measured(Plain, folder / "plain", given.calls)
        shutil.rmtree(folder / "plain")
        ours = measured(CallCache, folder / "ours", given.calls)
    finally:
        shutil.rmtree(folder)
    print("| what | measured | plain SQLite | against it |\n| --- | --- | --- | --- |")
    for what, value in ours.items():
        ratio = value / plain[what]
        print(f"| call cache of {given.calls:,}: {what} | {value:,.1f} | {plain[what]:,.1f} | {ratio:.2f}× |")


if __name__ == "__main__":
    main()

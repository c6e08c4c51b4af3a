"""Calls of a cache as one file, and such a file's calls into another cache.

The file is JSONL in zstd: first what it is, then a call a line, its reply as the very text that was kept, and last how
many there are. Whoever has it, the questions and the configurations replays runs without asking a model.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from kgqa.artefacts.form import checked
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.json_values import decoded, decoded_trace
from kgqa.runtime.cache import CallCache
from kgqa.runtime.cache_schema import BAD, checksum, reply_of
from kgqa.runtime.cache_upkeep import LATEST, existing
from kgqa.runtime.database import Database
from kgqa.storage import replacing, storing
from kgqa.types import Json

FORMAT = "kgqa calls 1"
_SECRET = ("_KEY", "_TOKEN", "_PASSWORD", "_SECRET")  # how the names of variables that hold one end
_SHORTEST = 8  # characters of what may be a secret
_LONGEST = 16 << 20  # characters of a line, many times a reply: a few kilobytes of zstd may hold gigabytes
_ELSEWHERE = "name a file on a disk with room"
_Row = tuple[str, str, int, str, str, int | None]  # key, value, checksum, engine, model, made


@dataclass(frozen=True, slots=True)
class Exported:
    """`damaged`, `secret`: calls left out, since they are not what was written, or repeat a key of the environment."""

    calls: int
    damaged: int
    secret: int


@dataclass(frozen=True, slots=True)
class Imported:
    """`different`: calls that have another reply here, which stays."""

    new: int
    equal: int
    different: int


@dataclass(frozen=True, slots=True)
class _Header:
    format: str


@dataclass(frozen=True, slots=True)
class _End:
    calls: int


@dataclass(frozen=True, slots=True)
class _Line:
    key: str
    value: str
    checksum: int
    engine: str
    model: str
    made: int | None


def export_calls(
    folder: Path, file: Path, keys: Collection[str] | None = None, engines: Collection[str] | None = None
) -> Exported:
    """Write the calls with these keys that these engines, rankers or retrievers answered, or all, by key.

    Equal contents give equal bytes.

    Raises:
        ConfigError: nothing in the cache is of such an engine.
        DataError: there is no cache.
        StorageError: the disk refuses, or another program holds the cache.
    """
    counts = Counter[str]()
    if engines is not None:
        _check_known(folder, engines)
    with existing(folder) as database, replacing(file, _ELSEWHERE) as fresh, fresh.open("wb") as target:
        packer = zstandard.ZstdCompressor(level=9, write_checksum=True)
        with packer.stream_writer(target, closefd=False) as packed:
            for line in _lines(database, keys, engines, counts):
                packed.write(f"{json.dumps(line)}\n".encode())
    return Exported(counts["calls"], counts["damaged"], counts["secret"])


def _check_known(folder: Path, engines: Collection[str]) -> None:
    with existing(folder) as database:
        known = {_word(engine) for (engine,) in database.rows("SELECT DISTINCT engine FROM origins")}
    if unknown := sorted(set(engines) - known):
        raise ConfigError(f"--engine {unknown[0]}: no calls of it here; {nearest(unknown[0], known)}")


def _lines(
    database: Database, keys: Collection[str] | None, engines: Collection[str] | None, counts: Counter[str]
) -> Iterator[dict[str, Json]]:
    secrets = _secrets()
    yield {"format": FORMAT}
    for key, value, kept, engine, model, made in _read(database, keys):
        if engines is not None and _word(engine) not in engines:
            continue
        if reply_of(key, value, kept) is BAD:
            counts["damaged"] += 1
        elif any(word in value for word in secrets):
            counts["secret"] += 1
        else:
            counts["calls"] += 1
            line = _Line(key.decode(), value.decode(), kept, _word(engine), _word(model), made)
            yield {name: getattr(line, name) for name in _Line.__slots__}
    yield {"calls": counts["calls"]}


def import_calls(folder: Path, file: Path) -> Imported:
    """Merge an exported file: all of it, or nothing. What is kept here stays; the cache is made if there is none.

    Raises:
        DataError: not such a file, or damaged; named with its line.
        StorageError: the disk refuses, or another program holds the cache.
    """
    new = equal = different = 0
    with _reading(file) as rows:
        CallCache(folder).close()  # made where it is missing
        with existing(folder) as database, database.writing() as connection:
            while some := list(islice(rows, 1000)):
                for key, value, kept, engine, model, made in some:
                    there = connection.execute("SELECT value, checksum FROM calls WHERE key = ?", (key,)).fetchone()
                    if there and reply_of(key.encode(), *there) is not BAD:
                        same = there[0] == value.encode()
                        equal, different = equal + same, different + (not same)
                        continue
                    origin = _origin(connection, engine, model)
                    row = (key, value, kept, origin, made, int(time.time()) // 86_400)
                    connection.execute("REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?)", row)
                    new += 1
    return Imported(new, equal, different)


def _read(database: Database, keys: Collection[str] | None) -> Iterator[tuple[Any, ...]]:
    statement = (
        "SELECT key, value, checksum, engine, model, made FROM calls LEFT JOIN origins ON origins.id = calls.origin"
    )
    if keys is None:
        yield from database.each(f"{statement} ORDER BY key")
    else:
        for key in sorted(keys):
            yield from database.rows(f"{statement} WHERE key = ?", (key,))


def _origin(connection: Any, engine: str, model: str) -> int | None:
    if not engine and not model:
        return None
    connection.execute("INSERT OR IGNORE INTO origins (engine, model) VALUES (?, ?)", (engine, model))
    found = connection.execute("SELECT id FROM origins WHERE engine = ? AND model = ?", (engine, model)).fetchone()
    number: int = found[0]
    return number


@contextmanager
def _reading(file: Path) -> Iterator[Iterator[_Row]]:
    """Its calls, each as it should be."""
    if not file.is_file():
        raise DataError(f"{file}: no such file; give one that kgqa cache export wrote")
    with storing(file, "give a file that can be read"), file.open("rb") as packed:
        reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
        yield _rows(file, io.TextIOWrapper(reader, encoding="utf-8", newline="\n"))


def _rows(file: Path, lines: io.TextIOWrapper) -> Iterator[_Row]:
    number, calls, ended = 0, 0, None
    try:
        for number, text in enumerate(iter(lambda: lines.readline(_LONGEST), ""), start=1):
            if len(text) == _LONGEST:
                raise DataError(
                    f"{file}:{number}: a line of {_LONGEST:,} characters and more, no call; export it again"
                )
            where, value = f"{file}:{number}", decoded(text)
            if number == 1:
                form = checked(_Header, value, where).format
                if form != FORMAT:
                    raise DataError(f"{where}: format {form!r}; expected {FORMAT!r}, others take another kgqa")
            elif isinstance(value, dict) and "calls" in value:
                ended = checked(_End, value, where).calls
            else:
                calls += 1
                line = checked(_Line, value, where)
                if not _is_whole(line):
                    raise DataError(f"{where}: damaged (call {line.key[:12]}…); export it again")
                yield line.key, line.value, line.checksum, line.engine, line.model, line.made
    except (zstandard.ZstdError, ValueError, EOFError) as error:
        raise DataError(f"{file}:{number + 1}: not what kgqa cache export writes ({error}); export it again") from error
    if ended != calls:
        raise DataError(f"{file}: cut short after {calls:,} calls; export or fetch it again")


def _is_whole(line: _Line) -> bool:
    """Raises ValueError: one of its texts is none, which is as bad."""
    (line.engine + line.model).encode()
    if line.checksum != checksum(line.key.encode(), line.value.encode()):
        return False
    decoded_trace(line.value)
    return line.made is None or 0 <= line.made <= LATEST


def _secrets() -> list[bytes]:
    """What the environment holds under the name of a key, as it would stand in a reply."""
    held = (value for name, value in os.environ.items() if name.upper().endswith(_SECRET))
    return [json.dumps(value)[1:-1].encode() for value in held if len(value) >= _SHORTEST]


def _word(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""

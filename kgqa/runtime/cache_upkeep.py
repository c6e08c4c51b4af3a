"""A call cache looked after: whether it is whole, what is in it, what may go."""

# ruff: noqa: S608 - statements are put together of this file's own words; values are bound

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kgqa.errors import DataError
from kgqa.runtime.cache import DAY, FILE
from kgqa.runtime.cache_schema import BAD, COLUMNS, backup, free_name, prepare, reply_of
from kgqa.runtime.database import Database
from kgqa.storage import begun, replacing, storing

_SHOWN = 20  # of the rows that are damaged
# by how a reply begins, see `kgqa.runtime.codec.reply_json`
_KIND = (
    """CASE WHEN value LIKE '{"text"%' THEN 'generate' WHEN value LIKE '{"logprobs"%' THEN 'choose' """
    """WHEN value = '[]' OR value LIKE '[{%' THEN 'search' WHEN value LIKE '[%' THEN 'rank' """
    """WHEN value GLOB '[0-9]*' THEN 'count_tokens' ELSE 'other' END"""
)
_BYTES = "ifnull(length(CAST(key AS BLOB)), 0) + ifnull(length(CAST(value AS BLOB)), 0)"
LATEST = 250_000_000_000  # seconds since 1970 that still are a date
_MADE = f"CASE WHEN made BETWEEN 0 AND {LATEST} THEN CAST(made AS INTEGER) END"  # of a damaged row it may be anything


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found. `rows`: that could be read; `bad`: of them, damaged; `keys`: of the first damaged."""

    path: Path
    rows: int
    bad: int
    keys: tuple[str, ...]
    structure: str  # what SQLite says of the file; "" where it is whole

    @property
    def whole(self) -> bool:
        return not self.bad and not self.structure

    def lines(self) -> Iterator[str]:
        if self.structure:
            yield f"{self.path}: the file is damaged: {self.structure}"
        for key in self.keys:
            yield f"{self.path}: damaged row {key}"
        if self.bad > len(self.keys):
            yield f"{self.path}: and {self.bad - len(self.keys):,} more"
        yield f"{self.path}: {self.rows:,} calls, {self.bad:,} damaged" + (": whole" if self.whole else "")


@dataclass(frozen=True, slots=True)
class Share:
    """Calls of one origin and kind. Times in seconds since 1970; None: made before times were kept."""

    engine: str
    model: str
    kind: str
    calls: int
    bytes: int  # of keys and replies
    oldest: int | None
    newest: int | None


@dataclass(frozen=True, slots=True)
class Pruning:
    """Which calls are to go: those for which all that is given holds.

    older_than, unused: days since they were made, and since a program last asked for them.
    """

    older_than: int | None = None
    unused: int | None = None
    engine: str | None = None

    def where(self) -> tuple[str, tuple[object, ...]]:
        """Rows whose time is not known were made, or asked for, before it was noted: they count as old."""
        now = int(time.time())
        parts: list[tuple[str, object]] = []
        if self.older_than is not None:
            parts.append(("ifnull(made, 0) < ?", max(0, now - self.older_than * DAY)))
        if self.unused is not None:
            parts.append(("ifnull(used, 0) < ?", max(0, now // DAY - self.unused)))
        if self.engine is not None:
            parts.append(("origin IN (SELECT id FROM origins WHERE engine = ?)", self.engine))
        return " AND ".join(condition for condition, _ in parts), tuple(value for _, value in parts)


@contextmanager
def existing(folder: Path) -> Iterator[Database]:
    """The database of a cache that is there, in the present form.

    Raises:
        DataError: there is none, or it is damaged.
    """
    if not (folder / FILE).is_file():
        raise DataError(f"{folder / FILE}: no call cache here; run in the folder of the runs, or set KGQA_CACHE")
    database = Database(folder / FILE)
    with closing(database):
        prepare(database)
        yield database


def check(folder: Path) -> Checked:
    """Read everything: SQLite's own structure and every row's checksum. Changes nothing but an older form.

    Raises:
        DataError: there is no cache.
        StorageError: another program holds it.
    """
    path, rows, bad, keys = folder / FILE, 0, 0, list[str]()
    try:
        with existing(folder) as database:
            found = [_text(row[0]) for row in database.rows("PRAGMA integrity_check(3)")]
            structure = "" if found == ["ok"] else "; ".join(" ".join(line.split()) for line in found)
            for key, value, kept in database.each("SELECT key, value, checksum FROM calls"):
                rows += 1
                if reply_of(key, value, kept) is BAD:
                    bad += 1
                    keys += [_text(key)] if len(keys) < _SHOWN else []
    except DataError as error:
        if not path.is_file():
            raise
        structure = str(error.__cause__ or error)
    return Checked(path, rows, bad, tuple(keys), structure)


def repair(found: Checked) -> tuple[Path, int]:
    """Drop what is damaged. Gives where a copy of the file as it was lies, and how many calls there are now.

    Raises:
        StorageError: the file itself is damaged and another program has it open: it must be written anew.
    """
    folder = found.path.parent
    if found.structure:
        return _written_anew(found.path)
    with existing(folder) as database:
        kept = backup(database, "damaged")
        database.connection.create_function("is_bad", 3, lambda *row: reply_of(*row) is BAD)
        with database.writing() as connection:
            connection.execute("DELETE FROM calls WHERE is_bad(CAST(key AS BLOB), CAST(value AS BLOB), checksum)")
        return kept, int(database.rows("SELECT count(*) FROM calls")[0][0])


def _written_anew(path: Path) -> tuple[Path, int]:
    # what is in the log goes into the file; refused while another program has it open
    with suppress(DataError), closing(Database(path)) as database, database.translated():
        database.connection.execute("PRAGMA journal_mode=delete")
    kept, saved = free_name(path, "damaged"), 0
    with storing(kept):
        shutil.copyfile(path, begun(kept))
    with replacing(path) as fresh:
        new = Database(fresh)
        with closing(new), closing(sqlite3.connect(f"file:{kept}?mode=ro", uri=True)) as old:
            prepare(new)
            old.text_factory = bytes
            with new.writing() as connection:
                connection.executemany("INSERT OR IGNORE INTO origins VALUES (?, ?, ?)", _origins(old))
                for row in _whole_rows(old):
                    saved += connection.execute("INSERT OR IGNORE INTO calls VALUES (?, ?, ?, ?, ?, ?)", row).rowcount
            new.connection.execute("PRAGMA journal_mode=delete")
        for rest in ("-wal", "-shm"):
            path.with_name(f"{path.name}{rest}").unlink(missing_ok=True)
    return kept, saved


def _origins(old: sqlite3.Connection) -> list[tuple[object, ...]]:
    with suppress(sqlite3.DatabaseError):
        rows = old.execute("SELECT id, engine, model FROM origins").fetchall()
        return [(number, _text(engine), _text(model)) for number, engine, model in rows]
    return []


def _whole_rows(old: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    """From both ends up to where the file cannot be read; twice where it can."""
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            for key, value, kept, *rest in old.execute(f"SELECT {COLUMNS} FROM calls ORDER BY key {order}"):
                if reply_of(key, value, kept) is not BAD:
                    yield (str(key, "utf-8"), str(value, "utf-8"), kept, *rest)


def stats(folder: Path) -> list[Share]:
    """The largest first. Summed up row by row: SQLite would sort a copy of all replies to group them."""
    sums = dict[tuple[object, object], tuple[int, int, int | None, int | None]]()
    with existing(folder) as database:
        origins: dict[object, tuple[str, str]] = {
            number: (_text(engine), _text(model)) for number, engine, model in _origins(database.connection)
        }
        for origin, kind, size, made in database.each(f"SELECT origin, {_KIND}, {_BYTES}, {_MADE} FROM calls"):
            calls, total, oldest, newest = sums.get((origin, kind), (0, 0, None, None))
            if isinstance(made, int):  # a damaged row may hold anything
                oldest, newest = min(made, oldest or made), max(made, newest or made)
            sums[origin, kind] = calls + 1, total + (size or 0), oldest, newest
    shares = []
    for (origin, kind), told in sums.items():
        engine, model = origins.get(origin, ("", ""))
        shares.append(Share(engine, model, _text(kind), *told))
    return sorted(shares, key=lambda share: (-share.bytes, share.engine, share.model, share.kind))


def prunable(folder: Path, pruning: Pruning) -> tuple[int, int]:
    """How many calls would go, and their bytes."""
    where, values = pruning.where()
    with existing(folder) as database:
        ((count, size),) = database.rows(f"SELECT count(*), ifnull(sum({_BYTES}), 0) FROM calls WHERE {where}", values)
    return count, size


def prune(folder: Path, pruning: Pruning) -> int:
    """Delete them, and give their room back to the disk."""
    where, values = pruning.where()
    with existing(folder) as database:
        with database.writing() as connection:
            count = connection.execute(f"DELETE FROM calls WHERE {where}", values).rowcount
        if count:
            with database.translated():
                database.patiently(lambda: database.connection.execute("VACUUM"))
    return int(count)


def _text(value: object) -> str:
    return str(value, "utf-8", "replace") if isinstance(value, bytes) else str(value)

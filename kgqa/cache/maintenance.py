"""Maintenance of a call cache: check, repair, statistics and pruning."""

# ruff: noqa: S608 - statements are built of this file's own words; values are bound

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kgqa.cache.database import BAD, Database, reply_of
from kgqa.cache.store import FILE, INSERT
from kgqa.errors import DataError
from kgqa.util.fs import create_private, explain_storage_errors, replace_atomically

DAY = 86_400  # seconds
LATEST = 250_000_000_000  # seconds since 1970 that are still a date
_SHOWN = 20  # damaged rows
# The kind of a call, by how its reply starts; see `kgqa.artifacts.call_schema.reply_json`
_KIND = (
    """CASE WHEN value LIKE '{"text"%' THEN 'generate' WHEN value LIKE '{"logprobs"%' THEN 'choose' """
    """WHEN value = '[]' OR value LIKE '[{%' THEN 'search' WHEN value LIKE '[%' THEN 'rank' """
    """WHEN value GLOB '[0-9]*' THEN 'count_tokens' ELSE 'other' END"""
)
_BYTES = "ifnull(length(CAST(key AS BLOB)), 0) + ifnull(length(CAST(value AS BLOB)), 0)"
_MADE = f"CASE WHEN made BETWEEN 0 AND {LATEST} THEN CAST(made AS INTEGER) END"  # a damaged row can hold anything


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check. keys: of the first damaged rows. structure: SQLite's complaint; "" if there is none."""

    path: Path
    rows: int
    damaged: int
    keys: tuple[str, ...]
    structure: str

    @property
    def is_whole(self) -> bool:
        return not self.damaged and not self.structure

    def lines(self) -> Iterator[str]:
        """Yield the lines that `kgqa cache check` prints."""
        if self.structure:
            yield f"{self.path}: the file is damaged: {self.structure}"
        for key in self.keys:
            yield f"{self.path}: damaged row {key}"
        if self.damaged > len(self.keys):
            yield f"{self.path}: and {self.damaged - len(self.keys):,} more"
        yield f"{self.path}: {self.rows:,} calls, {self.damaged:,} damaged" + (": whole" if self.is_whole else "")


@dataclass(frozen=True, slots=True)
class Share:
    """The calls of one origin and kind. bytes: of keys and replies. oldest, newest: seconds since 1970."""

    engine: str
    model: str
    kind: str
    calls: int
    bytes: int
    oldest: int | None
    newest: int | None


@contextmanager
def existing(folder: Path) -> Iterator[Database]:
    """Open an existing cache.

    Raises:
        DataError: there is none, or it is damaged.
    """
    if not (folder / FILE).is_file():
        raise DataError(f"{folder / FILE}: no call cache here; run in the folder of the runs, or set KGQA_CACHE")
    with closing(Database(folder / FILE)) as database:
        yield database


def check(folder: Path) -> CheckResult:
    """Read the complete file: SQLite's own structure and the checksum of every row.

    Raises:
        DataError: there is no cache.
        StorageError: another program holds it.
    """
    path, rows, damaged, keys = folder / FILE, 0, 0, list[str]()
    try:
        with existing(folder) as database:
            complaints = [_text(row[0]) for row in database.rows("PRAGMA integrity_check(3)")]
            structure = "" if complaints == ["ok"] else "; ".join(" ".join(line.split()) for line in complaints)
            for key, value, stored in database.iterate("SELECT key, value, checksum FROM calls"):
                rows += 1
                if reply_of(key, value, stored) is BAD:
                    damaged += 1
                    keys += [_text(key)] if len(keys) < _SHOWN else []
    except DataError as error:
        if not path.is_file():
            raise
        structure = str(error.__cause__ or error)
    return CheckResult(path, rows, damaged, tuple(keys), structure)


def repair(result: CheckResult) -> tuple[Path, int]:
    """Write the file again with the rows that are whole, up to where it cannot be read.

    Returns:
        The path of a copy of the old file, and the number of calls in the new one.

    Raises:
        StorageError: another program has the file open.
    """
    path, calls = result.path, 0
    # Moves the log into the file; SQLite refuses while another program has it open
    with suppress(DataError), closing(Database(path)) as database, database.translate_errors():
        database.connection.execute("PRAGMA journal_mode=delete")
    copy = _free_name(path)
    with explain_storage_errors(copy):
        shutil.copyfile(path, create_private(copy))
    with replace_atomically(path) as fresh:
        with closing(Database(fresh)) as new, closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as old:
            old.text_factory = bytes
            with new.writing() as connection:
                for row in _whole_rows(old):
                    calls += connection.execute(f"INSERT OR IGNORE {INSERT}", row).rowcount
            new.connection.execute("PRAGMA journal_mode=delete")
        for rest in ("-wal", "-shm"):
            path.with_name(f"{path.name}{rest}").unlink(missing_ok=True)
    return copy, calls


def _whole_rows(old: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    with suppress(sqlite3.DatabaseError):
        for key, value, stored, engine, model, made in old.execute("SELECT * FROM calls"):
            if reply_of(key, value, stored) is not BAD:
                yield str(key, "utf-8"), str(value, "utf-8"), stored, _text(engine), _text(model), made


def _free_name(path: Path) -> Path:
    copy, number = path.with_name("calls.damaged.sqlite"), 1
    while copy.exists():
        number += 1
        copy = path.with_name(f"calls.damaged-{number}.sqlite")
    return copy


def stats(folder: Path) -> list[Share]:
    """Return calls and bytes by origin and kind, the largest first."""
    statement = (
        f"SELECT engine, model, {_KIND} AS kind, count(*), sum({_BYTES}), min({_MADE}), max({_MADE}) FROM calls "
        "GROUP BY engine, model, kind"
    )
    with existing(folder) as database:
        rows = database.rows(statement)
    shares = [Share(_text(engine), _text(model), _text(kind), *numbers) for engine, model, kind, *numbers in rows]
    return sorted(shares, key=lambda share: (-share.bytes, share.engine, share.model, share.kind))


def prune(folder: Path, *, older_than: int | None = None, engine: str | None = None, delete: bool) -> tuple[int, int]:
    """Find calls for which all that is given holds, and delete them if `delete`.

    Args:
        older_than: days since the call was made.

    Returns:
        The number of calls, and their bytes.
    """
    conditions: list[tuple[str, object]] = []
    if older_than is not None:
        conditions.append(("made < ?", max(0, int(time.time()) - older_than * DAY)))
    if engine is not None:
        conditions.append(("engine = ?", engine))
    where = " AND ".join(condition for condition, _ in conditions)
    values = tuple(value for _, value in conditions)
    with existing(folder) as database:
        ((calls, size),) = database.rows(f"SELECT count(*), ifnull(sum({_BYTES}), 0) FROM calls WHERE {where}", values)
        if delete and calls:
            with database.writing() as connection:
                connection.execute(f"DELETE FROM calls WHERE {where}", values)
            with database.translate_errors():
                database.retry(lambda: database.connection.execute("VACUUM"))
    return calls, size


def _text(value: object) -> str:
    return str(value, "utf-8", "replace") if isinstance(value, bytes) else str(value or "")

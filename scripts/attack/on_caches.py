"""The call cache: single bits, values, schema, log, the file itself.

A reply that was kept is either given again as it was or asked again; so predictions are those of the sound run.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from scripts.attack import bending
from scripts.attack.starting import TRACE
from scripts.attack.trial import Trial

CACHE = "outputs/.cache"
VALUES = (
    "{}", "[]", '"x"', "1", "null", '{"text":1}', '["a"]', "[[]]", "[1,2,3]", "nope", "",
    '{"text":"x","finish":"stop","usage":[1],"flags":[]}',
    '{"text":null,"finish":"stop","usage":[1,0,1,0],"flags":[]}',
    '{"text":5,"finish":"stop","usage":[1,0,1,0],"flags":[]}',
    '{"text":"x","finish":"stop","usage":["a",0,1,0],"flags":[]}',
    '{"text":"another","finish":"stop","usage":[1,0,1,0],"flags":[]}',
    '{"text":"x","finish":"stop","usage":[1,0,1,0],"flags":5}',
    '{"text":"x","finish":"stop","usage":[1,0,1,0],"flags":"ab"}',
    '{"logprobs":[],"mass":null,"usage":[1,0,1,0],"flags":[]}',
    '{"logprobs":[NaN,NaN],"mass":null,"usage":[1,0,1,0],"flags":[]}',
    '{"logprobs":[-1,' + "9" * 5000 + '],"mass":null,"usage":[1,0,1,0],"flags":[]}', "[" * 3000 + "]" * 3000,
)  # fmt: skip


def single_bits(trial: Trial) -> None:
    """One bit of a byte that is not zero."""
    trial.take("run", "outputs")
    file = trial.work / CACHE / "calls.sqlite"
    _one_file(file)
    raw = bytearray(file.read_bytes())
    place = trial.dice.choice([place for place, byte in enumerate(raw) if byte])
    bit = trial.dice.randrange(8)
    raw[place] ^= 1 << bit
    file.write_bytes(bytes(raw))
    trial.done.append(f"bit {bit} of byte {place} of {file.name} flipped")
    _run_again(trial)


def anything(trial: Trial) -> None:
    trial.take("run", "outputs")
    harmed(trial)
    _run_again(trial)


def harmed(trial: Trial) -> bool:
    """The cache at its place, harmed in one of the ways; whether it has a log now."""
    file = trial.work / CACHE / "calls.sqlite"
    _one_file(file)
    name = trial.dice.choice(tuple(_WAYS))
    trial.done.append(name)
    _WAYS[name](file, trial)
    return file.with_name(f"{file.name}-wal").exists()


def _run_again(trial: Trial) -> None:
    ended = trial.kgqa(*TRACE)
    if ended.code == 0:
        trial.unchanged("run/predictions.jsonl", "a run over a damaged cache ended as if all were well")
    elif ended.code is not None:
        trial.unchanged("run/predictions.jsonl", "a run that refused a damaged cache left other predictions")


def _one_file(file: Path) -> None:
    """All of the cache in the file itself, nothing in its log."""
    with closing(sqlite3.connect(file)) as cache:
        cache.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _bytes(change: Callable[[bytes, random.Random], bytes]) -> Callable[[Path, Trial], None]:
    return lambda file, trial: _write(file, change(file.read_bytes(), trial.dice))


def _write(file: Path, raw: bytes) -> None:
    file.write_bytes(raw)


def _values(file: Path, trial: Trial) -> None:
    """Some or all replies replaced by another value; in each table that has a key and a value."""
    value = trial.dice.choice(VALUES)
    share = trial.dice.choice((1.0, 1.0, 0.2))
    trial.done.append(f"{share:.0%} of the values are {value[:60]}")
    with closing(sqlite3.connect(file)) as cache:
        keys = [key for (key,) in cache.execute("SELECT key FROM calls")]
        for key in trial.dice.sample(keys, max(1, round(share * len(keys)))):
            cache.execute("UPDATE calls SET value = ? WHERE key = ?", (value, key))
        cache.commit()


def _swapped(file: Path, trial: Trial) -> None:
    """Two replies that change places: each is sound in itself."""
    with closing(sqlite3.connect(file)) as cache:
        columns = [row[1] for row in cache.execute("PRAGMA table_info(calls)")]
        rows = list(cache.execute(f"SELECT {', '.join(columns)} FROM calls"))
        one, other = trial.dice.sample(rows, 2)
        for mine, theirs in ((one, other), (other, one)):
            for column, content in list(zip(columns, theirs, strict=True))[1:]:
                cache.execute(f"UPDATE calls SET {column} = ? WHERE key = ?", (content, mine[0]))
        cache.commit()


def _statements(*statements: str) -> Callable[[Path, Trial], None]:
    def execute(file: Path, _: Trial) -> None:
        with closing(sqlite3.connect(file)) as cache:
            for statement in statements:
                cache.execute(statement)
            cache.commit()

    return execute


def _log(file: Path, trial: Trial) -> None:
    for ending, size in (("-wal", 5000), ("-shm", 3000)):
        file.with_name(file.name + ending).write_bytes(trial.dice.randbytes(size))


def _log_bits(file: Path, trial: Trial) -> None:
    """A log that was not yet taken into the file, with a bit flipped in it."""
    log = file.with_name(f"{file.name}-wal")
    with closing(sqlite3.connect(file)) as cache:
        cache.execute("PRAGMA journal_mode=WAL")
        cache.execute("UPDATE calls SET value = value")
        cache.commit()
        kept = log.read_bytes()
    if kept:
        log.write_bytes(bending.flipped(kept, trial.dice, 1))


def _folder(file: Path, _: Trial) -> None:
    file.unlink()
    file.mkdir()


def _dangling(file: Path, _: Trial) -> None:
    file.unlink()
    file.symlink_to("/nowhere/at/all")


def _read_only(file: Path, _: Trial) -> None:
    os.chmod(file, 0o444)
    os.chmod(file.parent, 0o555)


_WAYS: Mapping[str, Callable[[Path, Trial], None]] = {
    "five bits flipped": _bytes(lambda raw, dice: bending.flipped(raw, dice, 5)),
    "fifty bits flipped": _bytes(lambda raw, dice: bending.flipped(raw, dice, 50)),
    "a page of random bytes": _bytes(lambda raw, dice: raw[:4096] + dice.randbytes(4096) + raw[8192:]),
    "cut short": _bytes(lambda raw, dice: raw[: dice.randrange(len(raw))]),
    "empty": _bytes(lambda *_: b""),
    "random bytes": _bytes(lambda _, dice: dice.randbytes(20_000)),
    "values": _values,
    "values once more": _values,
    "two replies swapped": _swapped,
    "no values": _statements("UPDATE calls SET value = NULL"),
    "numbers for values": _statements("UPDATE calls SET value = 5"),
    "bytes for values": _statements("UPDATE calls SET value = x'ff00fe'"),
    "another table": _statements("DROP TABLE calls", "CREATE TABLE calls (k TEXT PRIMARY KEY, v BLOB)"),
    "a view for the table": _statements("DROP TABLE calls", "CREATE VIEW calls AS SELECT 1 AS key, 2 AS value"),
    "a further column": _statements("ALTER TABLE calls ADD COLUMN further TEXT"),
    "half the rows gone": _statements("DELETE FROM calls WHERE key < '8'"),
    "a later version": _statements("PRAGMA user_version = 99"),
    "a strange log": _log,
    "a bit of the log flipped": _log_bits,
    "a folder": _folder,
    "a dangling link": _dangling,
    "read-only": _read_only,
}

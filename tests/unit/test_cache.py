"""The call cache: no committed reply is lost, no damaged one is used, under several writers that come and go."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kgqa.cache import maintenance, store
from kgqa.cache.maintenance import check, prune, stats
from kgqa.cache.store import VALUE, CallCache, Origin
from kgqa.errors import DataError, StorageError
from kgqa.types import Json
from kgqa.util.jsonio import MOST_BYTES
from tests.engines_for_tests import Batches
from tests.unit.scheduling import drive, named, two_steps


def test_committed_replies_survive_a_kill(cache: CallCache) -> None:
    script = """if True:
        import itertools, sys
        from pathlib import Path
        from kgqa.cache.store import CallCache
        cache = CallCache(Path(sys.argv[1]))
        cache.lock_calls(["a"])
        for n in itertools.count():
            cache.put([(str(n), n)])
            print(n, flush=True)
    """
    command = [sys.executable, "-c", script, str(cache.path.parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        committed = [next(writer.stdout) for _ in range(50)]
        assert cache.lock_calls(["a"]) == {"a": "elsewhere"}
        os.kill(writer.pid, signal.SIGKILL)
        committed += list(writer.stdout)
    assert cache.lock_calls(["a"]) == {"a": "locked"}
    assert all(cache.get(line.strip()) == int(line) for line in committed if line.endswith("\n"))


def test_round_trip_and_full_disk(cache: CallCache) -> None:
    cache.put([("a", {"text": "naïve \ud800 <x>"}), ("b", [1.5, -0.25]), ("c", 7)])
    assert [cache.get(key) for key in "abcd"] == [
        {"text": "naïve \ud800 <x>"},
        [1.5, -0.25],
        7,
        None,
    ]
    # SQLite's own way to run full
    cache._database.connection.execute("PRAGMA max_page_count = 8")
    with pytest.raises(StorageError, match=r"full. Free disk space or set KGQA_CACHE"):
        cache.put((str(n), "x" * 1000) for n in range(1000))
    cache.put([("small", 1)])
    assert cache.get("small") == 1
    # the transaction that failed left nothing
    assert cache.get("0") is None
    assert len(cache) == 4


DAMAGED = "damaged call cache|not a call cache"


def results(engine: Batches, cache: CallCache) -> list[Any]:
    return sorted(ended.result for ended in drive(engine, cache, named(3, two_steps)))


@pytest.mark.parametrize("value", ["'{broken'", "NULL", "17", "x'00ff'", "value || ' '"])
def test_damaged_rows_are_dropped_and_counted(
    cache: CallCache, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = results(Batches(), cache)
    with closing(sqlite3.connect(cache.path)) as other, other:
        other.execute(f"UPDATE calls SET value = {value}")
    engine = Batches()
    assert (results(engine, cache), sum(map(len, engine.asked)), cache.damaged) == (before, 6, 6)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "a damaged reply" in warned[0]
    again = Batches()
    assert results(again, cache) == before
    assert not again.asked


@pytest.mark.slow
def test_flipped_bit_never_changes_a_reply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replies = {f"{number:064x}": {"text": f"reply {number} " * 5} for number in range(120)}
    opened = CallCache(tmp_path / "whole")
    opened.put(replies.items())
    opened.close()
    whole = (tmp_path / "whole" / "calls.sqlite").read_bytes()
    caplog.set_level(logging.CRITICAL)
    chance, ends = random.Random(7), Counter[str]()
    for _ in range(100):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
        ends[_end(tmp_path / "flipped", bytes(flipped), replies)] += 1
    assert set(ends) == {
        "unchanged",
        "damaged rows",
        "missing rows",
        "damaged file",
    }  # missing: under a damaged key
    assert ends["damaged rows"] > 25
    assert (
        _end(tmp_path / "flipped", b"this is not a database at all" * 100, replies)
        == "damaged file"
    )


def _end(folder: Path, content: bytes, replies: dict[str, Json]) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "calls.sqlite").write_bytes(content)
    try:
        with closing(CallCache(folder)) as cache:
            stored = {key: cache.get(key) for key in replies}
            damaged = cache.damaged
    except DataError as error:
        return "damaged file" if re.search(DAMAGED, str(error)) else str(error)
    missing = [key for key, reply in stored.items() if reply is None]
    assert all(stored[key] == replies[key] for key in replies if key not in missing)
    if missing and not damaged:
        with suppress(DataError):
            assert check(folder)[1]
    return "unchanged" if not missing else "damaged rows" if damaged else "missing rows"


def test_lock_of_another_process_is_waited_for(cache: CallCache) -> None:
    script = """if True:
        import sqlite3, sys, time
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        print("locked", flush=True)
        time.sleep(0.3)
        connection.execute("COMMIT")
    """
    command = [sys.executable, "-c", script, str(cache.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        cache.put([("b", 2)])
        assert holder.wait() == 0
    assert cache.get("b") == 2
    assert cache._database.connection.execute("PRAGMA busy_timeout").fetchone() == (
        1000 * store.TIMEOUT,
    )


@pytest.mark.parametrize(
    ("disk", "journal", "synchronous"),
    [pytest.param("", b"wal", 1, id="local"), pytest.param("nfs4", b"delete", 2, id="network")],
)
def test_network_disk_has_no_shared_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    disk: str,
    journal: bytes,
    synchronous: int,
) -> None:
    monkeypatch.setattr(store, "network_disk", lambda _: disk)
    with caplog.at_level(logging.INFO, "kgqa"), closing(CallCache(tmp_path)) as cache:
        for name, value in (("journal_mode", journal), ("synchronous", synchronous)):
            assert cache._database.connection.execute(f"PRAGMA {name}").fetchone() == (value,)
    assert ("is on a network disk (nfs4); KGQA_CACHE=FOLDER" in caplog.text) is bool(disk)


@pytest.mark.parametrize(
    ("days", "engine", "left"),
    [
        pytest.param(3, "a", {"new a", "new b", "old b"}, id="both conditions"),
        pytest.param(3, None, {"new a", "new b"}, id="age"),
        pytest.param(None, "b", {"new a", "old a"}, id="engine"),
        pytest.param(5, "a", {"new a", "new b", "old a", "old b"}, id="none is that old"),
    ],
)
def test_prune_deletes_what_meets_all_conditions(
    cache: CallCache, days: int | None, engine: str | None, left: set[str]
) -> None:
    for name in "ab":
        cache.put([(f"new {name}", 1), (f"old {name}", 2)], Origin(name))
    four_days = 4 * 24 * 60 * 60
    cache._database.connection.execute(
        "UPDATE calls SET made = made - ? WHERE key LIKE 'old %'", (four_days,)
    )
    folder = cache.path.parent
    expected = 4 - len(left)
    assert prune(folder, older_than=days, engine=engine, delete=False)[0] == expected
    assert prune(folder, older_than=days, engine=engine, delete=True)[0] == expected
    keys = ("new a", "new b", "old a", "old b")
    assert {key for key in keys if cache.get(key) is not None} == left


@pytest.mark.parametrize(
    ("column", "value", "reply"),
    [
        pytest.param(1, "1", 1, id="intact"),
        pytest.param(1, "2", None, id="other reply"),
        pytest.param(1, 1, None, id="no text"),
        pytest.param(0, "b", None, id="other key"),
        pytest.param(2, 0, None, id="other checksum"),
    ],
)
def test_damaged_shared_reply_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: int, value: Json, reply: Json
) -> None:
    monkeypatch.setattr(store, "shared_replies", lambda: tmp_path / "shared")
    with closing(CallCache(tmp_path / "first")) as cache:
        cache.put([("a", 1)])
    (file,) = (tmp_path / "shared").glob("*.jsonl")
    row = json.loads(file.read_text())
    row[column] = value
    file.write_text(f"{json.dumps(row)}\n")
    with closing(CallCache(tmp_path / "second")) as cache:
        assert cache.get(row[0]) == reply
        assert cache.damaged == 0


def test_stored_caches_stay_readable(cache: CallCache) -> None:
    # another number rejects every reply that users have stored
    assert cache._database.connection.execute("PRAGMA user_version").fetchone() == (3,)


def test_first_dropped_reply_is_reported(
    cache: CallCache, caplog: pytest.LogCaptureFixture
) -> None:
    cache.drop("0123456789abcdef")
    cache.drop("fedcba9876543210")
    (message,) = caplog.messages
    assert message.startswith(f"{cache.path}: a damaged reply (0123456789ab…) was dropped.")


def test_long_lock_is_an_error_but_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "TIMEOUT", 0.1)
    cache = CallCache(tmp_path)
    with closing(sqlite3.connect(cache.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StorageError,
            match=r"another program uses it .* No reply is lost\..* run the same command again",
        ):
            cache.put([("a", 1)])
        connection.execute("COMMIT")
        cache.close()
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="another program uses it"):
            CallCache(tmp_path)


ALL = [f"key {number}" for number in range(5)]
KEYS = st.sampled_from(ALL)
REPLIES = st.one_of(
    st.integers(0, 99), st.text(max_size=5), st.lists(st.floats(allow_nan=False), max_size=3)
)
WRITERS = st.integers(0, 2)


class SharedCache(RuleBasedStateMachine):
    """Three writers on one file; `committed` is what was ever put, by the first who did."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.writers: dict[int, CallCache] = {}
        self.committed: dict[str, Json] = {}
        self.locked: dict[str, int] = {}
        self.killed: set[str | None] = set()  # owners of locks

    def writer(self, number: int) -> CallCache:
        if number not in self.writers:
            self.writers[number] = CallCache(Path(self.folder.name))
        return self.writers[number]

    @rule(number=WRITERS, items=st.lists(st.tuples(KEYS, REPLIES), max_size=4))
    def put(self, number: int, items: list[tuple[str, Json]]) -> None:
        standing = self.writer(number).put(items)
        first: dict[str, Json] = {}
        for key, reply in items:
            first.setdefault(key, reply)
        for key, reply in first.items():
            assert standing.get(key, reply) == self.committed.get(key, reply)
            self.committed.setdefault(key, reply)
            if self.locked.get(key) == number:
                del self.locked[key]

    @precondition(lambda self: self.committed)
    @rule(number=WRITERS, data=st.data(), reply=REPLIES, looked=st.booleans())
    def damage(self, number: int, data: st.DataObject, reply: Json, looked: bool) -> None:
        """A damaged reply is missing, and the next one stays."""
        key, cache = data.draw(st.sampled_from(sorted(self.committed))), self.writer(number)
        with closing(sqlite3.connect(cache.path)) as other, other:
            other.execute("UPDATE calls SET value = 'x' WHERE key = ?", (key,))
        del self.committed[key]
        if looked:
            assert all(cache.get(other) is None for other in ALL if other not in self.committed)
        self.put(number, [(key, reply)])

    @rule(number=WRITERS, key=KEYS)
    def get(self, number: int, key: str) -> None:
        assert self.writer(number).get(key) == self.committed.get(key)

    @rule(number=WRITERS, key=KEYS)
    def lock(self, number: int, key: str) -> None:
        state = self.writer(number).lock_calls([key])[key]
        if key in self.committed:
            assert state == "stored"
        elif self.locked.setdefault(key, number) == number:
            assert state == "locked"
        else:
            assert state == "elsewhere"

    @rule(number=WRITERS, key=KEYS)
    def give_back(self, number: int, key: str) -> None:
        self.writer(number).unlock([key])
        if self.locked.get(key) == number:
            del self.locked[key]

    @rule(number=WRITERS)
    def close(self, number: int) -> None:
        if number in self.writers:
            self.writers.pop(number).close()
            self.locked = {key: owner for key, owner in self.locked.items() if owner != number}

    @rule(number=WRITERS, key=KEYS, heirs=st.lists(WRITERS, max_size=2))
    def cut_off_within_a_transaction(self, number: int, key: str, heirs: list[int]) -> None:
        """As a kill does: the connection ends, nothing is committed and no lock released; others take it over."""
        self.lock(number, key)
        cache = self.writer(number)
        cache._database.connection.execute("BEGIN IMMEDIATE")
        cache._database.connection.execute(
            "REPLACE INTO calls (key, value) VALUES (?, '\"never committed\"')", (key,)
        )
        cache._database.connection.close()
        # the system lets go of a killed process's locks
        cache._owner_lock.close()
        self.killed.add(cache._owner)
        del self.writers[number]
        self.locked = {key: owner for key, owner in self.locked.items() if owner != number}
        for heir in heirs:
            self.lock(heir, key)

    @rule(number=WRITERS, key=KEYS)
    def fail_within_a_transaction(self, number: int, key: str) -> None:
        """As a full disk does: nothing of it is kept, and the next transaction is a new one."""
        with pytest.raises(StorageError, match="full"):
            write_on_a_full_disk(self.writer(number), key)

    @precondition(lambda self: self.writers)
    @invariant()
    def no_lock_is_left_over(self) -> None:
        """Only killed writers leave locks, which others take over."""
        cache = next(iter(self.writers.values()))
        rows = cache._database.connection.execute("SELECT key, owner FROM call_locks").fetchall()
        names = {writer._owner: number for number, writer in self.writers.items()}
        owners = {
            key.decode(): owner.decode() for key, owner in rows if owner.decode() not in self.killed
        }
        assert {key: names[owner] for key, owner in owners.items()} == self.locked
        for number, writer in self.writers.items():
            assert writer._locked == {key for key, owner in self.locked.items() if owner == number}
        locks = {file.name for file in Path(self.folder.name).glob("locks/*")}
        assert locks <= names.keys() | self.killed

    @precondition(lambda self: self.writers)
    @invariant()
    def all_committed_replies_are_there(self) -> None:
        for cache in self.writers.values():
            assert len(cache) == len(self.committed)
            assert all(cache.get(key) == reply for key, reply in self.committed.items())

    def teardown(self) -> None:
        for cache in self.writers.values():
            cache.close()
        if self.committed:
            assert not check(Path(self.folder.name))[1]
        self.folder.cleanup()


def write_on_a_full_disk(cache: CallCache, key: str) -> None:
    with cache._database.writing() as connection:
        connection.execute(
            "REPLACE INTO calls (key, value) VALUES (?, '\"never committed\"')", (key,)
        )
        raise sqlite3.OperationalError("database or disk is full")


TestSharedCache = pytest.mark.slow(SharedCache.TestCase)
TestSharedCache.settings = settings(
    max_examples=15, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)


def limit_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read values up to 1,000 characters. 140 MB, which the real limit needs, take seconds."""
    for module in (store, maintenance):
        monkeypatch.setattr(module, "VALUE", VALUE.replace(str(MOST_BYTES), "1000"))


def test_value_longer_than_any_reply_is_damaged(
    cache: CallCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put([("long", {"text": "x" * 2000})])
    assert check(cache.path.parent) == (1, 0)
    limit_values(monkeypatch)
    assert check(cache.path.parent) == (1, 1)
    assert cache.get("long") is None


@pytest.mark.parametrize(
    "value", ["NULL", "zeroblob(2000)", "hex(zeroblob(1000))"], ids=["null", "blob", "text"]
)
def test_statistics_count_a_row_without_a_reply(
    cache: CallCache, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_values(monkeypatch)
    cache.put([("sound", {"text": "Paris"}), ("damaged", {"text": "Rome"})], Origin("mine"))
    with cache._database.writing() as connection:
        connection.execute(f"UPDATE calls SET value = {value} WHERE key = 'damaged'")
    (row,) = stats(cache.path.parent)
    assert row["calls"] == 2
    assert check(cache.path.parent) == (2, 1)
    assert cache.get("damaged") is None
    assert cache.get("sound") == {"text": "Paris"}

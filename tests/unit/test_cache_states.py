"""The cache under several writers that come, go and are cut off: a dictionary in which the first reply stays."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kgqa.cache.maintenance import check
from kgqa.cache.store import CallCache
from kgqa.errors import StorageError
from kgqa.types import Json

ALL = [f"key {number}" for number in range(5)]
KEYS = st.sampled_from(ALL)
REPLIES = st.one_of(st.integers(0, 99), st.text(max_size=5), st.lists(st.floats(allow_nan=False), max_size=3))
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
        cache._database.connection.execute("REPLACE INTO calls (key, value) VALUES (?, '\"never committed\"')", (key,))
        cache._database.connection.close()
        cache._owner_lock.close()  # the system lets go of a killed process's locks
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
        owners = {key.decode(): owner.decode() for key, owner in rows if owner.decode() not in self.killed}
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
        connection.execute("REPLACE INTO calls (key, value) VALUES (?, '\"never committed\"')", (key,))
        raise sqlite3.OperationalError("database or disk is full")


TestSharedCache = SharedCache.TestCase
TestSharedCache.settings = settings(
    max_examples=15, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)

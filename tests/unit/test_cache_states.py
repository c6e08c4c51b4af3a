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

from kgqa.errors import StorageError
from kgqa.runtime.cache import CallCache
from kgqa.runtime.cache_upkeep import check
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
        self.claimed: dict[str, int] = {}
        self.rejected: dict[int, set[str]] = {}  # by writer: what it took for no reply to its call
        self.killed: set[str | None] = set()  # owners of claims

    def writer(self, number: int) -> CallCache:
        if number not in self.writers:
            self.writers[number], self.rejected[number] = CallCache(Path(self.folder.name)), set()
        return self.writers[number]

    @rule(number=WRITERS, items=st.lists(st.tuples(KEYS, REPLIES), max_size=4))
    def put(self, number: int, items: list[tuple[str, Json]]) -> None:
        standing = self.writer(number).put(items)
        first: dict[str, Json] = {}
        for key, reply in items:
            first.setdefault(key, reply)
        for key, reply in first.items():
            if key in self.rejected[number]:
                self.committed[key] = reply
            assert standing.get(key, reply) == self.committed.get(key, reply)
            self.committed.setdefault(key, reply)
            self.rejected[number].discard(key)
            if self.claimed.get(key) == number:
                del self.claimed[key]

    @precondition(lambda self: self.committed)
    @rule(number=WRITERS, data=st.data(), replies=st.lists(REPLIES, max_size=2))
    def reject(self, number: int, data: st.DataObject, replies: list[Json]) -> None:
        """It is no reply to its call: this writer may ask, and its next reply takes its place, once."""
        key = data.draw(st.sampled_from(sorted(self.committed)))
        self.writer(number).reject(key)
        self.rejected[number].add(key)
        self.claim(number, key)
        for reply in replies:
            self.put(number, [(key, reply)])

    @precondition(lambda self: self.committed)
    @rule(number=WRITERS, data=st.data(), reply=REPLIES, looked=st.booleans())
    def damage(self, number: int, data: st.DataObject, reply: Json, looked: bool) -> None:
        """A damaged reply is missing, and the next one stays."""
        key, cache = data.draw(st.sampled_from(sorted(self.committed))), self.writer(number)
        with closing(sqlite3.connect(cache.path)) as other, other:
            other.execute("UPDATE calls SET value = 'x' WHERE key = ?", (key,))
        del self.committed[key]
        if looked:
            assert [cache.get(other) for other in ALL if other not in self.committed] == [None] * (
                5 - len(self.committed)
            )
        self.put(number, [(key, reply)])

    @precondition(lambda self: self.committed)
    @rule(number=WRITERS, data=st.data())
    def damage_a_key(self, number: int, data: st.DataObject) -> None:
        """Its reply is recognised and kept anew; the damaged row goes when the cache is repaired."""
        key, cache = data.draw(st.sampled_from(sorted(self.committed))), self.writer(number)
        with closing(sqlite3.connect(cache.path)) as other, other:
            other.execute("UPDATE calls SET key = key || 'x' WHERE key = ?", (key,))
        assert cache.get(key) == self.committed[key]
        with closing(sqlite3.connect(cache.path)) as other, other:
            assert other.execute("DELETE FROM calls WHERE key = ? || 'x'", (key,)).rowcount == 1

    @rule(number=WRITERS, key=KEYS)
    def get(self, number: int, key: str) -> None:
        assert self.writer(number).get(key) == self.committed.get(key)

    @rule(number=WRITERS, key=KEYS)
    def claim(self, number: int, key: str) -> None:
        claimed = self.writer(number).claim([key])[key]
        if key in self.committed and key not in self.rejected[number]:
            assert claimed == "kept"
        elif self.claimed.setdefault(key, number) == number:
            assert claimed == "mine"
        else:
            assert claimed == "theirs"

    @rule(number=WRITERS, key=KEYS)
    def give_back(self, number: int, key: str) -> None:
        self.writer(number).give_back([key])
        if self.claimed.get(key) == number:
            del self.claimed[key]

    @rule(number=WRITERS)
    def see_what_others_claim(self, number: int) -> None:
        elsewhere = {key for key, owner in self.claimed.items() if owner != number}
        assert self.writer(number).claimed_elsewhere(ALL) == elsewhere

    @rule(number=WRITERS)
    def close(self, number: int) -> None:
        if number in self.writers:
            self.writers.pop(number).close()
            self.claimed = {key: owner for key, owner in self.claimed.items() if owner != number}

    @rule(number=WRITERS, key=KEYS, heirs=st.lists(WRITERS, max_size=2))
    def cut_off_within_a_transaction(self, number: int, key: str, heirs: list[int]) -> None:
        """As a kill does: the connection ends, nothing is committed and no claim given back; others take it over."""
        self.claim(number, key)
        cache = self.writer(number)
        cache._connection.execute("BEGIN IMMEDIATE")
        cache._connection.execute("REPLACE INTO calls (key, value) VALUES (?, '\"never committed\"')", (key,))
        cache._connection.close()
        cache._claims._held.close()  # the system lets go of a killed process's locks
        self.killed.add(cache._claims._owner)
        del self.writers[number]
        self.claimed = {key: owner for key, owner in self.claimed.items() if owner != number}
        for heir in heirs:
            self.claim(heir, key)

    @rule(number=WRITERS, key=KEYS)
    def fail_within_a_transaction(self, number: int, key: str) -> None:
        """As a full disk does: nothing of it is kept, and the next transaction is a new one."""
        with pytest.raises(StorageError, match="full"):
            write_on_a_full_disk(self.writer(number), key)

    @precondition(lambda self: self.writers)
    @invariant()
    def no_claim_outlives_what_it_was_for(self) -> None:
        """Only killed writers leave claims, which others take over."""
        cache = next(iter(self.writers.values()))
        rows = cache._connection.execute("SELECT key, owner FROM claims").fetchall()
        names = {writer._claims._owner: number for number, writer in self.writers.items()}
        owners = {key.decode(): owner.decode() for key, owner in rows if owner.decode() not in self.killed}
        assert {key: names[owner] for key, owner in owners.items()} == self.claimed
        for number, writer in self.writers.items():
            assert writer._claims.keys == {key for key, owner in self.claimed.items() if owner == number}
        locks = {file.name for file in Path(self.folder.name).glob("claims/*")}
        assert locks <= names.keys() | self.killed

    @precondition(lambda self: self.writers)
    @invariant()
    def all_that_was_committed_is_there(self) -> None:
        for cache in self.writers.values():
            assert len(cache) == len(self.committed)
            assert all(cache.get(key) == reply for key, reply in self.committed.items())

    def teardown(self) -> None:
        for cache in self.writers.values():
            cache.close()
        if self.committed:
            assert check(Path(self.folder.name)).whole
        self.folder.cleanup()


def write_on_a_full_disk(cache: CallCache, key: str) -> None:
    with cache._database.writing() as connection:
        connection.execute("REPLACE INTO calls (key, value) VALUES (?, '\"never committed\"')", (key,))
        raise sqlite3.OperationalError("database or disk is full")


TestSharedCache = SharedCache.TestCase
TestSharedCache.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

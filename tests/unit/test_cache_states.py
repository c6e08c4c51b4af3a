"""The cache under several writers that come, go and are cut off: a dictionary in which the first reply stays."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kgqa.runtime.cache import CallCache
from kgqa.runtime.cache_upkeep import check
from kgqa.types import Json

KEYS = st.sampled_from([f"key {number}" for number in range(8)])
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
            if self.claimed.get(key) == number:
                del self.claimed[key]

    @rule(number=WRITERS, key=KEYS)
    def get(self, number: int, key: str) -> None:
        assert self.writer(number).get(key) == self.committed.get(key)

    @rule(number=WRITERS, key=KEYS)
    def claim(self, number: int, key: str) -> None:
        claimed = self.writer(number).claim([key])[key]
        if key in self.committed:
            assert claimed == "kept"
        elif self.claimed.setdefault(key, number) == number:
            assert claimed == "mine"
        else:
            assert claimed == "theirs"

    @rule(number=WRITERS)
    def close(self, number: int) -> None:
        if number in self.writers:
            self.writers.pop(number).close()
            self.claimed = {key: owner for key, owner in self.claimed.items() if owner != number}

    @rule(number=WRITERS, key=KEYS)
    def cut_off_within_a_transaction(self, number: int, key: str) -> None:
        """As a kill does: the connection ends, nothing is committed and no claim given back."""
        cache = self.writer(number)
        cache._connection.execute("BEGIN IMMEDIATE")
        cache._connection.execute("REPLACE INTO calls (key, value) VALUES (?, '\"never committed\"')", (key,))
        cache._connection.close()
        cache._claims.close()  # the system lets go of a killed process's locks
        del self.writers[number]
        self.claimed = {key: owner for key, owner in self.claimed.items() if owner != number}

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


TestSharedCache = SharedCache.TestCase
TestSharedCache.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)

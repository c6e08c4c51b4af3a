"""Call caches for work that makes no new calls."""

from __future__ import annotations

from pathlib import Path

from kgqa.cache.store import CallCache
from kgqa.errors import EngineError
from kgqa.types import Json


class StoredCalls(CallCache):
    """A call cache that must have all replies. missing: the number of replies that it did not have."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.missing = 0

    def get(self, key: str) -> Json:
        if (value := super().get(key)) is None:
            self.missing += 1
            raise EngineError("not in the call cache")
        return value


class ReplayCache(StoredCalls):
    """One that records the keys of the replies that it returned."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.keys = set[str]()

    def get(self, key: str) -> Json:
        value = super().get(key)
        self.keys.add(key)
        return value

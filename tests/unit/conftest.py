"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.cache.store import CallCache


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CallCache]:
    opened = CallCache(tmp_path / "cache")
    yield opened
    opened.close()

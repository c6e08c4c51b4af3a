"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.cache.store import CallCache


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, and with no folder of an environment variable."""
    monkeypatch.chdir(tmp_path)
    for name in ("KGQA_TRAINED", "KGQA_CONF"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CallCache]:
    opened = CallCache(tmp_path / "cache")
    yield opened
    opened.close()

"""A cache that another program holds is waited for, and is not damaged."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kgqa.cache import database
from kgqa.cache.store import CallCache
from kgqa.errors import StorageError
from kgqa.util import fs


@pytest.fixture
def holder(cache: CallCache) -> Iterator[sqlite3.Connection]:
    """Another program that writes and does not end."""
    with closing(sqlite3.connect(cache.path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_short_lock_is_waited_for(
    cache: CallCache, holder: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "WAIT_WARNING", 0.1)
    monkeypatch.setattr(database, "_TRY", 0.1)
    caplog.set_level(logging.INFO, "kgqa")
    threading.Timer(2.5, lambda: holder.execute("COMMIT")).start()
    cache.put([("a", 1)])
    assert cache.get("a") == 1
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "calls.sqlite: another program holds it" in told[0]


def test_long_lock_is_an_error(cache: CallCache, holder: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    assert holder.in_transaction
    monkeypatch.setattr(database, "WAIT_LIMIT", 0.2)
    with pytest.raises(StorageError, match="another program holds it") as refused:
        cache.put([("a", 1)])
    assert "move it away" not in str(refused.value)
    assert "damaged" not in str(refused.value)
    assert "run the same command again" in str(refused.value)


def test_exclusive_lock_is_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAIT_LIMIT", 0.2)
    CallCache(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "calls.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="another program holds it"):
            CallCache(tmp_path)


def test_network_disk_gets_another_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "network_disk", lambda folder: "nfs4")
    caplog.set_level(logging.INFO, "kgqa")
    opened, other = CallCache(tmp_path), CallCache(tmp_path)
    opened.put([("a", 1)])
    assert other.get("a") == 1
    other.put([("b", 2)])
    assert opened.get("b") == 2
    assert not (tmp_path / "calls.sqlite-wal").exists()
    opened.close()
    other.close()
    assert "is on a network disk (nfs4). kgqa uses SQLite's journal delete" in caplog.text


def test_network_disk_is_found_in_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n/dev/vdb {tmp_path}/local ext4 rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda self: mounts)
    assert fs.network_disk(tmp_path / "outputs") == "nfs4"
    assert fs.network_disk(tmp_path) == "nfs4"
    assert fs.network_disk(tmp_path / "local" / "outputs") == ""
    assert fs.network_disk(Path("/elsewhere")) == ""

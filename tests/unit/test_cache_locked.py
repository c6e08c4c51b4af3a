"""A cache that another program holds is waited for, and is not damaged."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kgqa import storage
from kgqa.errors import StorageError
from kgqa.runtime import database
from kgqa.runtime.cache import CallCache


@pytest.fixture
def holder(cache: CallCache) -> Iterator[sqlite3.Connection]:
    """Another program that writes and does not end."""
    with closing(sqlite3.connect(cache.path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_a_short_lock_is_waited_for_with_one_line(
    cache: CallCache, holder: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "TOLD_AFTER", 0.1)
    monkeypatch.setattr(database, "_TRY", 0.1)
    caplog.set_level(logging.INFO, "kgqa")
    threading.Timer(2.5, lambda: holder.execute("COMMIT")).start()
    cache.put([("a", 1)])
    assert cache.get("a") == 1
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "calls.sqlite: another program holds it" in told[0]


def test_a_lock_that_lasts_ends_the_waiting_and_is_no_damage(
    cache: CallCache, holder: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert holder.in_transaction
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    with pytest.raises(StorageError, match="another program holds it") as refused:
        cache.put([("a", 1)])
    assert "move it away" not in str(refused.value)
    assert "damaged" not in str(refused.value)
    assert "run the same command again" in str(refused.value)


def test_a_cache_locked_as_a_whole_is_not_damaged_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    CallCache(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "calls.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="another program holds it"):
            CallCache(tmp_path)


def test_on_linux_the_line_names_the_process_that_holds_it(cache: CallCache, tmp_path: Path) -> None:
    if not Path("/proc/locks").exists():
        pytest.skip("only Linux tells who holds a lock")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(cache.path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        os.write(write, b"x")
        threading.Event().wait(30)
        os._exit(0)
    try:
        os.read(read, 1)
        assert database.holders(cache.path) in (f" (process {child})", "")  # a sandbox may show no locks
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert database.holders(cache.path) == ""


def test_a_disk_without_a_write_ahead_log_is_told_and_works(
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
    assert "is on a network disk (nfs4): kept with a journal that works there (delete)" in caplog.text


def test_a_network_disk_is_known_by_its_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n/dev/vdb {tmp_path}/local ext4 rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda self: mounts)
    assert storage.network_disk(tmp_path / "outputs") == "nfs4"
    assert storage.network_disk(tmp_path) == "nfs4"
    assert storage.network_disk(tmp_path / "local" / "outputs") == ""
    assert storage.network_disk(Path("/elsewhere")) == ""

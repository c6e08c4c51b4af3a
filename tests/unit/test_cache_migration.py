"""Caches of released versions are brought to the present form where they lie, with a copy of the old file beside."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kgqa.errors import DataError, StorageError
from kgqa.runtime import cache_schema
from kgqa.runtime.cache import CallCache
from kgqa.runtime.cache_upkeep import check, stats
from tests.engines_for_tests import Batches
from tests.unit.scheduling import drive, named, two_steps

# as released: one table, the same in 0.1.0 and 0.2.0
FORM_1 = "CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The folder of a cache as 0.1.0 and 0.2.0 wrote it, with the replies of a run."""
    new = CallCache(tmp_path / "new")
    drive(Batches(), new, named(4, two_steps))
    new.close()
    folder = tmp_path / "old"
    folder.mkdir()
    with closing(sqlite3.connect(tmp_path / "new" / "calls.sqlite")) as source:
        rows = source.execute("SELECT key, value FROM calls").fetchall()
    with closing(sqlite3.connect(folder / "calls.sqlite", isolation_level=None)) as target:
        target.execute("PRAGMA journal_mode=WAL")
        target.execute(FORM_1)
        target.executemany("INSERT INTO calls VALUES (?, ?)", rows)
    return folder


def contents(file: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(file)) as source:
        return source.execute("SELECT key, value FROM calls ORDER BY key").fetchall()


def test_an_old_cache_replays_without_a_call_and_a_copy_of_it_is_kept(old: Path) -> None:
    before = contents(old / "calls.sqlite")
    engine, cache = Batches(), CallCache(old)
    ended = drive(engine, cache, named(4, two_steps))
    cache.close()
    assert not engine.asked
    assert min(str(each.result) for each in ended) == "re: q0 two after re: q0 one"
    assert contents(old / "calls.sqlite") == contents(old / "calls.form1.sqlite") == before
    assert check(old).whole
    assert [(share.engine, share.kind, share.calls, share.oldest) for share in stats(old)] == [
        ("", "generate", 8, None)
    ]
    CallCache(old).close()
    assert not (old / "calls.form1-2.sqlite").exists()  # once


def test_a_damaged_reply_of_an_old_cache_is_asked_again_after_the_upgrade(old: Path) -> None:
    with closing(sqlite3.connect(old / "calls.sqlite")) as target, target:
        target.execute("UPDATE calls SET value = '{}'")
    engine, cache = Batches(), CallCache(old)
    drive(engine, cache, named(4, two_steps))
    assert cache.damaged == sum(map(len, engine.asked)) == 8
    cache.close()


def test_an_upgrade_that_fails_leaves_the_old_cache(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(old / "calls.sqlite")

    def full(*_: object) -> Path:
        raise StorageError("no room for the copy")

    monkeypatch.setattr(cache_schema, "backup", full)
    with pytest.raises(StorageError, match="no room"):
        CallCache(old)
    with closing(sqlite3.connect(old / "calls.sqlite")) as source:
        assert source.execute("PRAGMA user_version").fetchone() == (0,)
    assert contents(old / "calls.sqlite") == before


def test_several_processes_that_open_an_old_cache_at_once_upgrade_it_once(old: Path) -> None:
    opened: list[int] = []

    def run() -> None:
        cache = CallCache(old)
        opened.append(len(cache))
        cache.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert opened == [8] * 4
    assert [file.name for file in sorted(old.glob("calls.*.sqlite"))] == ["calls.form1.sqlite"]


def test_a_cache_of_a_later_kgqa_is_refused_and_left(old: Path) -> None:
    with closing(sqlite3.connect(old / "calls.sqlite")) as target:
        target.execute("PRAGMA user_version = 99")
    with pytest.raises(DataError, match=r"a call cache of form 99, of a later kgqa"):
        CallCache(old)


def test_another_programs_database_is_refused_and_left(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as target, target:
        target.execute("CREATE TABLE phone_calls (number TEXT)")
    with pytest.raises(DataError, match="a database, but no call cache"):
        CallCache(tmp_path)


def test_odd_replies_survive_the_upgrade(tmp_path: Path) -> None:
    reply = {"text": "naïve \ud800 <x>", "more": [1.5, None]}
    with closing(sqlite3.connect(tmp_path / "calls.sqlite")) as target, target:
        target.execute(FORM_1)
        target.execute("INSERT INTO calls VALUES ('k', ?)", (json.dumps(reply),))
    cache = CallCache(tmp_path)
    assert cache.get("k") == reply
    cache.close()

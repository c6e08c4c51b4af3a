"""The call cache: no committed reply is lost, no damaged one is used, and a locked file is waited for."""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from kgqa.cache import store
from kgqa.cache.maintenance import check
from kgqa.cache.store import CallCache
from kgqa.errors import DataError, StorageError
from kgqa.types import Json
from tests.engines_for_tests import Batches
from tests.unit.scheduling import drive, named, two_steps


def test_committed_replies_survive_a_kill(tmp_path: Path) -> None:
    script = """if True:
        import itertools, sys
        from pathlib import Path
        from kgqa.cache.store import CallCache
        cache = CallCache(Path(sys.argv[1]))
        for n in itertools.count():
            cache.put([(str(n), n)])
            print(n, flush=True)
    """
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        committed = [next(writer.stdout) for _ in range(50)]
        os.kill(writer.pid, signal.SIGKILL)
        committed += list(writer.stdout)
    with closing(CallCache(tmp_path)) as opened:
        assert all(opened.get(line.strip()) == int(line) for line in committed if line.endswith("\n"))


def test_round_trip_and_full_disk(cache: CallCache) -> None:
    cache.put([("a", {"text": "naïve \ud800 <x>"}), ("b", [1.5, -0.25]), ("c", 7)])
    assert [cache.get(key) for key in "abcd"] == [{"text": "naïve \ud800 <x>"}, [1.5, -0.25], 7, None]
    cache._database.connection.execute("PRAGMA max_page_count = 8")  # SQLite's own way to run full
    with pytest.raises(StorageError, match=r"full. Free disk space or set KGQA_CACHE"):
        cache.put((str(n), "x" * 1000) for n in range(1000))
    cache.put([("small", 1)])
    assert cache.get("small") == 1
    assert cache.get("0") is None  # the transaction that failed left nothing
    assert len(cache) == 4


DAMAGED = "damaged call cache|not a call cache"


def results(engine: Batches, cache: CallCache) -> list[Any]:
    return sorted(ended.result for ended in drive(engine, cache, named(3, two_steps)))


@pytest.mark.parametrize("value", ["'{broken'", "NULL", "17", "x'00ff'", "value || ' '"])
def test_damaged_rows_are_dropped_and_counted(cache: CallCache, value: str, caplog: pytest.LogCaptureFixture) -> None:
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


def test_flipped_bit_never_changes_a_reply(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = {f"{number:064x}": {"text": f"reply {number} " * 5} for number in range(120)}
    opened = CallCache(tmp_path / "whole")
    opened.put(written.items())
    opened.close()
    whole = (tmp_path / "whole" / "calls.sqlite").read_bytes()
    caplog.set_level(logging.CRITICAL)
    chance, ends = random.Random(7), Counter[str]()
    for _ in range(100):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
        ends[_end(tmp_path / "flipped", bytes(flipped), written)] += 1
    assert set(ends) == {"unchanged", "damaged rows", "missing rows", "damaged file"}  # missing: under a damaged key
    assert ends["damaged rows"] > 25
    assert _end(tmp_path / "flipped", b"this is not a database at all" * 100, written) == "damaged file"


def _end(folder: Path, content: bytes, written: dict[str, Json]) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "calls.sqlite").write_bytes(content)
    try:
        with closing(CallCache(folder)) as cache:
            found = {key: cache.get(key) for key in written}
            damaged = cache.damaged
    except DataError as error:
        return "damaged file" if re.search(DAMAGED, str(error)) else str(error)
    missing = [key for key, reply in found.items() if reply is None]
    assert all(found[key] == written[key] for key in written if key not in missing)
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
    assert cache._database.connection.execute("PRAGMA busy_timeout").fetchone() == (1000 * store.TIMEOUT,)


def test_long_lock_is_an_error_but_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "TIMEOUT", 0.1)
    cache = CallCache(tmp_path)
    with closing(sqlite3.connect(cache.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StorageError, match=r"another program uses it .* No reply is lost\..* run the same command again"
        ):
            cache.put([("a", 1)])
        connection.execute("COMMIT")
        cache.close()
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="another program uses it"):
            CallCache(tmp_path)

"""The call cache: nothing that was committed is lost, nothing damaged is believed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kgqa.cache.store import CallCache
from kgqa.errors import DataError, StorageError


def test_round_trip(cache: CallCache) -> None:
    cache.put([("a", {"text": "naïve \ud800 <x>"}), ("b", [1.5, -0.25]), ("c", 7)])
    assert cache.get("a") == {"text": "naïve \ud800 <x>"}
    assert cache.get("b") == [1.5, -0.25]
    assert cache.get("missing") is None
    assert len(cache) == 3


def test_first_reply_stays(cache: CallCache) -> None:
    cache.put([("a", "first")])
    assert cache.put([("a", "second"), ("b", "own")]) == {"a": "first"}
    assert (cache.get("a"), cache.get("b")) == ("first", "own")
    assert not cache.put([("a", "first")])


def test_two_processes_share_a_cache(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from kgqa.cache.store import CallCache
        cache = CallCache(Path(sys.argv[1]))
        for n in range(200):
            cache.put([(f"{sys.argv[2]}-{n}", n)])
    """)
    writers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    opened = CallCache(tmp_path)
    assert len(opened) == 400
    opened.close()


def test_committed_replies_survive_a_kill(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from kgqa.cache.store import CallCache
        cache = CallCache(Path(sys.argv[1]))
        n = 0
        while True:
            cache.put([(str(n), n)])
            print(n, flush=True)
            n += 1
    """)
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        committed = [next(writer.stdout) for _ in range(50)]
        os.kill(writer.pid, signal.SIGKILL)
        committed += list(writer.stdout)
    opened = CallCache(tmp_path)
    assert all(opened.get(line.strip()) == int(line) for line in committed if line.endswith("\n"))
    opened.close()


def test_other_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "calls.sqlite").write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(DataError, match=r"calls\.sqlite: damaged call cache .*move it away"):
        CallCache(tmp_path)


def test_full_disk(cache: CallCache) -> None:
    cache._database.connection.execute("PRAGMA max_page_count = 8")  # SQLite's own way to run full
    with pytest.raises(StorageError, match=r"full.*make room"):
        cache.put((str(n), "x" * 1000) for n in range(1000))
    cache.put([("small", 1)])
    assert cache.get("small") == 1
    assert cache.get("0") is None  # the transaction that failed left nothing


def test_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="KGQA_CACHE"):
        CallCache(tmp_path / "file" / "cache")

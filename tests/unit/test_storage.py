"""What lies on disk is written whole, locked by one process at a time, and hashed as it always was."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgqa.errors import ConfigError, StorageError
from kgqa.util import fs

HASH = "0fe09ff55fd9b43815b2339907d83d7cad91f8320ac5677102f0088817ddab64"
HOLD = """
import sys
from pathlib import Path
from kgqa.util.fs import lock_file
with lock_file(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holding(file: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until its input ends."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def refuse() -> None:
    raise ConfigError("taken")


def test_a_lock_that_another_process_holds_is_refused_and_free_once_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "below" / ".lock"
    with holding(file) as other:
        assert fs.is_locked(file)
        with pytest.raises(ConfigError, match="taken"), fs.lock_file(file, refuse):
            pytest.fail("held twice")
        other.kill()
        other.wait()
    assert not fs.is_locked(file)
    with fs.lock_file(file, refuse):
        assert fs.is_locked(file)


def test_a_file_is_replaced_as_a_whole_and_its_folder_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file.txt"
    assert fs.replace_file(file, "old") == file
    with fs.replace_atomically(file) as fresh:
        fresh.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert os.listdir(file.parent) == ["file.txt"]


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_what_fails_while_a_file_is_replaced_leaves_it_as_it_was_and_nothing_beside_it(
    tmp_path: Path, error: BaseException
) -> None:
    file = fs.replace_file(tmp_path / "file.txt", "old")

    def fail() -> None:
        with fs.replace_atomically(file) as fresh:
            fresh.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_the_disks_refusal_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    def fill() -> None:
        with fs.replace_atomically(tmp_path / "file") as fresh:
            fresh.symlink_to("/dev/full")
            fresh.write_text("more than there is room for")

    with pytest.raises(
        StorageError, match=r"file: No space left on device\. Free disk space, then run the same command"
    ):
        fill()
    assert not os.listdir(tmp_path)
    with (
        pytest.raises(StorageError, match=r"^F: it refused\. elsewhere$"),
        fs.explain_storage_errors(Path("F"), "elsewhere"),
    ):
        raise OSError("it refused")
    with pytest.raises(StorageError, match=r"^F: Read-only file system\. "), fs.explain_storage_errors(Path("F")):
        raise OSError(errno.EROFS, "a long story")


def test_digests_are_what_they_always_were(tmp_path: Path) -> None:
    """They name folders and keys of the cache: another one would make everything anew."""
    value = {"b": [1, None, 2.5], "a": "Zürich"}
    assert fs.digest(value, 12) == "1e38a7aed236"
    assert fs.digest(value, 12, ensure_ascii=False) == "03edd21a5e5c"
    assert fs.text_digest("Zürich", 16) == "4251685e06cab635"
    assert fs.ids_digest(["a", "b"]) == "7e18f737311b2dc3"
    file = fs.replace_file(tmp_path / "file", "a\udc80")
    assert file.read_bytes() == b"a\\udc80"
    assert fs.sha256(file) == fs.quick_sha256(file) == HASH


def test_a_hash_of_weights_is_noted_below_the_home_and_made_anew_once_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    file = fs.replace_file(tmp_path / "weights", "one")
    first = fs.quick_sha256(file)
    assert first == fs.sha256(file)
    fs.replace_file(file, "another")
    assert fs.quick_sha256(file) == fs.sha256(file) != first
    assert len(list((tmp_path / "home/hashes").iterdir())) == 2


def test_a_home_that_cannot_be_written_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = fs.replace_file(tmp_path / "weights", "one")
    monkeypatch.setenv("KGQA_HOME", str(file))
    assert fs.quick_sha256(file) == fs.sha256(file)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_disk_without_locks_is_named_with_the_settings_that_help(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr(fs, "network_disk", lambda _: "lustre")
    for _ in range(2):  # a lock file that is left behind would be another process's
        with pytest.raises(StorageError, match=r"this disk \(lustre\) has no file locks.*output_dir=DIR.*KGQA_CACHE"):
            fs.lock_file(tmp_path / "run" / ".lock").__enter__()
        assert list((tmp_path / "run").iterdir()) == []

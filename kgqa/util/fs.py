"""Hash, lock and atomically write files."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TextIO

from kgqa.errors import StorageError
from kgqa.types import Json
from kgqa.util.digests import text_digest
from kgqa.util.places import call_cache, home, outputs
from kgqa.util.waiting import waiting

# bytes of a file read at a time
BLOCK = 1 << 22
# bytes of a list, rules or labels: 128 MiB
MOST_TEXT = 1 << 27
# seconds between two attempts to get a lock
POLL = 0.01

NETWORK_DISKS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "panfs",
        "glusterfs",
    }
    | {f"fuse.{name}" for name in ("glusterfs", "sshfs", "ceph", "s3fs", "davfs2", "rclone")}
)

# errors that no free space ends
WRONG_PATH = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT})
# replaces the words of the remedies below for other errors than a full disk
SPACE = "Free disk space"
FIXES = {
    errno.EACCES: "Get permission to write there",
    errno.EPERM: "Get permission to write there",
    errno.EROFS: "Make the disk writable",
}
# Remedies for errors of the disk
AGAIN = f"{SPACE}, then run the same command again"
OUT_ELSEWHERE = f"{SPACE} or set output_dir=DIR, then run the same command again"
HOME_ELSEWHERE = f"{SPACE}, or set KGQA_HOME to a folder on another disk"


def ensure_dir(folder: Path) -> Path:
    """Create a folder that only its owner can read. New folders in kgqa's own ones follow the umask."""
    if not folder.is_dir():
        parent = ensure_dir(folder.parent).resolve()
        own = any(
            parent.is_relative_to(root.resolve()) for root in (outputs(), call_cache(), home())
        )
        try:
            folder.mkdir(0o777 if own else 0o700, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)
            ) from None
    return folder


def json_text(value: Json) -> str:
    """Return indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def jsonl_text(lines: Iterable[Mapping[str, Json]]) -> str:
    """Return one line of JSON per value."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def open_file(file: Path) -> IO[bytes]:
    """Open a regular file. Raise OSError for a pipe or a device, from which reading could wait for ever."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return file.open("rb")


def open_to_append(file: Path) -> TextIO:
    """Open a log to append texts. Raise OSError for a pipe, which would wait for a reader."""
    if file.is_fifo():
        raise OSError(errno.EINVAL, "not a regular file")
    # a lone surrogate becomes JSON's own escape
    return file.open("a", encoding="utf-8", errors="backslashreplace")


def read_small_text(file: Path) -> str:
    """Return the text of a regular file in UTF-8, without a byte order mark.

    Raises OSError: it cannot be read, or is larger than `MOST_TEXT`. UnicodeDecodeError: it is not UTF-8.
    """
    with open_file(file) as source:
        content = source.read(MOST_TEXT + 1)
    if len(content) > MOST_TEXT:
        raise OSError(errno.EFBIG, f"more than {MOST_TEXT >> 20} MiB")
    return content.decode("utf-8-sig")


def sha256(file: Path) -> str:
    """Return the hash of a file's content."""
    hashed = hashlib.sha256()
    with open_file(file) as source:
        while block := source.read(BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def quick_sha256(file: Path) -> str:
    """Return the hash of a file, computed once while its path, inode, size and times stay the same.

    Hashing a gigabyte takes seconds, so the hash of a large file is saved below `home()` for other processes.
    """
    status = file.stat()
    # with the time when the inode changed: tools that copy a file can set its modification time
    facts = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return _lookup_sha256(file, text_digest(f"{file.resolve()}\n{facts}", 24))


def folder_sha256(folder: Path, patterns: Iterable[str]) -> str:
    """Return the hash of the files in a folder that match a pattern, wherever the folder is."""
    files = sorted({file for pattern in patterns for file in folder.glob(pattern)})
    return text_digest(
        "".join(f"{quick_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    )


@lru_cache(maxsize=256)
def _lookup_sha256(file: Path, key: str) -> str:
    # an index has ten small files: notes of all of them would fill a folder that each new note has to list
    if file.stat().st_size <= BLOCK:
        return sha256(file)
    note = home() / "hashes" / f"{key}.txt"
    with suppress(OSError, ValueError):
        text = note.read_text()
        if len(text) == 64:
            return text
    hashed = sha256(file)
    # a read-only home costs time, not correctness
    with suppress(StorageError):
        replace_file(note, hashed)
    return hashed


@contextmanager
def explain_storage_errors(path: Path, remedy: str = AGAIN) -> Iterator[None]:
    """Turn an OSError into a StorageError with the path and the remedy, or another one if the path is wrong."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if error.errno in WRONG_PATH:
            is_absent = error.errno == errno.ENOENT
            remedy = "Name another path" + ("" if is_absent else ", or move what is there")
        remedy = remedy.replace(SPACE, FIXES.get(error.errno or 0, SPACE))
        raise StorageError(f"{path}: {reason}. {remedy}") from error


@contextmanager
def replace_atomically(path: Path, remedy: str = AGAIN) -> Iterator[Path]:
    """Yield a file next to `path`. It replaces `path` on success and is removed on failure.

    What killed processes of this machine left of an earlier version is removed, too.

    Raises:
        StorageError: the disk is full or not writable, or the path is a device such as /dev/null.
    """
    if _is_device(path):
        raise StorageError(f"{path}: a device. Name a file")
    start = f"{path.name}.{socket.gethostname()}-"
    fresh = path.with_name(f"{start}{os.getpid()}.new")
    with explain_storage_errors(path, remedy):
        ensure_dir(path.parent)
        for left in path.parent.glob(f"{glob.escape(start)}*.new"):
            if not _is_running(left.name[len(start) : -len(".new")]):
                left.unlink(missing_ok=True)
        try:
            yield fresh
            _to_disk(fresh)
            fresh.replace(path)
            with suppress(OSError):  # some systems cannot sync folders
                _to_disk(path.parent)
        finally:
            with suppress(OSError):
                fresh.unlink()


def _is_device(path: Path) -> bool:
    """Return whether a path is a device or a name for one. Only root can replace it, and no program would find it."""
    if path.absolute().parent == Path("/dev"):
        return True
    with suppress(OSError, ValueError):
        mode = path.lstat().st_mode
        return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
    return False


def _is_running(process: str) -> bool:
    """Return whether this can be the id of a running process."""
    if not process.isdecimal():
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        # a process of another user; Windows has other errors
        return True
    return True


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str | Iterable[str], remedy: str = OUT_ELSEWHERE) -> Path:
    """Write a complete file from a text or its parts, and return its path."""
    # backslashreplace writes a lone surrogate as \udcXX, which is JSON's own escape for it
    with (
        replace_atomically(path, remedy) as fresh,
        fresh.open("w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        file.writelines([text] if isinstance(text, str) else text)
    return path


def hash_text(text: str) -> str:
    """Return the `sha256` of the file that `replace_file` writes for this text."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def has_content(file: Path) -> bool:
    """Return whether a file exists and is not empty: a full disk leaves an empty one."""
    with suppress(FileNotFoundError):
        return file.is_file() and file.stat().st_size > 0
    return False


@contextmanager
def lock_file(
    file: Path, taken: Callable[[], None] = lambda: None, remedy: str = AGAIN
) -> Iterator[None]:
    """Hold a lock, and create its file and folder. The system releases it if the process is killed.

    taken: called before waiting for another process.

    Raises:
        StorageError: the disk is full, not writable or has no locks.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file, mode=0o666, thread_local=False)
    with explain_storage_errors(file.parent, remedy):
        _check_locks(ensure_dir(file.parent))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            taken()
            with waiting(f"another kgqa process works in {file.parent}"):
                lock.acquire(poll_interval=POLL)
    try:
        yield
    finally:
        lock.release()


def _check_locks(folder: Path) -> None:
    """Raise a StorageError if the disk has no locks. filelock would create files, which killed processes leave."""
    try:
        import fcntl
    except ImportError:  # Windows has locks
        return
    with tempfile.TemporaryFile(dir=folder) as probe:
        try:
            fcntl.flock(probe, fcntl.LOCK_UN)
        except OSError as error:
            raise StorageError(
                f"{folder}: this disk ({network_disk(folder) or 'file system'}) has no file locks "
                f"({os.strerror(error.errno or 0)}). Choose a folder on another disk: output_dir=DIR for a run, "
                "KGQA_CACHE for the call cache, KGQA_HOME for downloads, another working directory for outputs/"
            ) from error


def is_locked(file: Path) -> bool:
    """Return whether a process holds this lock."""
    from filelock import FileLock, Timeout

    with suppress(OSError):
        try:
            if file.is_file():
                lock = FileLock(file)
                lock.acquire(blocking=False)
                lock.release()
        except Timeout:
            return True
    return False


def network_disk(folder: Path) -> str:
    """Return the file system of a folder on another machine's disk, e.g. "nfs4", or ""."""
    real = str(folder.resolve())
    mounts: list[tuple[int, str]] = []
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind, *_ = line.split()
            if f"{real}/".startswith(f"{point.rstrip('/')}/"):
                mounts.append((len(point), kind))
    kind = max(mounts, default=(0, ""))[1]
    return kind if kind in NETWORK_DISKS else ""


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its files, if there is one. Raise OSError if the disk refuses."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_folder(folder: Path, root: Path) -> None:
    """Remove a folder, and then empty folders between it and `root`. Ignore errors of the disk."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        for parent in folder.absolute().parents:
            if parent == root.absolute() or not parent.is_relative_to(root.absolute()):
                return
            parent.rmdir()

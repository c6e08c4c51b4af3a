"""What lies on disk: where it belongs, what hash it has, how it is written as a whole, and who may write it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from kgqa.errors import StorageError
from kgqa.json_values import decoded
from kgqa.types import Json

BLOCK = 1 << 22  # bytes of a file read at a time
POLL = 0.01  # seconds between two looks at a lock that another process holds

PRIVATE = 0o700  # of folders that are nobody else's
NETWORK_DISKS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "panfs", "glusterfs"}
    | {f"fuse.{name}" for name in ("glusterfs", "sshfs", "ceph", "s3fs", "davfs2", "rclone")}
)

# What to do where the disk refuses
AGAIN = "make room, then run the same command again"
OUT_ELSEWHERE = "make room or give out=DIR, then run the same command again"
HOME_ELSEWHERE = "make room, or point KGQA_HOME elsewhere"


def package() -> Path:
    """The folder of the package itself, with what ships in it."""
    return Path(__file__).parent


def outputs() -> Path:
    """Where runs, triples and the call cache live: `outputs/` of the working directory."""
    return Path("outputs")


def trained() -> Path:
    """`KGQA_TRAINED`, else a folder of the outputs: what training has made, NAME/HASH/ each."""
    return Path(os.environ.get("KGQA_TRAINED") or outputs() / "trained").expanduser()


def call_cache() -> Path:
    """`KGQA_CACHE`, else a folder of the outputs."""
    return Path(os.environ.get("KGQA_CACHE") or outputs() / ".cache")


def home() -> Path:
    """`KGQA_HOME`, else `kgqa` in the user's cache: weights, hashes, logs."""
    if named := os.environ.get("KGQA_HOME"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "kgqa"


def made(folder: Path) -> Path:
    """The folder, made where it is missing: for its owner alone, as it may hold what is private.

    Inside `outputs()`, the call cache and `home()` a new one is as open as the folder it is made in: who opens those to
    a group (`chmod g+rwxs outputs`) shares what comes into them. See `begun` for files.
    """
    if not folder.exists():
        parent = made(folder.parent)
        with suppress(FileExistsError):  # another process was first
            folder.mkdir(PRIVATE)
            if _shareable(parent):
                _set_mode(folder, parent.stat().st_mode & 0o2775 | PRIVATE)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    return folder


def begun(file: Path) -> Path:
    """The file, made empty where it is missing: as open as its folder."""
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        as_open_as_folder(file)
    return file


def as_open_as_folder(file: Path) -> None:
    """Who may read its folder may read the file, and the folder's group write it, too, where it writes in the folder.

    In a folder that is everybody's, as /tmp, a file is its owner's alone.
    """
    folder = file.parent.stat().st_mode
    _set_mode(file, 0o600 if folder & stat.S_ISVTX else folder & 0o664 | 0o600)


def _set_mode(path: Path, mode: int) -> None:
    with suppress(OSError):  # another's file in a shared folder
        if stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)


def _shareable(folder: Path) -> bool:
    """Whether new folders in it are as open as it is itself."""
    real = folder.resolve()
    return any(real.is_relative_to(root.resolve()) for root in (outputs(), call_cache(), home()))


def json_text(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def jsonl_text(lines: Iterable[Mapping[str, Json]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def digest(value: Json, digits: int = 64, *, ensure_ascii: bool = True) -> str:
    """Hex digits of a value's JSON, whatever the order of its keys."""
    return text_digest(json.dumps(value, sort_keys=True, ensure_ascii=ensure_ascii), digits)


def text_digest(text: str, digits: int = 64) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]  # replies may hold halves


def ids_digest(ids: Iterable[str]) -> str:
    """16 hex digits of the ids in their order: what names a collection of passages."""
    return text_digest("\n".join(ids), 16)


def sha256(file: Path) -> str:
    """Of what the file holds now."""
    hashed = hashlib.sha256()
    with file.open("rb") as source:
        while block := source.read(BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def remembered_sha256(file: Path) -> str:
    """The same, computed once per process while path, size and modification time stay as they are."""
    stat = file.stat()
    return _sha256_at(file, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256_at(file: Path, size: int, modified: int) -> str:
    del size, modified  # part of the key only
    return sha256(file)


def noted_sha256(file: Path) -> str:
    """The same, once for all processes: hashing a gigabyte takes seconds, so a note of it stays below `home()`."""
    stat = file.stat()
    key = text_digest(f"{file.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}", 24)
    note = home() / "hashes" / f"{key}.json"
    try:
        return str(decoded(note.read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    hashed = sha256(file)
    with suppress(StorageError):  # a read-only home costs time, not correctness
        replace_file(note, json.dumps({"file": str(file), "sha256": hashed}))
    return hashed


@contextmanager
def storing(path: Path, remedy: str = AGAIN) -> Iterator[None]:
    """Turn the disk's refusals into one line that says which file and what to do."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(f"{path}: {reason}; {remedy}") from error


@contextmanager
def replacing(path: Path, remedy: str = AGAIN) -> Iterator[Path]:
    """A file beside `path` to write to: it becomes `path` when all went well, and is removed otherwise.

    So nobody reads half of it, after a power cut either, and of several processes that write the same the last one's
    stays. Folders that are missing are made.

    Raises:
        StorageError: the disk is full or refuses.
    """
    fresh = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.new")
    with storing(path, remedy):
        made(path.parent)
        try:
            yield begun(fresh)
            as_open_as_folder(fresh)
            _to_disk(fresh)
            fresh.replace(path)
            _to_disk(path.parent)
        finally:
            with suppress(OSError):
                fresh.unlink()


def _to_disk(path: Path) -> None:
    """Wait until a file, or what a folder says of its files, is on the disk; where the system cannot, go on."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS):
            raise
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str, remedy: str = OUT_ELSEWHERE) -> Path:
    """Write a file as a whole; returns its path."""
    return replace_with_parts(path, [text], remedy)


def replace_with_parts(path: Path, parts: Iterable[str], remedy: str = OUT_ELSEWHERE) -> Path:
    """The same of a text that is made while it is written."""
    # backslashreplace writes a lone surrogate as \udcXX, which is JSON's own escape for it
    with replacing(path, remedy) as fresh, fresh.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(parts)
    return path


def filled(file: Path) -> bool:
    """Whether there is a file that holds something: a disk that is full at the first byte leaves an empty one."""
    try:
        return file.is_file() and file.stat().st_size > 0
    except FileNotFoundError:  # gone in between
        return False


@contextmanager
def locked(file: Path, taken: Callable[[], None] = lambda: None, remedy: str = AGAIN) -> Iterator[None]:
    """Nobody else holds `file` meanwhile, which is made with its folder; the system lets go of a killed process's.

    taken: called where another process holds it. What it raises is raised; otherwise this one waits.

    Raises:
        StorageError: the disk is full or refuses.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file, thread_local=False)
    with storing(file.parent, remedy):
        made(file.parent)
        begun(file)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            taken()
            lock.acquire(poll_interval=POLL)
    try:
        yield
    finally:
        lock.release()


def in_use(file: Path) -> bool:
    """Whether a process holds this lock; not where there is none or it may not be asked."""
    from filelock import FileLock, Timeout

    try:
        if file.is_file():
            with FileLock(file, blocking=False):
                pass
    except Timeout:
        return True
    except OSError:
        pass
    return False


def network_disk(folder: Path) -> str:
    """The kind of file system if the folder lies on another machine's disk, e.g. "nfs4"; "" if not or not known."""
    try:
        real = str(folder.resolve())
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    over = [(words[1].replace("\\040", " "), words[2]) for words in mounts if len(words) > 2]
    below = [(len(at), kind) for at, kind in over if f"{real}/".startswith(f"{at.rstrip('/')}/")]
    kind = max(below, key=lambda mount: mount[0], default=(0, ""))[1]
    return kind if kind in NETWORK_DISKS else ""

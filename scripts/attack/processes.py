"""One command line in a process of its own.

Starting Python and importing kgqa costs a second and more; a process forked from one that has done both costs a tenth
of that. A part of the tries, and each that found something, takes a real `python -m kgqa` all the same.
"""

from __future__ import annotations

import atexit
import fcntl
import io
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import kgqa

ROOT = Path(__file__).resolve().parents[2]
FIXED = {
    "PYTHONPATH": str(ROOT),
    "LANG": "C.UTF-8",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "GOMP_SPINCOUNT": "0",
    "PYTHONDONTWRITEBYTECODE": "1",  # where disks are full it would leave half of it, for good
}
PIPE = 1 << 20  # bytes that a command may print where its files are limited
POLL = 0.004  # seconds
# what kgqa's modules load in functions, beside what the warm runs have loaded
LOADED_LATE = (
    "anyio._backends._asyncio", "asyncio", "csv", "h11", "httpcore2", "httpx2", "llguidance", "pdfplumber", "pypdfium2",
    "semantic_text_splitter", "tantivy",
)  # fmt: skip
DRY = ("dry_run=true",)  # of methods that search, whose index would leave a thread
MEMORY = 8 << 30  # bytes of address space that a command may have: a zip bomb ends itself, not the machine


@dataclass(frozen=True)
class Command:
    """`environment` is all that it gets beside PATH and the like; `signalled`: which signal comes after how many
    seconds; `file_limit`: bytes of the largest file that it may write, as a disk that fills up; `output`: where it
    prints, "file", or a "full" disk, or "gone" as after `| head`, or "closed"."""

    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    limit: float  # seconds, where a core is free
    signalled: tuple[signal.Signals, float] | None = None
    file_limit: int | None = None
    output: str = "file"
    program: str = "kgqa"  # or another module with a `main`
    python: str = sys.executable  # of a real process


@dataclass(frozen=True)
class Ended:
    """`code` as Python gives it: minus the signal where one ended it; None where it had to be stopped."""

    code: int | None
    out: str
    err: str
    seconds: float


def warm_up(folder: Path) -> None:
    """Load what a run loads, by a run; without threads afterwards, so that forking stays safe."""
    with _Elsewhere(folder) as quiet:
        from kgqa.cli import main

        words = ("dataset=demo", "limit=1", "engine=scripted", "ranker=lexical", "demonstrations_ranker=lexical")
        assert main(["run", "method=trace", *words, "experiment=quick", "out=warm"]) == 0, quiet
        for method, more in {"golden": (), "all_documents": (), "retrieve_read": DRY, "ircot": DRY}.items():
            assert main(["run", f"method={method}", *words, *more, f"out={method}"]) == 0, quiet
        for command in (["report", "warm"], ["show", "warm"], ["compare", "warm", "golden"], ["runs"]):
            main(command)
    for module in pkgutil.walk_packages(kgqa.__path__, "kgqa."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for name in LOADED_LATE:
        import_module(name)
    assert threading.active_count() == 1


class Running:
    """A command that is under way, in a session of its own. What it prints goes into files in `terminal`."""

    def __init__(self, command: Command, terminal: Path, *, real: bool) -> None:
        number = len(list(terminal.iterdir())) // 2
        self.command = command
        self._files = terminal / f"{number}.out", terminal / f"{number}.err"
        for file in self._files:
            file.touch()
        self._pipes = [os.pipe() for _ in self._files] if command.file_limit is not None else []
        self.began = time.monotonic()
        self._pid = (_start if real else _fork)(command, self._streams())

    def wait(self) -> Ended:
        code = self._code()
        seconds = time.monotonic() - self.began
        for file, (reading, _) in zip(self._files, self._pipes, strict=False):
            os.set_blocking(reading, False)
            with suppress(BlockingIOError):  # a worker that it left may hold the other end
                file.write_bytes(os.read(reading, PIPE))
            os.close(reading)
        out, err = (file.read_bytes().decode("utf-8", "backslashreplace") for file in self._files)
        return Ended(code, out, err, seconds)

    def ended(self) -> bool:
        """Whether it has, without waiting for it."""
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def children(self) -> list[int]:
        """Processes that it has started and that are there."""
        with suppress(FileNotFoundError):
            return [int(word) for word in Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()]
        return []

    def printed(self) -> str:
        """On standard output, so far."""
        return self._files[0].read_text(encoding="utf-8", errors="backslashreplace")

    def signal(self, kind: signal.Signals) -> None:
        os.kill(self._pid, kind)

    def _streams(self) -> tuple[int, int]:
        """Where it prints. A limit of its files would hold for what it prints, too, but for pipes."""
        for _, writing in self._pipes:
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
        if self._pipes:
            return self._pipes[0][1], self._pipes[1][1]
        out, err = (os.open(file, os.O_WRONLY) for file in self._files)
        if self.command.output == "full":
            os.close(out)
            out = os.open("/dev/full", os.O_WRONLY)
        elif self.command.output == "gone":
            os.close(out)
            reading, out = os.pipe()
            os.close(reading)
        return out, err

    def _code(self) -> int | None:
        signalled = self.command.signalled
        while True:
            done, status = os.waitpid(self._pid, os.WNOHANG)
            if done:
                self._end_group()  # of workers that it may have left
                return os.waitstatus_to_exitcode(status)
            spent = time.monotonic() - self.began
            if signalled is not None and spent >= signalled[1]:
                os.kill(self._pid, signalled[0])
                signalled = None
            if spent >= self.command.limit * crowd():
                self._end_group()
                os.waitpid(self._pid, 0)
                return None
            time.sleep(POLL)

    def _end_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)


def crowd() -> float:
    """How many programs want each core, at least 1: so much longer everything takes."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def environment(command: Command) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, **FIXED, **command.environment}


def _start(command: Command, streams: tuple[int, int]) -> int:
    words = [command.python, "-m", command.program, *command.argv]
    begin = partial(_set_up, command, streams)
    process = subprocess.Popen(
        words,
        cwd=command.folder,
        env=environment(command),
        preexec_fn=begin,  # noqa: PLW1509 - there are no threads here
        pass_fds=streams,
    )
    process.returncode = 0  # who waits for it is Running
    for stream in streams:
        os.close(stream)
    return process.pid


def _fork(command: Command, streams: tuple[int, int]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _inside(command, streams)
        finally:
            os._exit(code)
    for stream in streams:
        os.close(stream)
    return pid


def _inside(command: Command, streams: tuple[int, int]) -> int:
    """In the child: what a fresh interpreter would find, then the command, then what an interpreter does at its end."""
    _set_up(command, streams)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8", errors="surrogateescape"
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(environment(command))
    tempfile.tempdir = None

    main = import_module("kgqa.cli" if command.program == "kgqa" else command.program).main
    try:
        code: int = main(list(command.argv))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _set_up(command: Command, streams: tuple[int, int]) -> None:
    """A session, streams, signals and limits of its own."""
    os.setsid()
    for number, stream in ((0, os.open(os.devnull, os.O_RDONLY)), (1, streams[0]), (2, streams[1])):
        os.dup2(stream, number)
        os.close(stream)
    if command.output == "closed":
        os.close(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if command.file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (command.file_limit, command.file_limit))


class _Elsewhere:
    """In another folder, printing into nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> str:
        self._before = Path.cwd(), sys.stdout, sys.stderr
        os.chdir(self.folder)
        sys.stdout = sys.stderr = io.StringIO()
        return "the run that loads kgqa failed"

    def __exit__(self, *_: object) -> None:
        folder, sys.stdout, sys.stderr = self._before
        os.chdir(folder)

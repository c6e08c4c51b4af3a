"""One command line in a process of its own.

Starting Python and importing kgqa costs a second and more; a process forked from one that has done both costs a tenth
of that. A part of the tries, and each that found something, takes a real `python -m kgqa` all the same.
"""

from __future__ import annotations

import atexit
import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLL = 0.004  # seconds
MEMORY = 8 << 30  # bytes of address space that a command may have: a zip bomb ends itself, not the machine
ENDED_BY_US = 5.0  # seconds that a command has after it was asked to end


@dataclass(frozen=True)
class Command:
    """`environment` is all that it gets beside PATH and the like; `signalled`: which signal comes after how many
    seconds; `file_limit`: bytes of the largest file that it may write, as a disk that fills up."""

    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    limit: float  # seconds
    signalled: tuple[signal.Signals, float] | None = None
    file_limit: int | None = None


@dataclass(frozen=True)
class Ended:
    """`code` as Python gives it: minus the signal where one ended it; None where it had to be stopped."""

    code: int | None
    out: str
    err: str
    seconds: float


def warm_up(folder: Path) -> None:
    """Load what a run loads, by a run; without threads afterwards, so that forking stays safe."""
    with _elsewhere(folder) as quiet:
        from kgqa.cli import main

        words = ("method=trace", "dataset=demo", "limit=1", "experiment=quick", "engine=scripted", "ranker=lexical")
        assert main(["run", *words, "out=warm"]) == 0, quiet
        for command in (["report", "warm"], ["show", "warm"], ["compare", "warm", "warm"], ["runs"]):
            main(command)
    import httpx2
    import llguidance
    import pdfplumber
    import pypdfium2
    import semantic_text_splitter
    import tantivy

    assert all((httpx2, llguidance, pdfplumber, pypdfium2, semantic_text_splitter, tantivy))
    assert threading.active_count() == 1


def forked(command: Command, terminal: Path) -> Ended:
    """Run it in a fork of this process, with `terminal` as the folder for what it prints."""
    return _waited(command, terminal, _fork)


def started(command: Command, terminal: Path) -> Ended:
    """Run it as `python -m kgqa`."""
    return _waited(command, terminal, _start)


def running(command: Command, terminal: Path, *, real: bool) -> Running:
    """Begin it and go on at once."""
    return Running(command, terminal, _start if real else _fork)


class Running:
    """A command that is under way, in a session of its own."""

    def __init__(self, command: Command, terminal: Path, begin: Callable[[Command, Path, Path], int]) -> None:
        number = len(list(terminal.iterdir())) // 2
        self.command = command
        self.out, self.err = terminal / f"{number}.out", terminal / f"{number}.err"
        self.began = time.monotonic()
        self.pid = begin(command, self.out, self.err)

    def wait(self) -> Ended:
        code = self._code()
        seconds = time.monotonic() - self.began
        shown = [file.read_bytes().decode("utf-8", "backslashreplace") for file in (self.out, self.err)]
        return Ended(code, shown[0], shown[1], seconds)

    def _code(self) -> int | None:
        signalled = self.command.signalled
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self._end_group()  # of workers that it may have left
                return os.waitstatus_to_exitcode(status)
            spent = time.monotonic() - self.began
            if signalled is not None and spent >= signalled[1]:
                os.kill(self.pid, signalled[0])
                signalled = None
            if spent >= self.command.limit:
                self._end_group()
                os.waitpid(self.pid, 0)
                return None
            time.sleep(POLL)

    def _end_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _waited(command: Command, terminal: Path, begin: Callable[[Command, Path, Path], int]) -> Ended:
    return Running(command, terminal, begin).wait()


def environment(command: Command) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    fixed = {
        "PYTHONPATH": str(ROOT),
        "GOMP_SPINCOUNT": "0",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
    }
    return {**kept, **fixed, **command.environment}


def _start(command: Command, out: Path, err: Path) -> int:
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "kgqa", *command.argv], cwd=command.folder, env=environment(command),
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, preexec_fn=lambda: _limited(command),
        )  # fmt: skip
    process.returncode = 0  # who waits for it is Running
    return process.pid


def _fork(command: Command, out: Path, err: Path) -> int:
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _inside(command, out, err)
        finally:
            os._exit(code)
    return pid


def _inside(command: Command, out: Path, err: Path) -> int:
    """In the child: what a fresh interpreter would find, then the command, then what an interpreter does at its end."""
    for number, file in ((0, Path(os.devnull)), (1, out), (2, err)):
        opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
    sys.stdin = io.TextIOWrapper(io.FileIO(0), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), encoding="utf-8", errors="surrogateescape")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(environment(command))
    tempfile.tempdir = None
    _limited(command)

    from kgqa.cli import main

    try:
        code = main(list(command.argv))
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


def _limited(command: Command) -> None:
    os.setsid()
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.default_int_handler if kind == signal.SIGINT else signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if command.file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (command.file_limit, command.file_limit))


class _elsewhere:
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

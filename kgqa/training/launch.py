"""Start a trainer's process, alone or several under accelerate, and listen to it until it ends. Nothing heavy here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from kgqa.errors import EngineDied, UsageError
from kgqa.inert import one_line
from kgqa.storage import begun, json_text, replace_file
from kgqa.training.job import LOG, SETTINGS, Job
from kgqa.training.progress import Listener, Said

LISTEN = 0.2  # seconds between two looks at what was said
PATIENCE = 120.0  # seconds that a trainer has to come to its checkpoint when it is interrupted
INTERRUPTED = (130, -signal.SIGINT, -signal.SIGTERM)  # the latter before it has begun to listen
Trainer = subprocess.Popen[bytes]
TOLD = "kgqa: "  # what the line of a trainer begins with that is for a person


def run(job: Job, processes: int, hear: Callable[[Said], None]) -> None:
    """Returns when the training has come to its end.

    Raises:
        UsageError: what the trainer says a person can mend, in its own line; its hours are over.
        EngineDied: it ended without a word.
        KeyboardInterrupt: handed on to the trainer, which has ended at a checkpoint.
    """
    settings = replace_file(job.place / SETTINGS, json_text(job.json()))
    listener = Listener(job.place)
    with _checkpoint_before_the_queue() as trainers:
        started = subprocess.Popen(  # noqa: S603 - ourselves
            command(settings, processes),
            env=environment(processes, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches us alone; what is to be done is handed on once
        )
        trainers(started)
        assert started.stderr is not None
        errors = _Errors(started.stderr, job.place / LOG)
        try:
            while started.poll() is None:
                errors.wait(LISTEN)
                _tell(listener, hear)
        finally:
            if started.poll() is None:  # Ctrl-C, or whatever else ends us
                _interrupt(started)
            _tell(listener, hear)
    errors.finish()
    _judge(started.returncode, errors.lines, job)


def command(settings: Path, processes: int) -> list[str]:
    """The trainer's command line."""
    worker = ["-m", "kgqa.training.worker", str(settings.absolute())]
    if processes == 1:
        return [sys.executable, *worker]
    # --multi_gpu starts plain processes, with or without GPUs; accelerate's --cpu would want MPI
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
    own = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    return [sys.executable, *launcher, *own, *worker]


def environment(processes: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """One process takes one GPU: of several visible ones transformers would take all, in a slower way."""
    own = {"GOMP_SPINCOUNT": "0", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if processes == 1:
        own["CUDA_VISIBLE_DEVICES"] = inherited.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    else:
        if "OMP_NUM_THREADS" not in inherited:
            own["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // processes))
        if sys.platform == "linux":  # all on one machine: gloo would look its name up, and take that address
            own["GLOO_SOCKET_IFNAME"] = inherited.get("GLOO_SOCKET_IFNAME", "lo")
    return {**inherited, **own}


def _tell(listener: Listener, hear: Callable[[Said], None]) -> None:
    for said in listener.heard():
        hear(said)


@contextmanager
def _checkpoint_before_the_queue() -> Iterator[Callable[[Trainer], None]]:
    """In a job of submitit, which at Slurm's SIGUSR2 goes back to the queue: the trainer has its checkpoint first.

    Slurm sends the signal to every process of the job, and kills what is left as soon as it is queued again. What is
    given is told of the trainer; one that is started here does not heed the signal itself.
    """
    requeue = signal.getsignal(signal.SIGUSR2)
    if not callable(requeue) or threading.current_thread() is not threading.main_thread():
        yield lambda _: None
        return

    def trainers(started: Trainer) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            _interrupt(started)
            requeue(number, frame)

        signal.signal(signal.SIGUSR2, handle)

    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        yield trainers
    finally:
        signal.signal(signal.SIGUSR2, requeue)


def _interrupt(started: Trainer) -> None:
    """Once kindly, and where that takes too long or Ctrl-C comes again, for good."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(started.pid, number)
            started.wait(PATIENCE)
        except ProcessLookupError:
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
        return


def _judge(code: int, lines: list[str], job: Job) -> None:
    if code == 0:
        return
    if said := [line for line in lines if line.startswith(TOLD)]:
        raise UsageError(said[-1].removeprefix(TOLD))
    if code in INTERRUPTED:
        raise KeyboardInterrupt
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    killed = "; killed for want of memory, perhaps" if code == -signal.SIGKILL else ""
    last = one_line(lines[-1])[:160] if lines else "it said nothing"
    raise EngineDied(f"the trainer died ({how}{killed}): {last}; what it said is in {job.place / LOG}")


class _Errors:
    """The trainer's standard error: into a file as long as the disk takes it, the last lines kept for what they say."""

    def __init__(self, stream: IO[bytes], log: Path) -> None:
        self._stream, self._log, self._kept = stream, log, deque[str](maxlen=50)
        self._thread = threading.Thread(target=self._read, name="trainer", daemon=True)
        self._thread.start()

    @property
    def lines(self) -> list[str]:
        return list(self._kept)

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def finish(self) -> None:
        self._thread.join()

    def _read(self) -> None:
        full = False
        for line in self._stream:
            text = line.decode("utf-8", "replace").rstrip()
            if text.strip():
                self._kept.append(text)
            try:
                if not full:
                    with begun(self._log).open("ab") as file:
                        file.write(line)
            except OSError:
                full = True

"""Start a trainer's process, alone or several by accelerate, and pass on its events until it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from kgqa.artifacts.schema import check_json
from kgqa.errors import EngineDied, UsageError
from kgqa.training.trainers.task import LOG, SETTINGS, TrainEvent, TrainTask
from kgqa.util.fs import create_private, explain_storage_errors, json_text, replace_file
from kgqa.util.jsonio import decode_json
from kgqa.util.terminal_text import one_line

PATIENCE = 120.0  # seconds for an interrupted worker to write its checkpoint
INTERRUPTED = (130, -signal.SIGINT, -signal.SIGTERM)  # the latter before it has set its signal handlers


def run_worker(task: TrainTask, processes: int, show: Callable[[TrainEvent], None]) -> None:
    """Run a training to its end.

    Raises:
        UsageError: what the worker reports as invalid, or its hours are over.
        EngineDied: the worker crashed.
        KeyboardInterrupt: after the worker has written its checkpoint.
    """
    settings = replace_file(task.path / SETTINGS, json_text(task.json()))
    error = ""
    log = task.path / LOG
    with explain_storage_errors(log), create_private(log).open("ab") as file:
        worker = subprocess.Popen(  # noqa: S603 - ourselves
            command(settings, processes),
            env=environment(processes, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,  # Ctrl-C reaches only this process, which passes it on once
        )
    assert worker.stdout is not None
    try:
        for line in worker.stdout:
            event = check_json(TrainEvent, decode_json(line), "the trainer's output")
            if event.event == "error":
                error = event.text or ""
            else:
                show(event)
        worker.wait()
    finally:
        _stop(worker)
    check_exit(worker.returncode, error, log)


def command(settings: Path, processes: int) -> list[str]:
    """Return the worker's command line."""
    worker = ["-m", "kgqa.training.trainers.worker", str(settings.absolute())]
    if processes == 1:
        return [sys.executable, *worker]
    # --multi_gpu starts plain processes, with or without GPUs; accelerate's --cpu needs MPI
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
    own = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    return [sys.executable, *launcher, *own, *worker]


def environment(processes: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's environment. One process uses one GPU: transformers would use all visible ones, slowly."""
    own = {"GOMP_SPINCOUNT": "0", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if processes == 1:
        own["CUDA_VISIBLE_DEVICES"] = inherited.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    else:
        own["OMP_NUM_THREADS"] = inherited.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
        if sys.platform == "linux":  # all on one machine: gloo would look up its name and use that address
            own["GLOO_SOCKET_IFNAME"] = inherited.get("GLOO_SOCKET_IFNAME", "lo")
    return {**inherited, **own}


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """End a worker that still runs: first with time for a checkpoint, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if worker.poll() is None:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
                os.killpg(worker.pid, number)
                worker.wait(PATIENCE)


def check_exit(code: int, error: str, log: Path) -> None:
    """Raise what a worker's exit code and error mean."""
    if error:
        raise UsageError(error)
    if code in INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        killed = "; perhaps killed because memory was short" if code == -signal.SIGKILL else ""
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no message"]
        raise EngineDied(f"the trainer crashed ({how}{killed}): {one_line(lines[-1])[:160]}; its output is in {log}")

"""Run code in vLLM's own processes, as a plugin of vLLM (see pyproject.toml).

vLLM ends its processes when it is closed. A run that is killed closes nothing, and they would keep their memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from functools import partialmethod

RUN = "KGQA_VLLM_RUN"  # environment variable: process id of the run that started vLLM
LOG = "KGQA_VLLM_LOG"  # environment variable: the file for whatever vLLM's processes say
LOOK = 1.0  # seconds between two looks
MESSAGES = 2  # milliseconds between two looks for a message, where no word of one has come


def enter() -> None:
    """Called by vLLM in each of its processes. Without effect where vLLM serves somebody else."""
    run = os.environ.get(RUN)
    if run is None or int(run) == os.getpid():
        return
    log = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):  # the terminal belongs to the command line
        os.dup2(log, stream)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:  # as it was when it started us: it may be gone already
        threading.Thread(target=_end_with, args=(parent.pid,), name="kgqa", daemon=True).start()
    _sleep_while_waiting()


def _sleep_while_waiting() -> None:
    """On a CPU. vLLM's processes look for each other's messages without a pause, a second long, before they sleep until
    word of one comes: that takes a tenth of two cores from the process that computes (docs/PERFORMANCE.md). Word is
    lost now and then, so they also look by themselves; vLLM's five seconds for that would be five for each token.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    with suppress(ImportError):  # another version of vLLM waits in its own way
        from vllm.distributed.device_communicators import shm_broadcast

        if hasattr(shm_broadcast, "SHM_READER_RECHECK_INTERVAL_MS"):
            shm_broadcast.SHM_READER_RECHECK_INTERVAL_MS = MESSAGES
            shm_broadcast.SpinCondition.__init__ = partialmethod(shm_broadcast.SpinCondition.__init__, busy_loop_s=0)


def _end_with(parent: int) -> None:
    """End this process once its parent has, and with it what vLLM keeps beside it and does not let us enter."""
    import psutil

    beside = [process for process in psutil.Process(parent).children() if process.name().startswith("VLLM::DP")]
    while os.getppid() == parent:
        time.sleep(LOOK)
    for process in beside:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    os.kill(os.getpid(), signal.SIGKILL)

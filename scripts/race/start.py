"""`python -m scripts.race.start`: what it takes until `kgqa run` asks its first call, beside importing its libraries.

CPU is user and system time of the whole process, Python's own start included; the least of several counts, as other
work on the machine can only add. The engine is scripted and leaves when it is asked; what is compiled and the index of
the demo's passages are there already. By the clock it says something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.race.calls import ROOT

LIBRARIES = "import hydra, hydra.compose, omegaconf, pydantic, jinja2, rich.console, filelock, sqlite3, zstandard"
UNTIL_ASKED = """
import os, sys
from kgqa.cli import main
from kgqa.engines.scripted import Scripted
Scripted.answer = lambda self, calls: os._exit(7)
main(sys.argv[1:])
"""
ASKED = 7  # how a process ends that was about to ask
METHODS = ("no_context", "ircot")


class Took(NamedTuple):
    cpu: float  # seconds, as is
    wall: float


def process(program: str, arguments: Sequence[str], folder: Path, code: int) -> Took:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGQA_CACHE": str(folder / "cache")}
    began = time.monotonic()
    running = subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=folder, env=environment)
    _, status, usage = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode != code:
        raise SystemExit(f"kgqa {' '.join(arguments)} ended with {running.returncode}, not at its first call")
    return Took(usage.ru_utime + usage.ru_stime, time.monotonic() - began)


def started(method: str, folder: Path) -> Took:
    """In a run's folder of its own, so that nothing is answered from the last one."""
    chosen = (f"method={method}", "dataset=demo", "limit=1", "engine=scripted", "ranker=lexical")
    out = tempfile.mkdtemp(dir=folder)
    return process(UNTIL_ASKED, ("run", *chosen, f"out={out}/run"), folder, ASKED)


def measured(repeats: int) -> Iterator[str]:
    """Rows of a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for method in METHODS:
            started(method, folder)  # compiles, and builds the index
        taken: dict[str, list[Took]] = {"": [], **{method: [] for method in METHODS}}
        for _ in range(repeats):
            taken[""].append(process(LIBRARIES, (), folder, 0))
            for method in METHODS:
                taken[method].append(started(method, folder))
    libraries = min(each.cpu for each in taken.pop(""))
    for method, each in taken.items():
        cpu, wall = min(took.cpu for took in each), min(took.wall for took in each)
        yield f"start to the first call, {method} | {cpu:.2f} s of CPU, {wall:.2f} s | {cpu / libraries:.2f}× libraries"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    print("| what | measured | against |\n| --- | --- | --- |")
    for row in measured(parser.parse_args().repeats):
        print(f"| {row} |", flush=True)


if __name__ == "__main__":
    main()

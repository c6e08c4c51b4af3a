"""Machines that are not as they should be: full disks, folders that cannot be written, no home, odd terminals.

What cannot be written is told in a line; once it can be, the same command ends with the sound run's predictions.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.attack import judging
from scripts.attack.judging import DIED, FINE, TOLD
from scripts.attack.on_folders import READING
from scripts.attack.on_inputs import whole_run
from scripts.attack.starting import IRCOT, JUDGED, SERVED, SWEEP, TRACE, sweep_predictions
from scripts.attack.trial import QUICK, Skipped, Trial

ROOM = 900  # KiB that the sound runs need at most
WRITING = {"trace": (TRACE, "run"), "ircot": (IRCOT, "run2")}


def full_disks(trial: Trial) -> None:
    """A disk with so much room and no more; then with enough."""
    name, where = trial.dice.choice(("trace", "ircot", "sweep")), trial.dice.choice(("all", "out", "cache"))
    argv, run = WRITING.get(name, (SWEEP, ""))
    small, size = trial.work / "small", 4 * trial.dice.randrange(1, ROOM // 4)
    small.mkdir()
    if where == "out" and run:
        argv = (*argv[:-1], f"out=small/{run}")
    within = "small" if where == "all" else ""
    cache = {"KGQA_CACHE": str(small / "cache")} if where == "cache" else {}
    trial.done.append(f"{size} KiB for {where} of {name}")
    with small_disk(small, size):
        ended = trial.kgqa(*argv, within=within, environment=cache)
        below = "small" if where == "all" or (where == "out" and run) else ""
        if ended.code == FINE and run:
            whole_run(trial, trial.work / below / run)
        subprocess.run(["mount", "-o", "remount,size=32m", str(small)], check=True)
        _again(trial, argv, below, within=within, environment=cache)
        trial.findings.extend(judging.keys_in(small, trial.began - 1))


def file_limits(trial: Trial) -> None:
    """No file may be larger than so much: what a quota does, on any machine."""
    name = trial.dice.choice(("trace", "ircot", "sweep"))
    argv, run = WRITING.get(name, (SWEEP, ""))
    limit = round(2 ** trial.dice.uniform(0, 17))
    trial.done.append(f"files of at most {limit} bytes for {name}")
    ended = trial.kgqa(*argv, file_limit=limit)
    if ended.code == FINE and run:
        whole_run(trial, trial.work / run)
    _again(trial, argv, "")


def _again(trial: Trial, argv: tuple[str, ...], below: str, **how: Any) -> None:
    again = trial.kgqa(*argv, allowed=(FINE,), **how)
    if again.code == FINE:
        files = (
            sweep_predictions(trial.sound) if argv == SWEEP else [f"{argv[-1].rpartition('=')[2]}/predictions.jsonl"]
        )
        for file in files:
            trial.unchanged(file.removeprefix("small/"), "there was no room, and then there was", below=below)


def read_only(trial: Trial) -> None:
    """Everything that is there may be read and nothing may be written."""
    argv = trial.dice.choice((*READING, TRACE, IRCOT, SWEEP, JUDGED, ("index", "build", "dataset=demo", *QUICK)))
    small = trial.work / "small"
    small.mkdir()
    with small_disk(small, 32 << 10):
        for name in ("run", "run2", "outputs"):
            shutil.copytree(trial.sound / name, small / name)
        if trial.dice.random() < 0.5:
            shutil.rmtree(small / "outputs")
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        trial.done.append("a disk that is read-only")
        elsewhere = {"KGQA_CACHE": str(trial.work / "cache")} if trial.dice.random() < 0.5 else {}
        trial.kgqa(*argv, within="small", environment=elsewhere)


HOMES: tuple[Mapping[str, str | None], ...] = (
    {"HOME": None},
    {"HOME": ""},
    {"HOME": "/nowhere/at/all"},
    {"HOME": "/dev/null"},
    {"HOME": "relative"},
    {"HOME": None, "USER": None, "LOGNAME": None, "TMPDIR": "/nowhere/at/all"},
    {"TMPDIR": "/dev/null"},
    {"KGQA_CACHE": "/dev/null"},
    {"KGQA_CACHE": "/proc/1/no"},
    {"KGQA_CACHE": ""},
    {"KGQA_CACHE": "a\nb"},
    {"KGQA_HOME": "/dev/null"},
    {"KGQA_CONF": "/nowhere/at/all"},
    {"KGQA_CONF": "/etc"},
    {"KGQA_DATA": "/dev/null"},
    {"XDG_CACHE_HOME": "/dev/null"},
    {"OPENAI_BASE_URL": "http://user:password@127.0.0.1:9/v1"},
    {"HTTP_PROXY": "no address", "HTTPS_PROXY": "no address"},
    {"SSL_CERT_FILE": "/nowhere/at/all"},
    {"TZ": "Nowhere/At_All"},
    {"COLUMNS": "0"},
    {"COLUMNS": "-5", "LINES": "x"},
)


def environments(trial: Trial) -> None:
    """Variables that name nothing, a file for a folder, or nonsense."""
    own = trial.dice.choice(HOMES)
    trial.done.append(
        ", ".join(f"{name}={value}" if value is not None else f"no {name}" for name, value in own.items())
    )
    commands = (
        TRACE,
        IRCOT,
        JUDGED,
        ("data", "list"),
        ("models",),
        ("doctor",),
        ("report", "run"),
        ("new", "method", "x"),
    )
    trial.take("run", "outputs")
    served_here = ("run", *SERVED, "out=served", "engine.patience=1", "engine.retries=0")
    argv = served_here if "OPENAI_BASE_URL" in own else trial.dice.choice(commands)
    trial.kgqa(*argv, allowed=(FINE, TOLD, DIED), environment=own)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A disk of `size` KiB at `folder`.

    Raises:
        Skipped: this machine lets nobody mount one.
    """
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        raise Skipped("mounting a small disk is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)

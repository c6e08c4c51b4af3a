"""The sound runs that most tries begin with: made once, copied for each try."""

from __future__ import annotations

import random
from pathlib import Path

from scripts.attack import processes
from scripts.attack.trial import QUICK, Trial

TRACE = ("run", "method=trace", "dataset=demo", "limit=2", "experiment=quick", *QUICK, "out=run")
IRCOT = ("run", "method=ircot", "dataset=demo", "limit=2", *QUICK, "out=run2")
SWEEP = ("run", "-m", "method=golden,all_documents", "dataset=demo", "limit=2", *QUICK, "sweep.name=s")
SWEEP_FOLDER = "outputs/sweeps/s"
JUDGED = ("evaluate", "run", "judge=three_way")


def sound_runs(folder: Path) -> Path:
    """A run with triples, one with an index, a sweep, and their call cache; gives the folder that they are in."""
    start = Trial("sound", 0, random.Random(0), folder, folder, real=False)
    for part in (start.terminal, start.work, start.home / "tmp"):
        part.mkdir(parents=True)
    for argv in (TRACE, IRCOT, SWEEP):
        ended = start.kgqa(*argv)
        assert ended.code == 0, ended
    assert not start.findings, start.findings
    return start.work


def warm(folder: Path) -> None:
    folder.mkdir(parents=True)
    processes.warm_up(folder)

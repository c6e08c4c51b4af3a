"""Two and four processes at once: on one call cache, and on one folder.

Nobody pays for a call that another is asking or has asked, and each run that ended well keeps its predictions when it
is given again, also where the server says something else each time.
"""

from __future__ import annotations

import subprocess
import sys
import time

from scripts.attack.judging import FINE, TOLD, Harm
from scripts.attack.processes import Running
from scripts.attack.server_process import ServerProcess
from scripts.attack.starting import served
from scripts.attack.trial import Trial

LOCKED = 2.0  # seconds
HOLDING = """
import sqlite3, sys, time
cache = sqlite3.connect(sys.argv[1], isolation_level=None)
cache.execute("BEGIN " + sys.argv[2])
print("locked", flush=True)
time.sleep(float(sys.argv[3]))
cache.execute("ROLLBACK")
"""


def one_cache(trial: Trial) -> None:
    count, changing = trial.dice.choice((2, 2, 4)), trial.dice.random() < 0.6
    trial.done.append(f"{count} processes on one cache, {'changing' if changing else 'the same'} replies")
    outs = [f"out{number}" for number in range(count)]
    with ServerProcess(changing=changing) as server:
        server.behave("500", "never")
        under_way = [_begun(trial, served(server.url, out)) for out in outs]
        for running in under_way:
            trial.judged(running, (FINE,))
        counts = server.counts()
        if counts.repeated:
            trial.found(Harm.CALLS, f"{counts.repeated} of {counts.answered} calls were paid more than once")
        _same_again(trial, server, outs)
    if not changing:
        for out in outs:
            if (trial.work / out / "predictions.jsonl").read_bytes() != trial.sound_bytes("served/predictions.jsonl"):
                trial.found(Harm.SILENT, f"{out}: other predictions than those of one process alone")


def one_folder(trial: Trial) -> None:
    count = trial.dice.choice((2, 2, 4))
    trial.done.append(f"{count} processes on one folder")
    with ServerProcess(changing=True) as server:
        server.behave("500", "never")
        under_way = [_begun(trial, served(server.url, "out")) for _ in range(count)]
        codes = [trial.judged(running, (FINE, TOLD)).code for running in under_way]
        if FINE not in codes:
            trial.found(Harm.EXIT, f"none of {count} processes did the work: exit codes {codes}")
            return
        counts = server.counts()
        if counts.repeated:
            trial.found(Harm.CALLS, f"{counts.repeated} of {counts.answered} calls were paid more than once")
        _same_again(trial, server, ["out"])


def locked(trial: Trial) -> None:
    """Another program writes to the cache for a while."""
    trial.take("outputs")
    trial.done.append(f"the cache is locked for {LOCKED:.0f} s")
    with ServerProcess() as server:
        server.behave("500", "never")
        kind = trial.dice.choice(("EXCLUSIVE", "IMMEDIATE"))
        words = [sys.executable, "-c", HOLDING, str(trial.work / "outputs/.cache/calls.sqlite"), kind, str(LOCKED)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()  # once it is locked
            ended = trial.kgqa(*served(server.url), allowed=(FINE,))
    if ended.code == FINE:
        trial.unchanged("served/predictions.jsonl", "the cache was locked for a while")


def _same_again(trial: Trial, server: ServerProcess, outs: list[str]) -> None:
    before = {out: (trial.work / out / "predictions.jsonl").read_bytes() for out in outs}
    server.behave("500", "never")
    for out in outs:
        ended = trial.kgqa(*served(server.url, out), allowed=(FINE,))
        if ended.code == FINE and (trial.work / out / "predictions.jsonl").read_bytes() != before[out]:
            trial.found(Harm.SILENT, f"{out}: other predictions when the same command is given again")
    if asked := server.counts().asked:
        trial.found(Harm.CALLS, f"{asked} calls were asked again when the same commands were given again")


def _begun(trial: Trial, argv: tuple[str, ...]) -> Running:
    """At once, or a moment after the one before."""
    time.sleep(trial.dice.choice((0, 0, 0.05, 0.3)))
    return trial.running(*argv)

"""The sound runs that most tries begin with: made once, copied for each try."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import asdict
from pathlib import Path

from scripts.attack import composed, processes
from scripts.attack.server_process import ServerProcess
from scripts.attack.trial import QUICK, Trial

TRACE = ("run", "method=trace", "dataset=demo", "limit=2", "experiment=quick", *QUICK, "out=run")
IRCOT = ("run", "method=ircot", "dataset=demo", "limit=2", *QUICK, "out=run2")
SWEEP = ("run", "-m", "method=golden,all_documents", "dataset=demo", "limit=2", *QUICK, "sweep.name=s")
SWEEP_FOLDER = "outputs/sweeps/s"
JUDGED = ("evaluate", "run", "judge=three_way", "engine=scripted")
CALLS = "calls.jsonl.zst"  # those of the sound runs that ask no server
CONCURRENCY = 4
TIMEOUT = round(min(2 * processes.crowd(), 10.0), 1)  # seconds: a sound server on a busy machine is no fault
SERVED = (
    "method=trace", "dataset=demo", "limit=2", "experiment=quick", "ranker=lexical", "demonstrations_ranker=lexical",
    "engine=openai", "engine.served_model=faulty", "engine.deployment=attacked", f"engine.timeout={TIMEOUT}",
    "engine.retries=3", "engine.backoff=0.05", "engine.patience=4", f"engine.concurrency={CONCURRENCY}",
)  # fmt: skip


def served(url: str, out: str = "served") -> tuple[str, ...]:
    """A run whose model is the server at `url`."""
    return ("run", *SERVED, f"engine.base_url={url}", f"out={out}")


def extraction(url: str) -> tuple[str, ...]:
    """The triples of that run alone."""
    return ("kg", "build", *SERVED, f"engine.base_url={url}")


def sound_runs(folder: Path) -> Path:
    """A run with triples and verdicts, one with an index, one by a server, a sweep, and their call cache; gives the
    folder that they are in. "served.json" there counts what the server was asked."""
    start = Trial("sound", 0, "", random.Random(0), folder, folder, real=False)
    for part in (start.terminal, start.work, start.home / "tmp"):
        part.mkdir(parents=True)
    for argv in (TRACE, IRCOT, SWEEP, JUDGED):
        ended = start.kgqa(*argv)
        assert ended.code == 0, ended
    assert start.kgqa("cache", "export", CALLS).code == 0
    kept = start.work / "outputs"
    shutil.move(kept, folder / "kept")
    with ServerProcess() as server:
        server.behave("500", "never")
        ended = start.kgqa(*served(server.url))
        (start.work / "served.json").write_text(json.dumps(asdict(server.counts())), encoding="utf-8")
    assert ended.code == 0, ended
    shutil.rmtree(kept)
    shutil.move(folder / "kept", kept)
    assert not start.findings, start.findings
    return start.work


def sweep_predictions(sound: Path) -> list[str]:
    """Files of predictions of the sound sweep's cells, by their paths."""
    every = sorted(file.relative_to(sound).as_posix() for file in sound.glob("outputs/**/predictions.jsonl"))
    assert every
    return every


def warm(folder: Path) -> None:
    folder.mkdir(parents=True)
    processes.warm_up(folder)
    composed.handed_on(folder / "composed")

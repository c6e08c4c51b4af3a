"""KILL, TERM and Ctrl-C at any moment of every stage, once or several times; then the command is given again.

It ends with what a run has that nobody stopped, and no call is asked again whose reply was in the cache by then.
"""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from scripts.attack.judging import FINE, INTERRUPTED, TERMINATED, Harm
from scripts.attack.server_process import ServerProcess
from scripts.attack.starting import IRCOT, JUDGED, SWEEP, TRACE, sweep_predictions
from scripts.attack.starting import extraction as extraction_words
from scripts.attack.starting import served as served_words
from scripts.attack.trial import QUICK, Trial

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CODES = {
    signal.SIGKILL: (FINE, -signal.SIGKILL),
    signal.SIGTERM: (FINE, -signal.SIGTERM, TERMINATED),
    signal.SIGINT: (FINE, -signal.SIGINT, INTERRUPTED),
}
STARTING = 1.0  # seconds that a real process takes before its command begins
Words = tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """`killed` is what is stopped, with sound runs `taken` before it; `then` is what must end well; afterwards files
    `same` are those of the sound runs."""

    killed: Words
    then: Words
    taken: Words
    same: Words
    seconds: float  # that `killed` takes by itself


STAGES = {
    "index": Stage(("index", "build", "dataset=demo", *QUICK), IRCOT, (), ("run2/predictions.jsonl",), 0.4),
    "run": Stage(IRCOT, IRCOT, (), ("run2/predictions.jsonl",), 0.8),
    "report": Stage(("report", "run"), ("report", "run"), ("run",), ("run/predictions.jsonl",), 0.3),
    "finished run": Stage(TRACE, TRACE, ("run", "outputs"), ("run/predictions.jsonl",), 0.5),
    "sweep": Stage(SWEEP, SWEEP, (), (), 0.8),
    "judge": Stage(JUDGED, JUDGED, ("run",), ("run/predictions.jsonl", "run/verdicts.jsonl"), 0.5),
}


def stages(trial: Trial) -> None:
    """Those that ask the scripted engine."""
    name = trial.dice.choice(tuple(STAGES))
    stage = STAGES[name]
    trial.take(*stage.taken)
    if name == "judge":
        (trial.work / "run/verdicts.jsonl").unlink(missing_ok=True)
    for _ in range(trial.dice.choice((1, 1, 2, 3))):
        _stopped(trial, stage.killed, stage.seconds, name)
    ended = trial.kgqa(*stage.then, allowed=(FINE,))
    if ended.code != FINE:
        return
    for file in stage.same:
        trial.unchanged(file, f"the {name} was stopped and given again")
    if name == "sweep":
        for file in sweep_predictions(trial.sound):
            trial.unchanged(file, "the sweep was stopped and given again")


def served(trial: Trial) -> None:
    """Triples and answers of a server that counts."""
    with ServerProcess() as server:
        server.behave("500", "never")
        kept = 0
        for _ in range(trial.dice.choice((1, 1, 2))):
            words: Callable[[str], Words] = trial.dice.choice((extraction_words, served_words, served_words))
            _stopped(trial, words(server.url), 1.5, "extraction" if words is extraction_words else "run")
            kept = replies_kept(trial)
        server.behave("500", "never")
        ended = trial.kgqa(*served_words(server.url), allowed=(FINE,))
        asked = server.counts().asked
    if ended.code != FINE:
        return
    trial.unchanged("served/predictions.jsonl", "the run was stopped and given again")
    wanted = json.loads(trial.sound_bytes("served.json"))["asked"] - kept
    if asked != wanted:
        trial.found(Harm.CALLS, f"{kept} replies were kept when it was stopped; {asked} were asked, not {wanted}")


def _stopped(trial: Trial, words: Words, seconds: float, name: str) -> None:
    kind = trial.dice.choice(SIGNALS)
    moment = trial.dice.uniform(0, 1.3 * seconds) + (STARTING if trial.real else 0)
    trial.done.append(f"{kind.name} {moment:.3f} s into the {name}")
    trial.kgqa(*words, allowed=CODES[kind], signalled=(kind, moment))


def replies_kept(trial: Trial) -> int:
    """Of the model, in the cache: they alone count what they used."""
    file = trial.work / "outputs/.cache/calls.sqlite"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as cache:
        try:
            query = "SELECT count(*) FROM calls WHERE instr(value, '\"usage\"')"
            return int(cache.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # not yet created
            return 0

"""A hosted model that misbehaves, and then does not any more.

While it does, a question has the answer that the sound run has, or an error that is told; afterwards the same command
ends with the sound run's predictions, and nothing that was answered well is asked again.
"""

from __future__ import annotations

import json
import random

from kgqa.types import Json
from scripts.attack.faults import FAULTS
from scripts.attack.judging import DIED, FINE, TOLD, Harm
from scripts.attack.server_process import ServerProcess
from scripts.attack.starting import CONCURRENCY, served
from scripts.attack.trial import Trial

WHEN = ("every:3", "every:2", "first", "always", "after:10")
HUGE = ("blanks", "gzip-bomb", "huge-text")  # gigabytes: seconds each


def faults(trial: Trial) -> None:
    """Each fault in turn, in an order that the seed makes."""
    names = sorted(FAULTS)
    random.Random(trial.seed).shuffle(names)
    name = names[trial.number % len(names)]
    when = trial.dice.choice(WHEN[:1] if name in HUGE else WHEN)
    trial.done.append(f"the server: {name}, {when}")
    fault = FAULTS[name]
    with ServerProcess() as server:
        server.behave(name, when)
        first = trial.kgqa(*served(server.url), allowed=(FINE, TOLD, DIED), limit=120.0)
        before = server.counts()
        if fault.outcome != "taken" or fault.same:
            _answered_or_told(trial, ended_well=first.code == FINE)
        server.behave(name, "never")
        again = trial.kgqa(*served(server.url), allowed=(FINE,))
        after = server.counts()
    if again.code == FINE and (fault.outcome != "taken" or fault.same):
        trial.unchanged("served/predictions.jsonl", f"after {name}, when the server is sound again")
    # replies on their way when a run stops were not kept yet
    under_way = CONCURRENCY if first.code != FINE else 0
    asked_again = before.answered + after.answered - _distinct(trial)
    if before.repeated > 0 or (fault.outcome != "taken" and asked_again > under_way):
        trial.found(Harm.CALLS, f"{before} while {name}, {after} afterwards: answered well, asked again")


def _distinct(trial: Trial) -> int:
    """Calls of the sound run."""
    calls: int = json.loads(trial.sound_bytes("served.json"))["asked"]
    return calls


def _answered_or_told(trial: Trial, *, ended_well: bool) -> None:
    """Every question that has no error has the sound run's answer."""
    file = trial.work / "served/predictions.jsonl"
    if not file.is_file():
        if ended_well:
            trial.found(Harm.SILENT, "ended well without predictions")
        return
    sound = _by_id(trial.sound_bytes("served/predictions.jsonl"))
    for id_, prediction in _by_id(file.read_bytes()).items():
        if prediction["error"] is None and prediction["answer"] != sound[id_]["answer"]:
            trial.found(Harm.SILENT, f"{id_}: {prediction['answer']!r} where {sound[id_]['answer']!r} is right")
            return


def _by_id(lines: bytes) -> dict[str, dict[str, Json]]:
    return {row["question_id"]: row for row in map(json.loads, lines.decode().split("\n")[:-1])}

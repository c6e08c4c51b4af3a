"""Folders that kgqa wrote and reads again: of runs, sweeps, triples and indexes, with one file bent, damaged or gone.

Reading commands leave a run's predictions alone. A run that is given again over a bent folder ends with the sound run's
predictions or says what is wrong. So does one over damaged triples or a damaged index, unless somebody wrote other
triples that are as good: bent values are such, damaged bytes are not.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from scripts.attack import bending
from scripts.attack.starting import IRCOT, SWEEP, SWEEP_FOLDER, TRACE
from scripts.attack.trial import QUICK, Trial

READING: tuple[tuple[str, ...], ...] = (
    ("show", "run"),
    ("show", "run", "2hop__demo_01"),
    ("report", "run"),
    ("report", "run", "--format", "md"),
    ("report", "run", "--format", "csv"),
    ("report", "run", "--format", "latex"),
    ("report", "run2", "--against", "run"),
    ("report", "run", "--against", "run2"),
    ("compare", "run", "run2"),
    ("export", "run", "--out", "exported"),
    ("judge", "calibrate", "run"),
    ("runs",),
)
WRITING: tuple[tuple[str, ...], ...] = (("evaluate", "run"), TRACE, TRACE)
OF_SWEEPS: tuple[tuple[str, ...], ...] = (
    SWEEP,
    ("report", SWEEP_FOLDER),
    ("compare", SWEEP_FOLDER),
    ("show", SWEEP_FOLDER),
)


def runs(trial: Trial) -> None:
    trial.take("run", "run2", "outputs")
    target, _ = harmed(trial, trial.work / "run")
    argv = trial.dice.choice((*READING, *WRITING))
    if argv == ("runs",):
        shutil.move(trial.work / "run", trial.work / "outputs/run")
        trial.kgqa(*argv)
        return
    ended = trial.kgqa(*argv)
    if argv == TRACE and ended.code == 0:
        trial.unchanged("run/predictions.jsonl", f"{target} was bent and the run given again")
    elif argv in READING and target != "predictions.jsonl":
        trial.unchanged("run/predictions.jsonl", "a command that only reads")


def sweeps(trial: Trial) -> None:
    trial.take("outputs")
    harmed(trial, trial.work / SWEEP_FOLDER)
    trial.kgqa(*trial.dice.choice(OF_SWEEPS))


def triples(trial: Trial) -> None:
    trial.take("outputs")
    shutil.rmtree(trial.work / "outputs/.cache")
    _, only_bytes = harmed(trial, trial.work / "outputs/kg")
    choice = trial.dice.choice(("run", "run", "offline", "stats", "build"))
    if choice in ("stats", "build"):
        trial.kgqa("kg", choice, "dataset=demo", "limit=2", *QUICK)
        return
    ended = trial.kgqa(*TRACE, *(["kg.offline=true"] if choice == "offline" else []))
    if ended.code == 0 and only_bytes:
        trial.unchanged("run/predictions.jsonl", "triples were damaged")


def indexes(trial: Trial) -> None:
    """Bits, cuts, files that are gone, and files that change places."""
    trial.take("outputs")
    shutil.rmtree(trial.work / "outputs/.cache")
    index = trial.work / "outputs/index"
    if trial.dice.random() < 0.15:
        one, other = trial.dice.sample(_files(index), 2)
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)
        trial.done.append(f"{one.name} and {other.name} swapped")
    else:
        harmed(trial, index, ways=("bits", "bits", "bits", "bytes", "gone", "folder", "bent"))
    choice = trial.dice.choice(("run", "run", "run", "check", "build"))
    if choice != "run":
        trial.kgqa("index", choice, "dataset=demo", *QUICK)
        return
    ended = trial.kgqa(*IRCOT)
    if ended.code == 0:
        trial.unchanged("run2/predictions.jsonl", "the index was damaged")


WAYS = ("bent", "bent", "bent", "bytes", "bytes", "bits", "gone", "folder", "dangling")


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(".lock"))


def harmed(trial: Trial, folder: Path, ways: Sequence[str] = WAYS) -> tuple[str, bool]:
    """One file below `folder`; gives its name, and whether its bytes were damaged as disks do it."""
    file, way = trial.dice.choice(_files(folder)), trial.dice.choice(ways)
    raw, lines = file.read_bytes(), file.suffix == ".jsonl"
    if way == "bent" and file.suffix not in (".json", ".jsonl"):
        way = "bytes"
    what = {"gone": "is gone", "folder": "is a folder", "dangling": "is a dangling link"}.get(way, "")
    if way == "bent":
        changed, what = bending.bent_file(raw, trial.dice, lines)
        file.write_bytes(changed)
    elif way == "bytes":
        changed, what = bending.damaged(raw, trial.dice)
        file.write_bytes(changed)
    elif way == "bits":
        bits = trial.dice.choice((1, 1, 20))
        file.write_bytes(bending.flipped(raw, trial.dice, bits))
        what = f"{bits} bits flipped"
    else:
        file.unlink()
        if way == "folder":
            file.mkdir()
        elif way == "dangling":
            file.symlink_to("/nowhere/at/all")
    trial.done.append(f"{file.relative_to(trial.work)} {what}")
    return file.name, way == "bits"

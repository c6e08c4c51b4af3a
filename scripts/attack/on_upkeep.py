"""`kgqa cache` on damaged caches and damaged files of calls: alone, several at once, stopped, on full disks.

What only reads leaves the cache as it is, or says what it mends; an import brings all of a file or nothing; whatever
was done, a run over the cache ends with the sound run's predictions, since a reply is given again as it was or asked
again.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import zstandard

from kgqa.types import Json
from scripts.attack import bending
from scripts.attack.judging import FINE, TOLD, Harm
from scripts.attack.on_caches import CACHE, harmed
from scripts.attack.on_kills import CODES, SIGNALS, STARTING
from scripts.attack.on_machines import small_disk
from scripts.attack.starting import CALLS, TRACE
from scripts.attack.trial import Trial

Words = tuple[str, ...]
DAMAGED = 1  # exit code of `cache check` where something is
CHECK: Words = ("cache", "check")
MENDED = "a damaged key"  # a run that is replayed for its calls mends one, and says so
REPAIR: Words = ("cache", "check", "--repair")
IMPORT: Words = ("cache", "import", CALLS)
EXPORT: Words = ("cache", "export", "out.jsonl.zst")
READING: tuple[Words, ...] = (
    CHECK,
    ("cache", "stats"),
    ("cache", "stats", "--json"),
    ("cache", "prune", "--unused", "0"),
    ("cache", "prune", "--older-than", "0", "--engine", "scripted"),
    EXPORT,
    (*EXPORT, "--run", "run"),
)
WRITING: tuple[Words, ...] = (
    REPAIR,
    REPAIR,
    IMPORT,
    ("cache", "prune", "--unused", "0", "--yes"),
    ("cache", "prune", "--engine", "scripted", "--yes"),
)
ELSEWHERE = {"KGQA_CACHE": "theirs"}  # a cache of somebody who is sent a file of calls


def commands(trial: Trial) -> None:
    """One of them on a damaged cache."""
    trial.take("run", "outputs", CALLS)
    logged = harmed(trial)
    argv = trial.dice.choice((*READING, *WRITING))
    file = trial.work / CACHE / "calls.sqlite"
    before = file.read_bytes() if file.is_file() else b""
    ended = trial.kgqa(*argv, allowed=(FINE, TOLD, DAMAGED) if "check" in argv else (FINE, TOLD))
    told = MENDED in ended.out + ended.err
    if argv in READING and before and not (logged or told) and file.is_file() and file.read_bytes() != before:
        trial.found(Harm.SILENT, f"kgqa {' '.join(argv)} changed the cache")
    if "--json" in argv and ended.code == FINE:
        _is_json(trial, ended.out)
    if argv == REPAIR and ended.code == FINE:
        trial.kgqa(*CHECK, allowed=(FINE,))
    if argv[:2] == EXPORT[:2] and ended.code == FINE:
        _replayed(trial, EXPORT[-1], (FINE,))
    _sound_again(trial)


def calls(trial: Trial) -> None:
    """A file of calls that was bent or damaged on its way."""
    trial.take("run", "outputs", CALLS)
    file = trial.work / CALLS
    name = trial.dice.choice(tuple(_FILES))
    trial.done.append(name)
    file.write_bytes(_FILES[name](file.read_bytes(), trial))
    _replayed(trial, CALLS, (FINE, TOLD))
    _sound_again(trial)


def together(trial: Trial) -> None:
    """Two to four at once on a sound cache, a run among them."""
    trial.take("run", "outputs", CALLS)
    every: tuple[Words, ...] = ((*TRACE[:-1], "out=other"), *READING[:-1], *WRITING)
    chosen = [trial.dice.choice(every) for _ in range(trial.dice.choice((2, 2, 4)))]
    chosen = [(*argv[:-1], f"{place}.zst") if argv == EXPORT else argv for place, argv in enumerate(chosen)]
    for running in [trial.running(*argv) for argv in chosen]:
        trial.judged(running, (FINE, TOLD))
    trial.kgqa(*CHECK, allowed=(FINE,))
    _sound_again(trial)


def stopped(trial: Trial) -> None:
    """Killed, ended or interrupted in the middle; then given again."""
    trial.take("run", "outputs", CALLS)
    argv = trial.dice.choice((*WRITING, IMPORT, EXPORT))
    where = ELSEWHERE if argv == IMPORT else {}
    for _ in range(trial.dice.choice((1, 2))):
        kind = trial.dice.choice(SIGNALS)
        moment = trial.dice.uniform(0, 0.15) + (STARTING if trial.real else 0)
        trial.done.append(f"{kind.name} {moment:.3f} s into kgqa {' '.join(argv)}")
        allowed = (*CODES[kind], TOLD) if kind is signal.SIGKILL else CODES[kind]
        trial.kgqa(*argv, allowed=allowed, signalled=(kind, moment), environment=where)
    trial.kgqa(*argv, allowed=(FINE,), environment=where)
    trial.kgqa(*CHECK, allowed=(FINE,), environment=where)
    if argv == EXPORT:
        _replayed(trial, EXPORT[-1], (FINE,))
    _sound_again(trial, where)


def full_disk(trial: Trial) -> None:
    """The cache, or the file that is written, on a disk with so much room and no more; then with enough."""
    trial.take("run", "outputs", CALLS)
    small, size = trial.work / "theirs", 4 * trial.dice.randrange(1, 60)
    small.mkdir()
    argv = trial.dice.choice((IMPORT, REPAIR, ("cache", "export", "theirs/out.jsonl.zst")))
    where = {} if "export" in argv else ELSEWHERE
    damaged = trial.work / CACHE / "calls.sqlite"
    if argv == REPAIR:
        _no_values(damaged)
        size += damaged.stat().st_size >> 10
    trial.done.append(f"{size} KiB for kgqa {' '.join(argv)}")
    with small_disk(small, size):
        if argv == REPAIR:
            shutil.copy(damaged, small)
        trial.kgqa(*argv, environment=where)
        subprocess.run(["mount", "-o", "remount,size=32m", str(small)], check=True)
        trial.kgqa(*argv, allowed=(FINE,), environment=where)
        if "export" in argv:
            _replayed(trial, "theirs/out.jsonl.zst", (FINE,), {"KGQA_CACHE": "others"})
        else:
            trial.kgqa(*CHECK, allowed=(FINE,), environment=where)
        _sound_again(trial, where)


def _sound_again(trial: Trial, where: Mapping[str, str] | None = None) -> None:
    """The run that is given again over this cache, in a folder of its own."""
    ended = trial.kgqa(*TRACE[:-1], "out=again", environment=where)
    if ended.code == FINE and (trial.work / "again/predictions.jsonl").read_bytes() != trial.sound_bytes(
        "run/predictions.jsonl"
    ):
        trial.found(Harm.SILENT, "a run over this cache has other predictions than the sound one")


def _replayed(trial: Trial, file: str, allowed: tuple[int, ...], where: Mapping[str, str] = ELSEWHERE) -> None:
    """Somebody else takes the file in, whole or not at all, and runs on it."""
    ended = trial.kgqa("cache", "import", file, allowed=allowed, environment=where)
    kept = _count(trial.work / where["KGQA_CACHE"] / "calls.sqlite")
    if ended.code != FINE and kept:
        trial.found(Harm.SILENT, f"an import that was refused left {kept} calls")
    if ended.code == FINE:
        trial.kgqa(*CHECK, allowed=(FINE,), environment=where)
    _sound_again(trial, where)


def _count(file: Path) -> int:
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as cache:
        try:
            return int(cache.execute("SELECT count(*) FROM calls").fetchone()[0])
        except sqlite3.OperationalError:  # not yet created
            return 0


def _no_values(file: Path) -> None:
    with closing(sqlite3.connect(file)) as cache:
        cache.execute("UPDATE calls SET value = NULL WHERE key < '8'")
        cache.commit()


def _is_json(trial: Trial, said: str) -> None:
    try:
        json.loads(said)
    except ValueError as error:
        trial.found(Harm.SILENT, f"what it printed is not JSON: {error}")


def _packed(change: Callable[[list[Json], Trial], list[Json]]) -> Callable[[bytes, Trial], bytes]:
    """A change of its lines."""

    def changed(raw: bytes, trial: Trial) -> bytes:
        lines = [json.loads(line) for line in _unpacked(raw).split(b"\n") if line]
        return zstandard.compress(bending.as_lines(change(lines, trial)))

    return changed


def _unpacked(raw: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(raw).read()


def _bent(lines: list[Json], trial: Trial) -> list[Json]:
    changed, what = bending.bent(lines, trial.dice)
    trial.done.append(what)
    return changed if isinstance(changed, list) else lines


def _damaged(raw: bytes, trial: Trial) -> bytes:
    changed, what = bending.damaged(raw, trial.dice)
    trial.done.append(what)
    return changed


def _swapped(lines: list[Json], trial: Trial) -> list[Json]:
    """Two replies change places, with their checksums."""
    one, other = trial.dice.sample(lines[1:-1], 2)
    for name in ("value", "checksum"):
        one[name], other[name] = other[name], one[name]
    return lines


_FILES: Mapping[str, Callable[[bytes, Trial], bytes]] = {
    "as it is": lambda raw, _: raw,
    "values bent": _packed(_bent),
    "values bent once more": _packed(_bent),
    "bytes": _damaged,
    "a bit": lambda raw, trial: bending.flipped(raw, trial.dice, 1),
    "lines damaged, packed again": lambda raw, trial: zstandard.compress(_damaged(_unpacked(raw), trial)),
    "a bit of its lines": lambda raw, trial: zstandard.compress(bending.flipped(_unpacked(raw), trial.dice, 1)),
    "cut short": lambda raw, trial: raw[: trial.dice.randrange(len(raw))],
    "two replies swapped": _packed(_swapped),
    "a line twice": _packed(lambda lines, trial: [*lines[:-1], trial.dice.choice(lines[1:-1]), lines[-1]]),
    "without its last line": _packed(lambda lines, _: lines[:-1]),
    "without its first line": _packed(lambda lines, _: lines[1:]),
    "a later form": _packed(lambda lines, _: [{"format": "kgqa calls 99"}, *lines[1:]]),
    "two of them": lambda raw, _: raw + raw,
    "not packed": lambda raw, _: _unpacked(raw),
    "a bomb": lambda *_: zstandard.compress(b"0" * (32 << 20)) * 64,
}

"""Runs the attacks on all cores and prints what became of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from scripts.attack import starting, trial
from scripts.attack.judging import Harm
from scripts.attack.trial import Attack

REAL = 0.04  # of the tries take a real `python -m kgqa` at once
TELL = 30.0  # seconds between two lines of progress
COLUMNS = ("tried", *(harm.value for harm in Harm), "skipped")


@dataclass(frozen=True)
class Plan:
    """`size` scales how often each attack is tried; `only` keeps one try of each of these attacks."""

    attacks: Sequence[Attack]
    out: Path
    seed: str
    size: float
    workers: int
    number: int | None = None

    def tries(self) -> list[tuple[Attack, int]]:
        """The longest first, so that no core waits for them at the end."""
        every = [
            (attack, number)
            for attack in self.attacks
            for number in (range(max(1, round(attack.tries * self.size))) if self.number is None else [self.number])
        ]
        return sorted(every, key=lambda each: -each[0].slow)


def attack(plan: Plan) -> Counter[tuple[str, str]]:
    """Do all of it; counts by attack and column. What failed is in plan.out / "failures.jsonl"."""
    shutil.rmtree(plan.out, ignore_errors=True)
    plan.out.mkdir(parents=True)
    starting.warm(plan.out / "warm")
    sound = starting.sound_runs(plan.out / "sound")
    forking = multiprocessing.get_context("fork")
    counter = forking.Value("i", 0)
    workers = [forking.Process(target=_work, args=(plan, sound, counter, number)) for number in range(plan.workers)]
    for worker in workers:
        worker.start()
    _watch(plan, workers)
    counts = Counter[tuple[str, str]]()
    for file in sorted(plan.out.glob("worker-*.jsonl")):
        for line in _lines(file):
            counts.update((str(line["attack"]), column) for column in line["columns"])
    with (plan.out / "failures.jsonl").open("w", encoding="utf-8") as failures:
        for file in sorted(plan.out.glob("failures-*.jsonl")):
            failures.write(file.read_text(encoding="utf-8"))
            file.unlink()
    return counts


def lost(plan: Plan, counts: Counter[tuple[str, str]]) -> int:
    """Tries in which the attack itself failed; what it was stands on the terminal."""
    return len(plan.tries()) - sum(counts[each.name, "tried"] + counts[each.name, "skipped"] for each in plan.attacks)


def _watch(plan: Plan, workers: Sequence[multiprocessing.process.BaseProcess]) -> None:
    began, told, total = time.monotonic(), 0.0, len(plan.tries())
    while any(worker.is_alive() for worker in workers):
        for worker in workers:
            worker.join(1 / len(workers))
        spent = time.monotonic() - began
        if spent - told >= TELL:
            told = spent
            done = sum(len(list(_lines(file))) for file in plan.out.glob("worker-*.jsonl"))
            print(f"{done} of {total} tries, {spent:.0f} s", flush=True)


def _work(plan: Plan, sound: Path, counter: Synchronized[int], worker: int) -> None:
    tries, results = plan.tries(), plan.out / f"worker-{worker}.jsonl"
    while True:
        with counter.get_lock():
            place, counter.value = counter.value, counter.value + 1
        if place >= len(tries):
            return
        chosen, number = tries[place]
        try:
            columns = _one(plan, chosen, number, sound, worker)
        except Exception:  # noqa: BLE001 - the attack itself is at fault; the others go on
            print(
                f"{chosen.name} {number}: the attack itself failed", traceback.format_exc(), file=sys.stderr, flush=True
            )
            continue
        _append(results, json.dumps({"attack": chosen.name, "number": number, "columns": columns}))


def _one(plan: Plan, chosen: Attack, number: int, sound: Path, worker: int) -> list[str]:
    """The columns in which this try counts. One that finds something in a fork is tried again in a real process, and
    what that finds counts."""
    folder = plan.out / f"try-{worker}"
    real = random.Random(f"real/{chosen.name}/{number}/{plan.seed}").random() < REAL or plan.number is not None
    try:
        _remove(folder)
        done = trial.tried(chosen, number, plan.seed, folder, sound, real=real)
        if done.findings and not real:
            _remove(folder)
            done = trial.tried(chosen, number, plan.seed, folder, sound, real=True)
    except trial.Skipped as why:
        _append(plan.out / f"skipped-{worker}.txt", f"{chosen.name}: {why}")
        return ["skipped"]
    finally:
        _open_up(folder)
    if done.findings:
        kept = plan.out / "failures" / f"{chosen.name.replace(' ', '-')}-{number}"
        kept.parent.mkdir(exist_ok=True)
        shutil.move(folder, kept)
        repeat = f'make attack ONLY="{chosen.name}" SEED={plan.seed} TRY={number}'
        _append(plan.out / f"failures-{worker}.jsonl", trial.record(done, kept, repeat))
    return ["tried", *sorted({finding.harm.value for finding in done.findings})]


def table(plan: Plan, counts: Counter[tuple[str, str]]) -> Iterator[str]:
    """Markdown, a row an attack, a column a harm."""
    yield "| attack | " + " | ".join(COLUMNS) + " |"
    yield "|---|" + "---:|" * len(COLUMNS)
    for each in plan.attacks:
        yield f"| {each.name} | " + " | ".join(f"{counts[each.name, column]:,}" for column in COLUMNS) + " |"
    total = [sum(counts[each.name, column] for each in plan.attacks) for column in COLUMNS]
    yield "| **all** | " + " | ".join(f"{count:,}" for count in total) + " |"


def _open_up(folder: Path) -> None:
    """Folders that a try made read-only can be removed again."""
    for below, _, _ in os.walk(folder):
        os.chmod(below, 0o755)


def _remove(folder: Path) -> None:
    if folder.exists():
        _open_up(folder)
        shutil.rmtree(folder)


def _append(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")


def _lines(file: Path) -> Iterator[dict[str, list[str]]]:
    return (json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line)

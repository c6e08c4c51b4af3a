"""Runs the attacks on all cores and prints what became of them."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from scripts.attack import starting, trial
from scripts.attack.judging import Harm
from scripts.attack.trial import Attack

REAL = 0.02  # of the tries take a real `python -m kgqa` at once
TELL = 30.0  # seconds between two lines of progress
COLUMNS = ("tried", *(harm.value for harm in Harm), "skipped")


@dataclass(frozen=True)
class Plan:
    """`size` scales how often each attack is tried; `number`: this try alone of each; `resumed`: what `out` has of
    the same seed already, and found nothing, is not tried again."""

    attacks: Sequence[Attack]
    out: Path
    seed: str
    size: float
    workers: int
    number: int | None = None
    resumed: bool = False

    def tries(self) -> list[tuple[Attack, int]]:
        """Those of SIZE=1 first, then what SIZE=2 adds, and so on: whatever ends the attack, it was even so far. Within
        that the longest first, so that no core waits for them at the end."""
        every = [
            (attack, number)
            for attack in self.attacks
            for number in (range(max(1, round(attack.tries * self.size))) if self.number is None else [self.number])
        ]
        return sorted(every, key=lambda each: (each[1] // each[0].tries, -each[0].slow))


def attack(plan: Plan) -> Counter[tuple[str, str]]:
    """Do all of it, or what a Ctrl-C leaves of it; counts by attack and column. What failed is in plan.out /
    "failures.jsonl"."""
    if not plan.resumed:
        shutil.rmtree(plan.out, ignore_errors=True)
    plan.out.mkdir(parents=True, exist_ok=True)
    _forget_failures(plan.out)
    for part in ("warm", "sound"):
        _remove(plan.out / part)
    starting.warm(plan.out / "warm")
    sound = starting.sound_runs(plan.out / "sound")
    done = {(line["attack"], line["number"]) for line in _results(plan)}
    todo = [(chosen, number) for chosen, number in plan.tries() if (chosen.name, number) not in done]
    forking = multiprocessing.get_context("fork")
    counter = forking.Value("i", 0)
    workers = [forking.Process(target=_work, args=(plan, todo, sound, counter, n)) for n in range(plan.workers)]
    gc.freeze()  # the collections of a fork leave what it shares with the others alone
    for worker in workers:
        worker.start()

    def stop(*_: object) -> None:
        print("stopping; --resume goes on from here", flush=True)
        counter.value = len(todo)

    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, stop)
    _watch(plan, workers)
    counts = Counter[tuple[str, str]]()
    for line in _results(plan):
        counts.update((line["attack"], column) for column in line["columns"])
    return counts


def _forget_failures(out: Path) -> None:
    """They are tried again: what they found may be mended."""
    (out / "failures.jsonl").write_text("", encoding="utf-8")
    for file in out.glob("worker-*.jsonl"):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(line for line in lines if len(json.loads(line)["columns"]) == 1), encoding="utf-8")


def lost(plan: Plan, counts: Counter[tuple[str, str]]) -> int:
    """Tries that were not made: those before which it was stopped, and those in which the attack itself failed, which
    stand on the terminal."""
    return len(plan.tries()) - sum(counts[each.name, "tried"] + counts[each.name, "skipped"] for each in plan.attacks)


def costs(plan: Plan) -> str:
    """Seconds of a processor that a try took, by attack."""
    spent, tried = Counter[str](), Counter[str]()
    for line in _results(plan):
        spent[line["attack"]] += line["processor"]
        tried[line["attack"]] += 1
    return ", ".join(f"{name} {spent[name] / count:.2f}" for name, count in tried.items())


def _watch(plan: Plan, workers: Sequence[multiprocessing.process.BaseProcess]) -> None:
    began, told, total = time.monotonic(), 0.0, len(plan.tries())
    while any(worker.is_alive() for worker in workers):
        for worker in workers:
            worker.join(1 / len(workers))
        spent = time.monotonic() - began
        if spent - told >= TELL:
            told = spent
            print(f"{len(list(_results(plan)))} of {total} tries, {spent:.0f} s", flush=True)


def _work(
    plan: Plan, tries: Sequence[tuple[Attack, int]], sound: Path, counter: Synchronized[int], worker: int
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the try under way is finished
    results = plan.out / f"worker-{worker}.jsonl"
    while True:
        with counter.get_lock():
            place, counter.value = counter.value, counter.value + 1
        if place >= len(tries):
            return
        chosen, number = tries[place]
        began, used = time.monotonic(), _processor_seconds()
        try:
            columns = _one(plan, chosen, number, sound, worker)
        except Exception:  # noqa: BLE001 - the attack itself is at fault; the others go on
            print(
                f"{chosen.name} {number}: the attack itself failed", traceback.format_exc(), file=sys.stderr, flush=True
            )
            continue
        spent = {"seconds": time.monotonic() - began, "processor": _processor_seconds() - used}
        spent = {name: round(value, 3) for name, value in spent.items()}
        _append(
            results,
            json.dumps({"seed": plan.seed, "attack": chosen.name, "number": number, "columns": columns, **spent}),
        )


def _processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in every)


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
        _remove(kept)
        kept.parent.mkdir(exist_ok=True)
        shutil.move(folder, kept)
        repeat = f'make attack ONLY="{chosen.name}" SEED={plan.seed} TRY={number}'
        _append(plan.out / "failures.jsonl", trial.record(done, kept, repeat))
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


def _results(plan: Plan) -> Iterator[dict[str, Any]]:
    """What became of each try that was made for this plan."""
    wanted = {(chosen.name, number) for chosen, number in plan.tries()}
    for file in sorted(plan.out.glob("worker-*.jsonl")):
        for line in map(json.loads, file.read_text(encoding="utf-8").split("\n")[:-1]):
            if line["seed"] == plan.seed and (line["attack"], line["number"]) in wanted:
                yield line

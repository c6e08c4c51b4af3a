"""`make bench`: what the runner itself costs, each figure beside a reference measured in the same run.

Prints a Markdown table; docs/PERFORMANCE.md keeps dated copies. Figures of a busy machine are not comparable between
runs, so read the ratios.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.calls import Program, gather
from kgqa.runtime.cache import CallCache
from kgqa.runtime.requests import Done
from kgqa.runtime.scheduler import Scheduler
from kgqa.runtime.services import Service, Streams, Waves
from scripts.bench_engines import simulated
from tests.engines_for_tests import Batches, Slots, ask

PROMPT = "a prompt of about the usual length " * 100  # 3,500 characters


async def chain(name: str, steps: int) -> int:
    for step in range(steps):
        await ask(f"{PROMPT}{name} {step}")
    return steps


async def beams(name: str, steps: int) -> int:
    for step in range(steps):
        await gather(*(ask(f"{PROMPT}{name} {step} {beam}") for beam in range(5)))
    return steps


def programs(count: int, steps: int) -> Iterator[tuple[str, Program[int]]]:
    return ((f"q{number}", chain(f"q{number}", steps)) for number in range(count))


def drive(
    make: Callable[..., Service], items: Iterator[tuple[str, Program[int]]], width: int, streaming: bool
) -> float:
    """CPU seconds of this process for running all programs, cache included."""
    with tempfile.TemporaryDirectory() as folder:
        done, cache = Done(), CallCache(Path(folder))
        service = make(done, cache)
        scheduler = Scheduler(lambda _: service, done, width=width)
        started = time.process_time()
        for _ in scheduler.run(items, streaming=streaming):
            pass
        spent = time.process_time() - started
        scheduler.stop()
        cache.close()
    return spent


def overhead(calls: int) -> Iterator[tuple[str, str, str]]:
    """CPU time per call with an engine that answers at once; the reference is making the prompts and nothing else."""
    steps = 10

    def bare() -> float:
        made: list[object] = []
        started = time.process_time()
        for number in range(calls // steps):
            for step in range(steps):
                made.append(ask(f"{PROMPT}q{number} {step}"))
                made.clear()
        return time.process_time() - started

    reference = bare()
    for width in (100, 1_000):
        spent = drive(lambda d, c: Waves(d, c, Batches(size=64)), programs(calls // steps, steps), width, False)
        per_call = 1000 * spent / calls
        yield (
            f"runner CPU per call, batches of 64, {width} questions at once",
            f"{per_call:.3f} ms",
            f"{spent / reference:.0f}×",
        )
    spent = drive(lambda d, c: Streams(d, c, Slots(256, 0.0)), programs(calls // steps, steps), 256, True)
    yield "runner CPU per call, streaming", f"{1000 * spent / calls:.3f} ms", f"{spent / reference:.0f}×"


def widths(steps: int) -> Iterator[tuple[str, str, str]]:
    """CPU time per call and memory per question stay the same however many questions run at once."""
    first = 0.0
    for width in (100, 1_000, 10_000):
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        spent = 1000 * drive(lambda d, c: Streams(d, c, Slots(256, 0.0)), programs(width, steps), width, True)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        per_call = spent / (width * steps)
        first = first or per_call
        yield (
            f"runner CPU per call, streaming, {width:,} questions at once",
            f"{per_call:.3f} ms",
            f"{per_call / first:.2f}×",
        )
        yield (
            f"peak memory more than before, {width:,} questions at once",
            f"{grown / 1024:.0f} MiB",
            f"{grown / width:.1f} KiB a question",
        )


def memory() -> Iterator[tuple[str, str, str]]:
    """Peak memory does not grow with the number of questions, only with the width."""
    previous = 0
    for questions in (100, 1_000, 10_000):
        gc.collect()
        drive(lambda d, c: Waves(d, c, Batches(size=64)), programs(questions, 2), 64, False)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        ratio = f"{peak / previous:.2f}×" if previous else "1"
        yield f"peak memory, {questions:,} questions, width 64", f"{peak} MiB", ratio
        previous = peak


def occupancy() -> Iterator[tuple[str, str, str]]:
    """How full a simulated server is, and how much faster that is than one question at a time."""
    for slots, seconds in ((64, 0.1), (256, 0.5)):
        engine = Slots(slots, seconds)
        started = time.monotonic()
        items = ((f"q{number}", beams(f"q{number}", 3)) for number in range(500))
        drive(lambda d, c, e=engine: Streams(d, c, e), items, 500, True)
        took = time.monotonic() - started
        alone = 500 * 3 * seconds  # each step's five calls together, one question after the other
        ideal = max(500 * 15 * seconds / slots, 3 * seconds)
        yield (
            f"{slots} simulated slots of {seconds} s, 500 questions of 3 × 5 calls",
            f"{ideal / took:.2f} of ideal",
            f"{alone / took:.1f}×",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    calls = parser.parse_args().calls
    print("| what | measured | against the reference |\n| --- | --- | --- |")
    for rows in (memory(), widths(steps=5), overhead(calls), occupancy(), simulated()):
        for what, measured, ratio in rows:
            print(f"| {what} | {measured} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()

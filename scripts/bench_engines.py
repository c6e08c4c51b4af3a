"""How near a run comes to what its engine can do: rows for `make bench`, and for vLLM itself when run on its own.

Efficiency is the time to replay the very same calls as one open batch on the same engine, divided by the time of the
run. The batch knows all calls beforehand; the run has to wait for each reply before it knows the next call.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, NamedTuple
from zlib import crc32

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.calls import Call, Choose, CountTokens, Generate, ModelCall, ModelReply, Program, Search, gather, labels
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.runtime.cache import CallCache
from kgqa.runtime.requests import Done
from kgqa.runtime.scheduler import Scheduler
from kgqa.runtime.services import Instant, Service, Streams, Worker
from kgqa.types import Message, Passage, Prompt, Question
from tests.simulated_server import Rates, SimulatedServer

Row = tuple[str, str, str]  # what, measured, against the reference
SEARCH = 0.004  # seconds a search takes: BM25 over a few million passages
INSTRUCTION = "Answer the question with what the passages say, one thought after the other, as the examples do. "
PASSAGE = "It lies on a river, has a market and an old tower, and was first named in a letter of the year 1204. "


class Size(NamedTuple):
    """How much programs ask, so that they suit the engine they run on."""

    shared: int  # instruction and demonstrations, in times 95 characters
    passages: int  # new in each step, in times 100 characters
    tokens: int  # of a thought, at most
    steps: int  # at most; a question needs two or more
    beams: int


class Timed(NamedTuple):
    seconds: float
    served: float  # seconds in service of all calls together, waiting excluded


class Run(NamedTuple):
    timed: Timed
    made: Sequence[tuple[int, Call[Any]]]  # question after question; each with the step of its question it was made in

    @property
    def calls(self) -> list[ModelCall]:
        return [call for _, call in self.made if isinstance(call, Generate | Choose)]


@dataclass(frozen=True)
class Bench:
    """An engine and what it is to be asked; `forget` empties its prefix cache."""

    engine: Any
    forget: Callable[[], None]
    kind: str
    size: Size
    questions: int

    def run(self, questions: int, width: int) -> Run:
        """Through the scheduler with an empty call cache, as a run does it."""
        self.forget()
        with tempfile.TemporaryDirectory() as folder:
            done, cache = Done(), CallCache(Path(folder))
            streams, searches = Streams(done, cache, self.engine), Worker(done, cache, {}, search)
            counter = Instant(done, lambda call: self.engine.count_tokens(call.text))
            others: dict[type, Service] = {Search: searches, CountTokens: counter}
            scheduler = Scheduler(lambda call: others.get(type(call), streams), done, width=width)
            names = [f"question {number}" for number in range(questions)]
            items = ((name, (PROGRAMS | METHODS)[self.kind](name, self.size)) for name in names)
            started = time.monotonic()
            finished = list(scheduler.run(items, streaming=True))
            seconds = time.monotonic() - started
            searches.stop(1)
            cache.close()
        records = [record for each in finished for record in each.records]
        assert not any(isinstance(each.result, Exception) for each in finished), finished[0].result
        served = sum(record.reply.usage.seconds for record in records if isinstance(record.call, Generate | Choose))
        return Run(Timed(seconds, served), [(record.path[0], record.call) for record in records])

    def replay(self, calls: Sequence[ModelCall]) -> Timed:
        """The calls as one open batch; the engine gets them all at once."""
        done: SimpleQueue[Any] = SimpleQueue()
        started = time.monotonic()
        for call in calls:
            self.engine.submit(call, done.put)
        replies = [done.get() for _ in calls]
        return Timed(time.monotonic() - started, sum(reply.usage.seconds for reply in replies))

    def lockstep(self, run: Run) -> float:
        """Seconds when all questions take each step together: all searches, then all calls of the model."""
        self.forget()
        seconds = 0.0
        for step in range(1 + max(at for at, _ in run.made)):
            calls = [call for at, call in run.made if at == step]
            seconds += SEARCH * sum(isinstance(call, Search) for call in calls)
            seconds += self.replay([call for call in calls if isinstance(call, Generate | Choose)]).seconds
        return seconds

    def rows(self, pairs: int) -> Iterator[Row]:
        """Efficiency over so many pairs of run and replay, and the factors against lockstep and one at a time."""
        runs, batches = [], []
        for _ in range(pairs):
            runs.append(self.run(self.questions, self.questions))
            self.forget()
            batches.append(self.replay(runs[-1].calls))
        calls, seconds = len(runs[0].calls), sum(run.timed.seconds for run in runs) / pairs
        name = f"{self.kind}-like, {self.questions} questions, {calls:,} calls"
        yield f"{name}: efficiency", *efficiency([run.timed for run in runs], batches)
        factor = self.lockstep(runs[0]) / seconds
        yield f"{name}: against lockstep over all questions", f"{calls / seconds:.1f} calls/s", f"{factor:.2f}×"
        alone = self.run(max(3, self.questions // 50), width=1)
        factor = alone.timed.seconds * calls / len(alone.calls) / seconds
        yield f"{name}: against one question at a time", f"{calls / seconds:.1f} calls/s", f"{factor:.1f}×"

    def occupancy(self, slots: int) -> Iterator[Row]:
        """Calls in flight, at most the slots: on average over the first half of the time, and over all of it, with
        the end, where the last questions have one step after the other left and nothing to fill the slots with."""
        for width in (64, self.questions):
            flight = InFlight(self.engine)
            run = replace(self, engine=flight).run(self.questions, width)
            name = f"{self.kind}, {self.questions} questions, {width} at once, {len(run.calls):,} calls"
            half, whole = (flight.mean(slots, share) for share in (0.5, 1.0))
            yield f"{name}: slots in use", f"{half:.1f} in the first half", f"{whole:.1f} in all"


class InFlight:
    """An engine, and how many calls it had at each moment."""

    def __init__(self, engine: Any) -> None:
        self._engine, self._now, self.changes = engine, 0, [(time.monotonic(), 0)]
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, call: ModelCall, deliver: Callable[[ModelReply | Exception], None]) -> None:
        def delivered(reply: ModelReply | Exception) -> None:
            self._change(-1)
            deliver(reply)

        self._change(1)
        self._engine.submit(call, delivered)

    def _change(self, by: int) -> None:
        with self._lock:
            self._now += by
            self.changes.append((time.monotonic(), self._now))

    def mean(self, slots: int, share: float) -> float:
        """Over the first `share` of the time from the first call to the last reply."""
        (first, _), *_ = changes = self.changes[1:]
        end = first + share * (changes[-1][0] - first)
        spans = ((min(after, end) - at) * min(slots, now) for (at, now), (after, _) in pairwise(changes) if at < end)
        return sum(spans) / (end - first)


def efficiency(runs: Sequence[Timed], batches: Sequence[Timed]) -> tuple[str, str]:
    """Pooled, with the spread over pairs; and how many calls were in service on average, which noise moves less."""
    pooled = sum(batch.seconds for batch in batches) / sum(run.seconds for run in runs)
    each = sorted(batch.seconds / run.seconds for run, batch in zip(runs, batches, strict=True))
    busy, full = (sum(one.served for one in many) / sum(one.seconds for one in many) for many in (runs, batches))
    return f"{pooled:.2f} ({each[0]:.2f}–{each[-1]:.2f})", f"{busy:.1f} calls in service, batch {full:.1f}"


async def ircot_like(name: str, size: Size) -> None:
    """One thought after the other; each step searches and adds passages and the last thought to the prompt."""
    passages = thoughts = ""
    for step in range(2 + crc32(name.encode()) % (size.steps - 1)):
        await Search(f"{name} {step}", size.passages)
        passages += "".join(f"{name} passage {step} {number}: {PASSAGE}" for number in range(size.passages))
        text = f"{INSTRUCTION * size.shared}{passages}{name}?\n{thoughts}{step}"
        thoughts += (await Generate(prompt(text), size.tokens)).text


async def trace_like(name: str, size: Size) -> None:
    """Beams that choose side by side between candidates of their own, then one short answer."""
    shared = f"{INSTRUCTION * size.shared}{name}? "
    for step in range(size.steps - 1):
        chains = range(size.beams if step else 1)
        candidates = [" ".join(f"{step} {chain} {PASSAGE}" for _ in range(size.passages)) for chain in chains]
        await gather(*(Choose(prompt(f"{shared}{candidate}"), labels(21)) for candidate in candidates))
    await Generate(prompt(f"{shared}in short?"), 10)


async def knowtrace(name: str, _: Size) -> None:
    """The method itself; what it is told comes from `exploring`."""
    await the_method("knowtrace").answer(Question(name, f"{name}?", ("",)))


@cache
def the_method(name: str) -> Any:
    return build(compose([f"method={name}"])["method"], "method")


def exploring(call: ModelCall, _: int) -> str:
    """Replies to KnowTrace's prompts: one to three iterations, in each one to three pairs, of each two triples."""
    asked = call.prompt.messages[0].content.rpartition("\n\n")[2]  # behind the examples
    lines, name = asked.splitlines(), asked[-200:]
    if call.prompt.name == "knowtrace/complete":
        return "".join(f"<{crc32(name.encode())}; {number}; {name[-9:].strip()}>\n" for number in range(2))
    known, chance = sum(line.startswith("<") for line in lines), crc32(lines[0].encode())
    if known and known // 2 >= chance % 6:
        return "Yes\nThought: it says so.\nAnswer: seen"
    return "No\nExplore:\n" + "".join(f"- entity {known} {chance} | relation {n}\n" for n in range(1 + chance % 3))


def prompt(text: str) -> Prompt:
    return Prompt("bench", (Message("user", text),))


Make = Callable[[str, Size], Program[None]]
PROGRAMS: dict[str, Make] = {"ircot": ircot_like, "trace": trace_like}
METHODS: dict[str, Make] = {"knowtrace": knowtrace}


def search(calls: Sequence[Search]) -> list[tuple[Passage, ...]]:
    time.sleep(SEARCH * len(calls))
    return [(Passage("", "", PASSAGE),)] * len(calls)


def simulated() -> Iterator[Row]:
    size = Size(shared=40, passages=12, tokens=60, steps=4, beams=3)
    for slots in (64, 256):
        for kind in PROGRAMS:
            server = SimulatedServer(slots, Rates())
            for what, measured, against in Bench(server, server.forget, kind, size, 500).rows(pairs=2):
                yield f"{slots} simulated slots, {what}", measured, against
            server.close()
    server = SimulatedServer(64, Rates(), exploring)
    for what, measured, against in Bench(server, server.forget, "knowtrace", size, 100).occupancy(64):
        yield f"64 simulated slots, {what}", measured, against
    server.close()


def real() -> Iterator[Row]:
    """SmolLM2 on vLLM, bfloat16; starts it once."""
    slots = 8  # so that 30 questions are several times as many
    config = compose(["engine=vllm", f"engine.slots={slots}", "engine.cache=2", "engine.context=4096"])
    engine = build(config["engine"], "engine", model=build(config["model"], "model"))

    size = Size(shared=8, passages=3, tokens=24, steps=3, beams=3)
    for kind in PROGRAMS:
        bench = Bench(engine, lambda: forget_prefixes(engine), kind, size, 30)
        bench.run(1, 1)  # starts it
        for what, measured, against in bench.rows(pairs=3):
            yield f"vLLM, {slots} slots, {what}", measured, against
    engine.close()


def forget_prefixes(engine: Any) -> None:
    """Empty vLLM's prefix cache; other engines are left as they are."""
    loop: Any = getattr(engine, "_loop", None)
    if loop is not None and loop._engine is not None:  # else nothing was asked yet
        assert asyncio.run_coroutine_threadsafe(loop._engine.reset_prefix_cache(), loop._loop).result(60)


def main() -> None:
    print("| what | measured | against the reference |\n| --- | --- | --- |")
    for rows in (simulated, *((real,) if find_spec("vllm") else ())):
        if sys.argv[1:] in ([], [rows.__name__]):
            for what, measured, ratio in rows():
                print(f"| {what} | {measured} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()

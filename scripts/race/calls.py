"""`python -m scripts.race.calls`: what a call over HTTP costs kgqa, beside plain loops that ask the same calls.

IRCoT answers questions of 20 passages at `scripts.race.endpoint`, which replies at once. CPU is user and system time
of the process; what starting costs is left out by running few questions and many and taking the difference. The loops
are `asyncio` with httpx2 and, where it is installed, aiohttp. They are repeated in turn, and the least repeat counts,
as other work on the machine can only add.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from kgqa.artefacts.trace import read_trace
from scripts.bench_memory import write_questions
from scripts.race.endpoint import MODEL
from scripts.used import used

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 64  # calls under way
LOOPS = ("httpx2", "aiohttp")
Bodies = list[dict[str, Any]]  # of requests


class Cost(NamedTuple):
    """Of one run; `cpu` and `wall` in seconds."""

    calls: int
    cpu: float
    wall: float
    mebibytes: float  # at its peak

    def milliseconds(self, started: Cost) -> float:
        """Of CPU for each call, without those of the smaller run."""
        return 1000 * (self.cpu - started.cpu) / (self.calls - started.calls)


@contextmanager
def endpoint() -> Iterator[str]:
    """Its address, while it runs in a process of its own."""
    command = [sys.executable, "-m", "scripts.race.endpoint"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def answered(url: str, file: Path, folder: Path) -> tuple[Cost, Bodies]:
    """By kgqa, in a folder of its own; and what it asked."""
    run = folder / "run"
    quick = ("ranker=lexical", "demonstrations_ranker=lexical", "model=gpt_4o_mini", f"engine.served_model={MODEL}")
    asking = ("engine=openai", f"engine.base_url={url}", f"engine.concurrency={AT_ONCE}")
    chosen = ("method=ircot", "dataset=musique", f"dataset.path={file}", f"out={run}")
    command = [sys.executable, "-m", "kgqa", "run", *chosen, *asking, *quick]
    taken = used(command, folder, {"PYTHONPATH": str(ROOT), "KGQA_CACHE": str(folder / "cache")})
    calls = [call.request for question in read_trace(run) for call in question.calls if call.kind == "generate"]
    bodies = [
        {"model": MODEL, "prompt": call["prompt"]["messages"][0][1], "max_tokens": call["max_tokens"], "stop": ["\n"]}
        for call in calls
    ]
    return Cost(len(bodies), taken.cpu, taken.seconds, taken.mebibytes), bodies


def looped(library: str, url: str, file: Path) -> Cost:
    """By a plain loop in a process of its own, which tells the CPU of its calls alone."""
    command = [sys.executable, "-m", "scripts.race.calls", "--loop", library, "--url", url, "--bodies", str(file)]
    told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return Cost(*json.loads(told))


async def ask_all(post: Callable[[dict[str, Any]], Awaitable[Any]], bodies: Bodies) -> Cost:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(body: dict[str, Any]) -> None:
        async with places:
            answer = await post(body)
            if not answer["choices"]:
                raise ValueError("an answer without choices")

    began, spent = time.monotonic(), time.process_time()
    await asyncio.gather(*map(one, bodies))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(len(bodies), time.process_time() - spent, time.monotonic() - began, used)


async def loop_of(library: str, url: str, bodies: Bodies) -> Cost:
    target = f"{url}/completions"
    if library == "aiohttp":
        aiohttp = import_module("aiohttp")  # none of kgqa's dependencies
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def by_aiohttp(body: dict[str, Any]) -> Any:
                async with session.post(target, json=body) as response:
                    return await response.json()

            return await ask_all(by_aiohttp, bodies)
    import httpx2

    async with httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_keepalive_connections=AT_ONCE)) as client:

        async def by_httpx2(body: dict[str, Any]) -> Any:
            return (await client.post(target, json=body)).json()

        return await ask_all(by_httpx2, bodies)


def measured(questions: int, few: int, repeats: int) -> Iterator[str]:
    """Rows of the table."""
    costs: dict[str, list[float]] = {}
    many: list[Cost] = []
    with endpoint() as url, tempfile.TemporaryDirectory() as name:
        files = {count: write_questions(Path(name) / f"{count}.jsonl", count) for count in (few, questions)}
        for repeat in range(repeats):
            runs, bodies = dict[int, Cost](), Bodies()
            for count, file in files.items():
                folder = Path(name) / f"{count}_{repeat}"
                folder.mkdir()
                runs[count], bodies = answered(url, file, folder)
            many.append(runs[questions])
            costs.setdefault("kgqa", []).append(runs[questions].milliseconds(runs[few]))
            asked = Path(name) / "bodies.json"
            asked.write_text(json.dumps(bodies), encoding="utf-8")
            for library in filter(find_spec, LOOPS):
                loop = looped(library, url, asked)
                costs.setdefault(library, []).append(1000 * loop.cpu / loop.calls)
    least = {who: min(each) for who, each in costs.items()}
    for who, each in least.items():
        spread = " ".join(f"{cost:.2f}" for cost in costs[who])
        ratios = ", ".join(f"{each / least[other]:.1f}× {other}" for other in least if other not in ("kgqa", who))
        yield f"CPU a call, {who}, {many[0].calls:,} calls | {each:.2f} ms ({spread}) | {ratios or '1'}"
    wall, memory = min(run.wall for run in many), max(run.mebibytes for run in many)
    yield f"kgqa, {questions:,} questions: its start included | {many[0].calls / wall:.0f} calls/s | {memory:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--few", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--loop", choices=LOOPS, help=argparse.SUPPRESS)  # what the program asks of its own processes
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--bodies", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.loop:
        bodies = json.loads(given.bodies.read_text(encoding="utf-8"))
        print(json.dumps(asyncio.run(loop_of(given.loop, given.url, bodies))))
        return
    print("| what | measured | against |\n| --- | --- | --- |")
    for row in measured(given.questions, given.few, given.repeats):
        print(f"| {row} |", flush=True)


if __name__ == "__main__":
    main()

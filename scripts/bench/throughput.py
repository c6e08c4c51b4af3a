"""Measure kgqa beside a plain aiohttp loop: both answer the same questions at one simulated server.

The server (`scripts.bench.endpoint`) has a fixed number of slots and writes as a busy server does. Efficiency is the
time that the calls take in full batches, divided by the time from the first call to the last reply.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from scripts.bench.endpoint import MODEL
from scripts.bench.process import ROOT, measure_command
from scripts.bench.questions import write_questions

# seconds per call, token, choice; growth per parallel call
TIMES = "prefill=0.02&step=0.008&choice=0.06&grow=0.004"
METHODS = {"ircot": ("method=ircot", "method.reader=none"), "trace": ("method=trace",)}
IDLE = "prefill=0&step=0&choice=0&grow=0"
FAST = ("ranker=lexical", "demonstrations_ranker=lexical")


class Course(NamedTuple):
    """One race: a method, the slots of the server, the number of questions."""

    method: str
    slots: int
    questions: int


COURSES = (Course("ircot", 32, 200), Course("ircot", 256, 1_000), Course("trace", 32, 60))


@contextmanager
def serve_endpoint() -> Iterator[str]:
    """Start the simulated server in its own process and yield its address."""
    command = [sys.executable, "-m", "scripts.bench.endpoint"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def get_json(url: str) -> dict[str, Any]:
    """Return the JSON object at `url`."""
    with urllib.request.urlopen(url) as response:
        data: dict[str, Any] = json.load(response)
    return data


def build_command(method: str, file: Path, url: str) -> list[str]:
    """Return the kgqa command of a course. It writes into its working directory."""
    data = ("dataset=musique", f"dataset.path={file}", "output_dir=run")
    server = (
        "engine=openai",
        "model=gpt_4o_mini",
        f"engine.base_url={url}",
        f"engine.served_model={MODEL}",
    )
    return [sys.executable, "-m", "kgqa", "run", *METHODS[method], *data, *server, *FAST]


def build_loop_command(course: Course, file: Path, url: str, run: Path) -> list[str]:
    """Return the command of the plain loop. That of IRCoT searches itself, that of TRACE repeats the calls of `run`."""
    slots = str(2 * course.slots)
    if course.method == "trace":
        options = ["--url", url, "--run", str(run), "--slots", slots]
        return [sys.executable, "-m", "scripts.bench.rounds", *options]
    questions, corpus = write_plain_files(file)
    options = ["--url", url, "--questions", str(questions), "--corpus", str(corpus)]
    return [sys.executable, str(ROOT / "scripts/bench/loop.py"), *options, "--slots", slots]


def write_plain_files(file: Path) -> tuple[Path, Path]:
    """Write the questions and the passages of a MuSiQue file to files of their own, and return these."""
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    questions, corpus = file.with_suffix(".questions"), file.with_suffix(".corpus")
    questions.write_text(
        "".join(json.dumps({"id": r["id"], "question": r["question"]}) + "\n" for r in records)
    )
    passages = [
        (passage["title"], passage["paragraph_text"])
        for r in records
        for passage in r["paragraphs"]
    ]
    rows = [
        json.dumps({"id": title, "title": title, "text": text}) + "\n" for title, text in passages
    ]
    corpus.write_text("".join(rows), encoding="utf-8")
    return questions, corpus


def measure_courses(repeats: int) -> Iterator[tuple[str, str, str]]:
    """Yield the efficiency of kgqa and of the plain loop for each course."""
    with serve_endpoint() as url, tempfile.TemporaryDirectory() as name:
        for course in COURSES:
            file = write_questions(Path(name) / f"{course.questions}.jsonl", course.questions)
            stats: dict[str, list[dict[str, float]]] = {"kgqa": [], "aiohttp": []}
            for _ in range(repeats):
                folder = Path(tempfile.mkdtemp(dir=name))
                commands = {
                    "kgqa": build_command(course.method, file, url),
                    "aiohttp": build_loop_command(course, file, url, folder / "run"),
                }
                for runner, command in commands.items():
                    get_json(f"{url}/reset?slots={course.slots}&{TIMES}")
                    measure_command(command, folder)
                    stats[runner].append(get_json(f"{url}/stats"))
            spans = {
                runner: median(each["span"] for each in measured)
                for runner, measured in stats.items()
            }
            for runner, measured in stats.items():
                efficiency = [each["efficiency"] for each in measured]
                values = " ".join(f"{value:.2f}" for value in efficiency)
                ratio = f"{spans[runner] / spans['aiohttp']:.2f}× aiohttp"
                label = f"{course.method}, {course.slots} slots, {runner}: efficiency"
                yield label, f"{median(efficiency):.2f} ({values})", ratio


def measure_call_cost(
    repeats: int, questions: int = 300, few: int = 20
) -> Iterator[tuple[str, str, str]]:
    """Yield the CPU time per call over HTTP and from the cache, without the start of the process.

    The start is removed by running few questions and many and taking the difference.
    """
    http, cached, calls = [], [], 0
    with serve_endpoint() as url, tempfile.TemporaryDirectory() as name:
        for _ in range(repeats):
            used = []
            for count in (few, questions):
                folder = Path(tempfile.mkdtemp(dir=name))
                file = write_questions(folder / "questions.jsonl", count)
                get_json(f"{url}/reset?slots=64&owner=bench&{IDLE}")
                command = [*build_command("ircot", file, url), "engine.concurrency=64"]
                fresh, again = (
                    measure_command(command, folder),
                    measure_command([*command, "output_dir=again"], folder),
                )
                used.append((get_json(f"{url}/stats")["answered"], fresh.cpu, again.cpu))
            calls, fresh_cpu, again_cpu = (many - start for start, many in zip(*used, strict=True))
            http.append(1000 * fresh_cpu / calls)
            cached.append(1000 * again_cpu / calls)
    for label, costs in (("CPU per call over HTTP", http), ("CPU per call from the cache", cached)):
        yield (
            f"{label}, {calls:,} calls",
            f"{min(costs):.2f} ms ({' '.join(f'{cost:.2f}' for cost in costs)})",
            "",
        )


def measure_shards(repeats: int, questions: int = 2_000) -> Iterator[tuple[str, str, str]]:
    """Yield the calls per CPU second of one process, and of two that answer a half each, in turn and at the same time.

    They share a server with 64 slots and the call cache of their folder. Each process pays its start, and reads
    all questions for the passages. In turn shows what this costs; at the same time, they and the server also compete
    for the cores of this machine.
    """
    halves = ("shard=1/2", "shard=2/2")
    # the parts of a run, and how many of them run at the same time
    ways: dict[str, tuple[Sequence[str], int]] = {
        "1": (("",), 1),
        "2 in turn": (halves, 1),
        "2 at the same time": (halves, 2),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    with serve_endpoint() as url, tempfile.TemporaryDirectory() as name:
        command = build_command("ircot", write_questions(Path(name) / "all.jsonl", questions), url)
        command.remove("output_dir=run")
        for _ in range(repeats):
            for way, (parts, together) in ways.items():
                get_json(f"{url}/reset?slots=64&{TIMES}")
                folder = Path(tempfile.mkdtemp(dir=name))
                commands = [[*command, *filter(None, [part])] for part in parts]
                with ThreadPoolExecutor(together) as pool:
                    used = pool.map(partial(measure_command, folder=folder), commands)
                    spent = sum(each.cpu for each in used)
                rates[way].append(get_json(f"{url}/stats")["answered"] / spent)
    for way, measured in rates.items():
        values = " ".join(f"{rate:.0f}" for rate in measured)
        ratio = f"{max(measured) / max(rates['1']):.2f}× one" if way != "1" else ""
        yield (
            f"shards of a run: {way}",
            f"{max(measured):.0f} calls a CPU second ({values})",
            ratio,
        )


def measure_vllm(repeats: int, questions: int = 60) -> Iterator[tuple[str, str, str]]:
    """Yield calls per second at a simulated vLLM server, beside the same server used as a hosted one.

    A hosted server is not asked for tokens: kgqa estimates them. Only the client is measured, and 4 ms of /tokenize.
    """
    with serve_endpoint() as url, tempfile.TemporaryDirectory() as name:
        file = write_questions(Path(name) / "questions.jsonl", questions)
        for method in METHODS:
            rates: dict[str, list[float]] = {"hosted": [], "vllm": []}
            tokenized: dict[str, list[float]] = {"hosted": [], "vllm": []}
            for _ in range(repeats):
                for kind, measured in rates.items():
                    get_json(f"{url}/reset?slots=64&owner={kind}&tokenize=0.004&{IDLE}")
                    command = [
                        *build_command(method, file, url),
                        f"engine.server={kind}",
                        "engine.concurrency=64",
                    ]
                    measure_command(command, Path(tempfile.mkdtemp(dir=name)))
                    stats = get_json(f"{url}/stats")
                    measured.append(stats["answered"] / stats["span"])
                    tokenized[kind].append(stats["tokenized"] / stats["answered"])
            ratio = median(rates["vllm"]) / median(rates["hosted"])
            label = f"{method} at a vLLM server, {median(tokenized['vllm']):.2f} requests to tokenize per call"
            yield label, f"{median(rates['vllm']):.0f} calls/s", f"{ratio:.2f}× as a hosted server"

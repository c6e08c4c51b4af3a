"""Measure kgqa beside a plain aiohttp loop: both answer the same questions at one simulated server.

The server (`scripts.bench.endpoint`) has a fixed number of slots and writes as a busy server does. Efficiency is the
time that the calls take in full batches, divided by the time from the first call to the last reply.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from scripts.bench.endpoint import MODEL
from scripts.bench.process import ROOT, measure_command
from scripts.bench.questions import write_questions

TIMES = "prefill=0.02&step=0.008&choice=0.06&grow=0.004"  # seconds per call, token, choice; growth per parallel call
METHODS = {"ircot": ("method=ircot", "method.reader=none"), "trace": ("method=trace",)}
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


def write_plain_files(file: Path) -> tuple[Path, Path]:
    """Write questions and passages of a MuSiQue file as JSONL for the plain loop."""
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    questions, corpus = file.with_suffix(".questions"), file.with_suffix(".corpus")
    questions.write_text("".join(json.dumps({"id": r["id"], "question": r["question"]}) + "\n" for r in records))
    passages = [(passage["title"], passage["paragraph_text"]) for r in records for passage in r["paragraphs"]]
    rows = [json.dumps({"id": title, "title": title, "text": text}) + "\n" for title, text in passages]
    corpus.write_text("".join(rows), encoding="utf-8")
    return questions, corpus


def build_command(course: Course, file: Path, url: str, folder: Path) -> list[str]:
    """Return the kgqa command of a course, after removing what an earlier run left."""
    for name in ("run", "cache", "outputs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    data = ("dataset=musique", f"dataset.path={file}", f"output_dir={folder / 'run'}")
    server = ("engine=openai", "model=gpt_4o_mini", f"engine.base_url={url}", f"engine.served_model={MODEL}")
    return [sys.executable, "-m", "kgqa", "run", *METHODS[course.method], *data, *server, *FAST]


def measure_courses(repeats: int) -> Iterator[tuple[str, str, str]]:
    """Yield the efficiency of kgqa and of the plain loop for each course."""
    with serve_endpoint() as url, tempfile.TemporaryDirectory() as name:
        for course in COURSES:
            folder = Path(name) / f"{course.method}{course.slots}"
            folder.mkdir()
            file = write_questions(folder / "questions.jsonl", course.questions)
            questions, corpus = write_plain_files(file)
            loop = ["--url", url, "--questions", str(questions), "--corpus", str(corpus)]
            loop += ["--slots", str(2 * course.slots)]
            runners = {"kgqa": build_command(course, file, url, folder)}
            if course.method == "ircot":
                runners["aiohttp"] = [sys.executable, str(ROOT / "scripts/bench/loop.py"), *loop]
            efficiency: dict[str, list[float]] = {runner: [] for runner in runners}
            spans: dict[str, list[float]] = {runner: [] for runner in runners}
            for _ in range(repeats):
                for runner, command in runners.items():
                    if runner == "kgqa":
                        build_command(course, file, url, folder)
                    get_json(f"{url}/reset?slots={course.slots}&{TIMES}")
                    measure_command(command, folder)
                    stats = get_json(f"{url}/stats")
                    efficiency[runner].append(stats["efficiency"])
                    spans[runner].append(stats["span"])
            for runner in runners:
                label = f"{course.method}, {course.slots} slots, {runner}: efficiency"
                values = " ".join(f"{value:.2f}" for value in efficiency[runner])
                ratio = f"{median(spans[runner]) / median(spans['aiohttp']):.2f}× aiohttp" if "aiohttp" in spans else ""
                yield label, f"{median(efficiency[runner]):.2f} ({values})", ratio


def measure_call_cost(repeats: int, questions: int = 300, few: int = 20) -> Iterator[tuple[str, str, str]]:
    """Yield the CPU time per call over HTTP and from the cache, without the start of the process.

    The start is removed by running few questions and many and taking the difference.
    """
    with serve_endpoint() as url, tempfile.TemporaryDirectory() as name:
        http, cached, calls = [], [], 0
        for repeat in range(repeats):
            used = {}
            for count in (few, questions):
                folder = Path(name) / f"{count}_{repeat}"
                folder.mkdir()
                file = write_questions(folder / "questions.jsonl", count)
                get_json(f"{url}/reset?slots=64&prefill=0&step=0&choice=0&grow=0")
                command = [*build_command(Course("ircot", 64, count), file, url, folder), "engine.concurrency=64"]
                fresh = measure_command(command, folder)
                calls = get_json(f"{url}/stats")["answered"]
                shutil.rmtree(folder / "run")
                used[count] = (calls, fresh.cpu, measure_command(command, folder).cpu)
            calls = used[questions][0] - used[few][0]
            http.append(1000 * (used[questions][1] - used[few][1]) / calls)
            cached.append(1000 * (used[questions][2] - used[few][2]) / calls)
        for label, costs in (("CPU per call over HTTP", http), ("CPU per call from the cache", cached)):
            yield f"{label}, {calls:,} calls", f"{min(costs):.2f} ms ({' '.join(f'{cost:.2f}' for cost in costs)})", ""

"""Who takes part in the race: each as a command in a process of its own, measured by the endpoint and the system."""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from kgqa.artefacts.trace import read_trace
from scripts.race.calls import ROOT
from scripts.race.endpoint import MODEL
from scripts.race.questions import Files
from scripts.used import Used, used

Task = Literal["ircot", "trace", "plain"]
TIMES = {"prefill": 0.02, "step": 0.008, "choice": 0.06}  # of the endpoint, in seconds
GROW = 0.004
PEERS = "RACE_PEERS"  # the folder of their environments
BETWEEN = "\n\n\n"  # demonstrations
FEW = 3  # questions of the first run, which makes the index and compiles
METHODS = {
    "ircot": ("method=ircot", "method.reader=none"),
    "trace": ("method=trace",),
    "plain": ("method=no_context", "method.max_answer_tokens=100"),  # as many as the others, so the same replies
}


@dataclass(frozen=True)
class Course:
    """What is to be done with how many questions at how many slots."""

    task: Task
    slots: int
    questions: int
    slower: float = 1.0  # than TIMES, for a machine that is busy with other work

    @property
    def service(self) -> str:
        times = "&".join(f"{name}={seconds * self.slower}" for name, seconds in TIMES.items())
        return f"slots={self.slots}&{times}&grow={GROW}"


class Ran(NamedTuple):
    """`span`, `cpu`: seconds. `efficiency`: of the server's slots."""

    calls: int
    span: float
    efficiency: float
    cpu: float
    mebibytes: float


class Entry(NamedTuple):
    """What a command is made of."""

    course: Course
    files: Files
    url: str
    shown: Path  # demonstrations
    folder: Path  # the runner's own


@dataclass(frozen=True)
class Runner:
    name: str
    tasks: tuple[Task, ...]
    command: Callable[[Entry], list[str]]
    peer: str = ""  # the environment it wants


def _kgqa(entry: Entry, *further: str) -> list[str]:
    for kept in ("run", "cache", "outputs"):  # the last has triples, which TRACE would not extract again
        shutil.rmtree(entry.folder / kept, ignore_errors=True)
    words = ("ranker=lexical", "demonstrations_ranker=lexical", f"out={entry.folder / 'run'}")
    asking = ("engine=openai", "model=gpt_4o_mini", f"engine.base_url={entry.url}", f"engine.served_model={MODEL}")
    asked = (f"dataset={entry.files.dataset}", f"dataset.path={entry.files.asked}", *METHODS[entry.course.task])
    return [sys.executable, "-m", "kgqa", "run", *asked, *asking, *words, *further]


def _loop(entry: Entry) -> list[str]:
    given = ["--url", entry.url, "--questions", str(entry.files.questions), "--places", str(2 * entry.course.slots)]
    if entry.course.task == "plain":
        given += ["--plain"]
    given += ["--corpus", str(entry.files.corpus), "--shown", str(entry.shown)]
    return [sys.executable, str(ROOT / "scripts/race/loop.py"), *given]


def _flashrag(places: Callable[[Course], int]) -> Callable[[Entry], list[str]]:
    def command(entry: Entry) -> list[str]:
        given = ["--url", entry.url, "--questions", str(entry.files.questions), "--corpus", str(entry.files.corpus)]
        given += ["--folder", str(entry.folder), "--places", str(places(entry.course))]
        return [python_of("flashrag"), str(ROOT / "scripts/race/flashrag_ircot.py"), *given]

    return command


def _inspect(entry: Entry) -> list[str]:
    given = ["--url", entry.url, "--questions", str(entry.files.questions), "--folder", str(entry.folder)]
    script = str(ROOT / "scripts/race/inspect_plain.py")
    return [python_of("inspect"), script, *given, "--places", str(entry.course.slots)]


RUNNERS = {
    runner.name: runner
    for runner in (
        Runner("kgqa", ("ircot", "trace", "plain"), _kgqa),
        Runner("aiohttp", ("ircot", "plain"), _loop),
        Runner("flashrag", ("ircot",), _flashrag(lambda _: 0), "flashrag"),
        Runner("flashrag_batches", ("ircot",), _flashrag(lambda course: course.slots), "flashrag"),
        Runner("inspect", ("plain",), _inspect, "inspect"),
    )
}


def python_of(peer: str) -> str:
    return str((ROOT / os.environ[PEERS] / peer / "bin" / "python").absolute())


def missing(runner: Runner) -> str:
    """What it wants and is not here, with the remedy; "" where nothing is missing."""
    if not runner.peer or Path(python_of(runner.peer)).is_file():
        return ""
    return f"{runner.name}: no {python_of(runner.peer)}; make race-peers sets it up"


def demonstrations(course: Course, files: Files, url: str, folder: Path) -> Path:
    """What all of kgqa's prompts have before the question, for whoever writes prompts as it does; "" for chats."""
    own = folder / "kgqa"
    own.mkdir(exist_ok=True)
    file = folder / "demonstrations.txt"
    entry = Entry(course, files, url, file, own)
    _told(f"{url}/reset?slots={course.slots}&prefill=0&step=0&grow=0&choice=0")
    _taken(_kgqa(entry, f"limit={FEW}"), own)
    asked = [
        call.request["prompt"]
        for question in read_trace(own / "run")
        for call in question.calls
        if call.kind == "generate"
    ]
    prompts = [prompt["messages"][0][1] for prompt in asked if prompt["form"] == "completion"]
    first, last = min(prompts, default=""), max(prompts, default="")
    same = next((at for at, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) == 2), 0)
    shared = first[:same]
    file.write_text(shared[: shared.rfind(BETWEEN) + len(BETWEEN)] if BETWEEN in shared else "", encoding="utf-8")
    return file


def ran(runner: Runner, course: Course, files: Files, url: str, shown: Path) -> Ran:
    folder = shown.parent / runner.name
    folder.mkdir(exist_ok=True)
    command = runner.command(Entry(course, files, url, shown, folder))
    _told(f"{url}/reset?{course.service}")
    taken = _taken(command, folder)
    told = _told(f"{url}/stats")
    return Ran(int(told["answered"]), told["span"], told["efficiency"], taken.cpu, taken.mebibytes)


def _taken(command: Sequence[str], folder: Path) -> Used:
    return used(command, folder, {"PYTHONPATH": str(ROOT), "KGQA_CACHE": str(folder / "cache")})


def _told(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url) as answer:
        told: dict[str, float] = json.load(answer)
    return told

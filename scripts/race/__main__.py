"""`python -m scripts.race` (`make race`): kgqa beside other programs on one endpoint, the same questions and answers.

Every runner answers the same questions in a process of its own, one after the other, in turn. The endpoint
(`scripts.race.endpoint`) has a fixed number of slots and writes as a busy server does. It tells how long the calls took
from the first to the last, so that nobody's start counts, and the efficiency: what the same calls take in full batches,
to that. CPU and memory are the runner's whole process, start included. All but FlashRAG, whose prompts are its own, put
the same demonstrations before a question.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from scripts.race.calls import ROOT, endpoint
from scripts.race.questions import Files, written
from scripts.race.runners import PEERS, RUNNERS, Course, Ran, Runner, demonstrations, missing, ran

RACES = {
    "ircot32": Course("ircot", slots=32, questions=200),
    "ircot256": Course("ircot", slots=256, questions=1_000),
    "trace32": Course("trace", slots=32, questions=60),
    "plain32": Course("plain", slots=32, questions=200),
}
LOOP = "aiohttp"
SPARED = """\
Spared: the aiohttp loop keeps, counts and reports nothing, tries nothing again, and is told how many calls to have
under way; FlashRAG keeps no calls, so that the same command asks them all again, and words stand for tokens, as
tiktoken's vocabulary has to be fetched; Inspect AI searches nothing. kgqa is told nothing of the server, keeps every
call and a trace, and writes its reports after the last call."""


def races(courses: Sequence[Course], runners: Sequence[Runner], repeats: int) -> Iterator[str]:
    """The table of each race."""
    with endpoint() as url, tempfile.TemporaryDirectory() as name:
        for course in courses:
            folder = Path(name) / f"{course.task}{course.slots}"
            folder.mkdir()
            files = written(folder, course.questions)
            shown = demonstrations(course, files, url, folder)
            entered = [runner for runner in runners if course.task in runner.tasks]
            results: dict[str, list[Ran]] = {runner.name: [] for runner in entered}
            for _ in range(repeats):
                for runner in entered:
                    results[runner.name].append(ran(runner, course, files, url, shown))
            yield from table(course, files, results)


def table(course: Course, files: Files, results: dict[str, list[Ran]]) -> Iterator[str]:
    repeats = len(next(iter(results.values())))
    asked = f"{course.questions:,} questions ({files.what})"
    yield f"\n{course.task}, S = {course.slots}, {asked}, {repeats} times in turn\n"
    yield "| runner | calls | span s (min / median / max) | calls/s | efficiency | CPU s | MiB | against |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    spans = {name: median(run.span for run in runs) for name, runs in results.items()}
    for name, runs in results.items():
        ordered = sorted(run.span for run in runs)
        cells = [
            f"{course.task} S={course.slots}, {name}",
            f"{runs[0].calls:,}",
            f"{ordered[0]:.2f} / {spans[name]:.2f} / {ordered[-1]:.2f}",
            f"{runs[0].calls / spans[name]:.0f}",
            f"{median(run.efficiency for run in runs):.2f}",
            f"{median(run.cpu for run in runs):.1f}",
            f"{max(run.mebibytes for run in runs):.0f}",
            "1" if name == LOOP or LOOP not in spans else f"{spans[name] / spans[LOOP]:.2f}× {LOOP}",
        ]
        yield f"| {' | '.join(cells)} |"
    for name, runs in results.items():  # for `make bench`, which keeps ratios
        low, *_, high = sorted([run.efficiency for run in runs] * 2)
        middle = median(run.efficiency for run in runs)
        about = f"{course.task} S={course.slots}, {name}: efficiency"
        yield f"| {about} | {middle:.2f} ({low:.2f}–{high:.2f}) | | | | | | {course.slots} slots |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.race", description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--races", nargs="+", choices=RACES, default=list(RACES))
    parser.add_argument("--runners", nargs="+", choices=RUNNERS, default=list(RUNNERS))
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-race", help="where their environments are")
    parser.add_argument("--slower", type=float, default=1.0, help="times the endpoint's times, on a busy machine")
    given = parser.parse_args()
    os.environ[PEERS] = str(given.peers)
    wanted = [RUNNERS[name] for name in given.runners]
    for line in filter(None, map(missing, wanted)):
        print(line, file=sys.stderr)
    present = [runner for runner in wanted if not missing(runner)]
    courses = [replace(RACES[name], slower=given.slower) for name in given.races]
    for line in races(courses, present, given.repeats):
        print(line, flush=True)
    print(f"\n{SPARED}")


if __name__ == "__main__":
    main()

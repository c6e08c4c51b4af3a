"""`kgqa view` of runs of several sizes: when their page is first painted, and when its first and last rows are there.

    python scripts/bench_viewer.py [--questions 100 1000 10000]

The runs are one of twelve questions again and again, under other ids. Seconds by the clock are from the click on, and
say as much of what else the machine does; those of `server` and `page` are of the CPU, of the server and of the page's
thread, until the first rows are there; `scroll` is milliseconds of the page's thread for a frame in which ten rows come
into sight. Each is the median of five visits after one that loads the server's modules.
Without Chromium the server alone is measured. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack, redirect_stdout
from functools import partial
from pathlib import Path

import psutil
import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.artefacts.predictions import PREDICTIONS
from kgqa.artefacts.trace import TRACE, read_trace
from kgqa.cli import main as kgqa
from tests.e2e.browser import CHROMIUM, Browser
from tests.viewer.viewing import Viewing

VISITS = 5
RUN = "run method=no_context dataset=demo limit=12 engine=scripted ranker=lexical out=outputs/first"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ROWS = "document.querySelectorAll('#rows li').length > 5"
ALL = "document.documentElement.dataset.ready === 'yes'"
SCROLL = """new Promise((resolve) => {
    let left = %d;
    const step = () => {
        byId('list').scrollTop += 540;
        if (left-- > 0) requestAnimationFrame(step);
        else resolve();
    };
    requestAnimationFrame(step);
})"""
FRAMES = 120


def write_large(source: Path, large: Path, questions: int) -> None:
    """A run like another one, with its questions again and again under the ids q00000, q00001, …"""
    shutil.copytree(source, large)
    lines = [json.dumps(traced.json()) for traced in read_trace(source)]
    predictions = (source / PREDICTIONS).read_text(encoding="utf-8").splitlines()
    compressor = zstandard.ZstdCompressor()
    with (large / TRACE).open("wb") as trace, (large / PREDICTIONS).open("w", encoding="utf-8") as answers:
        for number in range(questions):
            line, prediction = json.loads(lines[number % len(lines)]), json.loads(predictions[number % len(lines)])
            line["question_id"] = line["question"]["id"] = prediction["question_id"] = f"q{number:05}"
            trace.write(compressor.compress(f"{json.dumps(line)}\n".encode()))
            answers.write(f"{json.dumps(prediction)}\n")


def spent(viewing: Viewing) -> float:
    """CPU seconds of the server until now."""
    times = psutil.Process(viewing.process.pid).cpu_times()
    return float(times.user + times.system)


def visited(viewing: Viewing, browser: Browser, folder: Path) -> dict[str, float]:
    """One visit of a run that the server has not read yet: seconds, of the clock but for those of the CPU."""
    os.utime(folder / TRACE)  # what is kept of a run is of its files as they were
    browser.ask("Page.navigate", url="about:blank")
    browser.ask("Performance.enable", timeDomain="threadTicks")
    server, page = spent(viewing), tasks(browser)
    browser.visit(f"{viewing.base}run/large/no_context/scripted/{folder.name}#questions", ROWS)
    told = {"server": spent(viewing) - server, "page": tasks(browser) - page}
    told["first rows"] = browser.value("performance.now()") / 1000
    browser.wait(f"{PAINTED} > 0")
    told["first paint"] = browser.value(PAINTED) / 1000
    browser.wait(ALL, 300)
    told["last row"] = browser.value("performance.now()") / 1000
    before = tasks(browser)
    browser.value(SCROLL % FRAMES)
    return {**told, "scroll": 1000 * (tasks(browser) - before) / FRAMES}


def tasks(browser: Browser) -> float:
    """CPU seconds of the page's thread."""
    every = browser.ask("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in every if each["name"] == "TaskDuration"))


def asked(viewing: Viewing, folder: Path) -> dict[str, float]:
    """The same of the server alone: its page, and the first rows."""
    os.utime(folder / TRACE)
    before = spent(viewing)
    viewing.ask(f"/run/large/no_context/scripted/{folder.name}", {"Cookie": viewing.cookie})
    page = spent(viewing)
    viewing.get(f"/api/questions/large/no_context/scripted/{folder.name}?from=0&count=100")
    return {"server's page": page - before, "server's rows": spent(viewing) - page}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, nargs="+", default=[100, 1000, 10_000])
    sizes = parser.parse_args().questions
    with ExitStack() as begun:
        base = Path(begun.enter_context(tempfile.TemporaryDirectory()))
        os.chdir(base)
        with redirect_stdout(sys.stderr):
            assert kgqa(RUN.split()) == 0
        folders = {size: base / f"outputs/large/no_context/scripted/{size}" for size in sizes}
        for size, folder in folders.items():
            write_large(base / "outputs/first", folder, size)
        viewing = Viewing.start(base)
        begun.callback(viewing.interrupt)
        browser = begun.enter_context(Browser(base / "profile", 1400)) if CHROMIUM else None
        if browser:
            browser.visit(viewing.address)
        visit = partial(visited, viewing, browser) if browser else partial(asked, viewing)
        names = list(visit(folders[sizes[0]]))  # the first one, which is not counted
        print(f"| questions | {' | '.join(names)} |\n|{' --- |' * (len(names) + 1)}")
        medians: dict[int, dict[str, float]] = {}
        for size, folder in folders.items():
            visits = [visit(folder) for _ in range(VISITS)]
            medians[size] = {name: statistics.median(each[name] for each in visits) for name in names}
            print(f"| {size:,} | {' | '.join(f'{median:.2f}' for median in medians[size].values())} |", flush=True)
        print("\n| what | measured | against |\n| --- | --- | --- |")  # for scripts/bench_record.py
        least, most = medians[min(sizes)], medians[max(sizes)]
        for name in names:
            told = f"{most[name]:.2f} | {most[name] / least[name]:.2f}× ({min(sizes):,} questions)"
            print(f"| kgqa view, {max(sizes):,} questions: {name} | {told} |")
    os.chdir("/")


if __name__ == "__main__":
    main()

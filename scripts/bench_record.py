"""What `make bench` measured, beside what was measured before: which ratios moved, and by how much.

    make bench                       compares with docs/bench.json
    make bench KEEP=--keep           and adds this run's ratios to it

Reads the benchmarks' tables from standard input and prints them on. A ratio is a number with × in a row's last column
("12× aiohttp" is one of its own), an efficiency, or a part "of ideal". For each row the file keeps the ratios of
its last RUNS runs, so that the spread is the machine's own; a ratio beyond them by more than a tenth has moved.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

FILE = Path(__file__).resolve().parents[1] / "docs" / "bench.json"
RUNS = 9
SLACK = 0.1  # of the outermost ratio
RATIO = re.compile(r"([\d.,]+)×(?: ([a-z]\w*))?")
PART = re.compile(r"([\d.,]+) of ideal")
EFFICIENCY = re.compile(r"efficiency$")
Ratios = dict[str, list[float]]  # by row, of the latest runs, the last one last


def ratios(line: str) -> Iterator[tuple[str, float]]:
    """Of a row of a table: what was measured, and the ratio; nothing of other lines."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if not line.startswith("|") or len(cells) < 3:
        return
    what, measured, against = cells[0], cells[1], cells[-1]
    for number, other in RATIO.findall(against):
        yield f"{what} / {other}" if other else what, _number(number)
    if part := PART.search(measured):
        yield f"{what}, of ideal", _number(part[1])
    elif EFFICIENCY.search(what) and (number := re.match(r"[\d.]+", measured)):
        yield what, _number(number[0])


def moved(before: Mapping[str, list[float]], now: Mapping[str, float]) -> Iterator[str]:
    """A line for each ratio beyond the spread of earlier runs, then for those that are new or gone."""
    for what, ratio in now.items():
        known = before.get(what)
        if not known:
            yield f"new    {what}: {ratio:g}"
        elif not min(known) * (1 - SLACK) <= ratio <= max(known) * (1 + SLACK):
            spread = f"{min(known):g} to {max(known):g}, median {median(known):g}, of {len(known)}"
            yield f"moved  {what}: {ratio:g} ({spread})"
    for what in before.keys() - now.keys():
        yield f"gone   {what}"


def kept(before: Mapping[str, list[float]], now: Mapping[str, float]) -> Ratios:
    """The file's next content: rows that were not measured this time stay as they are."""
    return {what: [*before.get(what, ()), *([now[what]] if what in now else ())][-RUNS:] for what in {**before, **now}}


def read(lines: Iterable[str]) -> dict[str, float]:
    """All ratios of the tables, which are printed on as they come."""
    found: dict[str, float] = {}
    for line in lines:
        print(line, end="", flush=True)
        found.update(ratios(line))
    return found


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--keep", action="store_true", help="add this run's ratios to the file")
    given = parser.parse_args()
    before: Ratios = json.loads(given.file.read_text(encoding="utf-8")) if given.file.exists() else {}
    now = read(sys.stdin)
    if not now:
        raise SystemExit("bench_record: no ratio in what was given; pipe a benchmark's table into it")
    lines = list(moved(before, now))
    print("\n".join(["", f"{len(now)} ratios beside {given.file.name}:", *(lines or ["none moved"])]))
    if given.keep:
        text = json.dumps(kept(before, now), indent=1, ensure_ascii=False, sort_keys=True)
        given.file.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

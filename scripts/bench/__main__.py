"""Run the benchmarks and compare their ratios with docs/dev/bench.json.

    python -m scripts.bench                    all parts
    python -m scripts.bench throughput cache   some parts
    python -m scripts.bench --save             add this run's figures to docs/dev/bench.json

Figures of a busy machine are not comparable between runs, so read the ratios and efficiencies.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from statistics import median

from scripts.bench import local, throughput
from scripts.bench.local import Row
from scripts.bench.process import ROOT

FILE = ROOT / "docs" / "dev" / "bench.json"
HISTORY = 9  # runs that docs/dev/bench.json holds
TOLERANCE = 0.1  # beyond the range of earlier runs
NUMBER = re.compile(r"^[\d.]+")
PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "throughput": lambda options: throughput.measure_courses(options.repeats),
    "calls": lambda options: throughput.measure_call_cost(options.repeats),
    "cache": lambda _: local.measure_cache(),
    "memory": lambda options: local.measure_memory(tuple(options.questions)),
    "start": lambda options: local.measure_start(2 * options.repeats + 1),
    "retrieval": lambda _: local.measure_retrieval(),
    "entity_graph": lambda _: local.measure_entity_graph(),
}


def read_value(measured: str, ratio: str) -> float:
    """Return the number to compare: the ratio if there is one, otherwise the measured value."""
    match = NUMBER.match(ratio or measured)
    return float(match[0]) if match else 0.0


def compare(label: str, value: float, history: list[float]) -> str:
    """Return "" if the value is within the range of earlier runs, otherwise one line."""
    if not history:
        return f"new    {label}: {value:g}"
    if min(history) * (1 - TOLERANCE) <= value <= max(history) * (1 + TOLERANCE):
        return ""
    return f"moved  {label}: {value:g} (earlier: {min(history):g} to {max(history):g}, median {median(history):g})"


def main() -> None:
    """Print a Markdown table of all figures and the list of those that moved."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"parts to run (default: all): {', '.join(PARTS)}")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each measurement (default: 3)")
    parser.add_argument("--questions", type=int, nargs="+", default=[100, 1_000], help="sizes of the memory benchmark")
    parser.add_argument("--save", action="store_true", help="add the figures to docs/dev/bench.json")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}. Choose from {', '.join(PARTS)}.")
    known: dict[str, list[float]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    values: dict[str, float] = {}
    print("| what | measured | ratio |\n| --- | --- | --- |")
    for part in options.parts or PARTS:
        for label, measured, ratio in PARTS[part](options):
            print(f"| {label} | {measured} | {ratio} |", flush=True)
            values[label] = read_value(measured, ratio)
    lines = [compare(label, value, known.get(label, [])) for label, value in values.items()]
    print("", *(line for line in lines if line), sep="\n")
    if options.save:
        rows = {label: [*known.get(label, []), value][-HISTORY:] for label, value in values.items()}
        text = json.dumps({**known, **rows}, indent=1, ensure_ascii=False, sort_keys=True)
        FILE.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

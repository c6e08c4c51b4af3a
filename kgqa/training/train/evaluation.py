"""Compare the held-out examples before and after a training, with paired intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from kgqa.artifacts.schema import read_lines
from kgqa.artifacts.trained import Measured
from kgqa.methods.steps.safe_verdict import read_verdict
from kgqa.scoring.intervals import interval
from kgqa.scoring.metrics import token_f1
from kgqa.training.train.request import ExampleSplit
from kgqa.training.trainers.process import REPLIES, TextExample, TrainResult


def evaluate(
    folder: Path, split: ExampleSplit, result: TrainResult, seed: int
) -> tuple[tuple[Measured, ...], dict[str, float]]:
    """Return the trainer's figures with those of the replies in the folder of a training, and baselines in percent.

    These are token F1, and for SAFE's verdicts the accuracy of labels. The baseline is the most frequent label only.
    """
    rows = [compare(name, before, after, seed) for name, (before, after) in result.measured.items()]
    texts = {example.id: example for example in split.held_out if isinstance(example, TextExample)}
    lines = [line for _, line in read_lines(folder / REPLIES)] if (folder / REPLIES).is_file() else []
    replies = [(texts[line["id"]], line) for line in lines if line["id"] in texts]

    def measure(name: str, score: Callable[[str, TextExample], float]) -> None:
        before, after = ([score(line[when], example) for example, line in replies] for when in ("before", "after"))
        rows.append(compare(name, before, after, seed))

    if not replies:
        return tuple(rows), {}
    measure("token F1", lambda reply, example: token_f1(reply, example.completion))
    if not read_verdict(replies[0][0].completion):
        return tuple(rows), {}
    measure("label accuracy", lambda reply, example: float(_label(reply) == example.label))
    label = Counter(example.label for example in split.train if isinstance(example, TextExample)).most_common(1)[0][0]
    share = fmean(float(example.label == label) for example, _ in replies)
    return tuple(rows), {f"label accuracy, {label} only": 100 * share}


def compare(name: str, before: Sequence[float], after: Sequence[float], seed: int) -> Measured:
    """Return the means of a figure in percent, and their difference with its 95 % paired bootstrap interval."""
    differences = [100 * (new - old) for old, new in zip(before, after, strict=True)]
    low, high = interval(differences, seed=seed)
    return Measured(
        name=name, before=100 * fmean(before), after=100 * fmean(after), difference=fmean(differences),
        low=low, high=high, n=len(differences),
    )  # fmt: skip


def _label(reply: str) -> str:
    verdict = read_verdict(reply)
    return verdict.error_type if verdict else ""

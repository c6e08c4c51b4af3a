"""What a training was good for: figures of the held-out examples before and after, each with its paired interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kgqa.artefacts.form import read_lines
from kgqa.artefacts.trained import Losses, Measured
from kgqa.experiment.train.examples import Parted, Written
from kgqa.experiment.train.sought import sought
from kgqa.methods.steps.safe_verdict import read_verdict
from kgqa.scoring.intervals import interval
from kgqa.scoring.metrics import token_f1
from kgqa.training.curves import CurvePoint
from kgqa.training.job import REPLIES, Outcome

FOUND = "gold passage first"
Figures = tuple[Sequence[float | None], Sequence[float | None]]  # of each example, before and after


def measured(outcome: Outcome, folder: Path, examples: Parted, seed: int) -> tuple[Measured, ...]:
    """Loss, and of the replies token F1 with what should have been written; of verdicts the share of right labels, of
    next facts how often they find their passage; of encoders what they were measured by."""
    listed = [_measured(name, figures, seed, percent=name != "loss") for name, figures in outcome.measured.items()]
    listed += [_measured(name, figures, seed) for name, figures in _of_replies(folder, examples)]
    return tuple(figure for figure in listed if figure is not None)


def baselines(folder: Path, examples: Parted) -> dict[str, float]:
    """What needs no training, in percent of the examples that were answered: of labels the most frequent one, of next
    facts the question itself."""
    return {**_commonest(folder, examples), **_question_as_query(folder, examples)}


def _commonest(folder: Path, examples: Parted) -> dict[str, float]:
    """Of the examples that were answered, the others have no label to compare with."""
    labels = [example.label for example in examples.train if isinstance(example, Written)]
    answered = [example.label for example, _, _ in _replies(folder, examples)]
    if len({*labels}) < 2 or not answered or not _judges(examples):
        return {}
    commonest = Counter(labels).most_common(1)[0][0]
    return {f"label accuracy, {commonest} alone": 100 * answered.count(commonest) / len(answered)}


def _question_as_query(folder: Path, examples: Parted) -> dict[str, float]:
    wanted = sought(examples.collected)
    asked = [(wanted[one.id], one.completion) for one, _, _ in _replies(folder, examples) if one.id in wanted]
    if not asked:
        return {}
    scores = {
        "token F1": [token_f1(each.question, fact) for each, fact in asked],
        FOUND: [each.found(each.question) for each, _ in asked],
    }
    return {f"{name}, the question as query": 100 * sum(some) / len(some) for name, some in scores.items()}


def losses(points: Sequence[CurvePoint], outcome: Outcome) -> Losses:
    taken = [float(point.loss) for point in points if point.loss is not None]
    tail = taken[-max(1, len(taken) // 10) :]
    before, after = outcome.held_out_loss
    return Losses(
        first=taken[0] if taken else None,
        last=sum(tail) / len(tail) if tail else None,
        lowest=min(taken, default=None),
        held_out_before=before,
        held_out_after=after,
    )


def confusion(folder: Path, examples: Parted) -> dict[str, dict[str, int]]:
    """Of verdicts: the label that was meant → what was said after the training → how often; "" is no verdict."""
    table: dict[str, Counter[str]] = {}
    for example, _, after in _replies(folder, examples) if _judges(examples) else ():
        verdict = read_verdict(after)
        table.setdefault(example.label, Counter())[verdict.error_type if verdict else ""] += 1
    return {label: dict(said) for label, said in sorted(table.items())}


def _of_replies(folder: Path, examples: Parted) -> Iterator[tuple[str, Figures]]:
    answered = list(_replies(folder, examples))
    if not answered:
        return
    yield "token F1", _scored(answered, lambda reply, example: token_f1(reply, example.completion))
    if _judges(examples):
        yield "label accuracy", _scored(answered, _has_label)
    if (wanted := sought(examples.collected)) and (facts := [one for one in answered if one[0].id in wanted]):
        yield FOUND, _scored(facts, lambda reply, example: wanted[example.id].found(reply))


def _replies(folder: Path, examples: Parted) -> Iterator[tuple[Written, str, str]]:
    file, by_id = folder / REPLIES, {example.id: example for example in examples.held_out}
    for _, line in read_lines(file) if file.is_file() else ():
        example = by_id.get(line["id"])
        if isinstance(example, Written):
            yield example, str(line["before"]), str(line["after"])


def _judges(examples: Parted) -> bool:
    """Whether what is learnt are SAFE's verdicts."""
    some = next((example for example in examples.train if isinstance(example, Written)), None)
    return some is not None and read_verdict(some.completion) is not None


def _has_label(reply: str, example: Written) -> float:
    verdict = read_verdict(reply)
    return float(verdict is not None and verdict.error_type == example.label)


def _scored(answered: Sequence[tuple[Written, str, str]], score: Callable[[str, Written], float]) -> Figures:
    before = [score(reply, example) for example, reply, _ in answered]
    after = [score(reply, example) for example, _, reply in answered]
    return before, after


def _measured(name: str, figures: Figures, seed: int, *, percent: bool = True) -> Measured | None:
    pairs = [(old, new) for old, new in zip(*figures, strict=True) if old is not None and new is not None]
    if not pairs:
        return None
    factor = 100 if percent else 1
    moved = [factor * (new - old) for old, new in pairs]
    low, high = interval(moved, seed=seed)
    old, new = (factor * sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return Measured(
        name=name, before=old, after=new, difference=sum(moved) / len(moved), low=low, high=high, n=len(pairs),
        percent=percent,
    )  # fmt: skip

"""Measure how often two sets of labels agree: percent agreement and Cohen's kappa."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from kgqa.artifacts.metrics import LabelAgreement


def agreement(first: Sequence[str | None], second: Sequence[str | None]) -> LabelAgreement:
    """Return percent agreement, Cohen's kappa and the confusion table. Pairs with None on one side are skipped."""
    pairs = [
        (mine, theirs)
        for mine, theirs in zip(first, second, strict=True)
        if mine is not None and theirs is not None
    ]
    labels = sorted({label for pair in pairs for label in pair})
    counts = Counter(pairs)
    return LabelAgreement(
        n=len(pairs),
        left_out=len(first) - len(pairs),
        percent=100 * sum(mine == theirs for mine, theirs in pairs) / len(pairs) if pairs else None,
        kappa=cohen_kappa(pairs),
        confusion={mine: {theirs: counts[mine, theirs] for theirs in labels} for mine in labels},
    )


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Return Cohen's kappa (1960), or None without pairs or if all labels are equal."""
    if not pairs:
        return None
    total = len(pairs)
    firsts, seconds = Counter(mine for mine, _ in pairs), Counter(theirs for _, theirs in pairs)
    observed = sum(mine == theirs for mine, theirs in pairs) / total
    expected = sum(firsts[label] * seconds[label] for label in firsts) / total**2
    return (observed - expected) / (1 - expected) if expected < 1 else None

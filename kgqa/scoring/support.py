"""Compare the passages that a method used with the gold supporting passages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SupportScores:
    """Shares in 0..1; None where the question does not define one, which is not the same as 0.

    Without known gold passages all are None. A method that used no passage has recall 0 and F1 0: it found
    none of the support. Its precision and error rate are None: there is nothing to be right or wrong about.
    """

    recall: float | None
    precision: float | None
    f1: float | None
    error_rate: float | None  # share of the evidence that is not gold
    given_recall: float | None  # recall of all given passages: no method without retrieval exceeds it
    given_error_rate: float | None  # error rate of all given passages


def support(evidence: Sequence[str], gold: Collection[str], given: Collection[str]) -> SupportScores:
    """Return agreement of passage ids; order is ignored and a repeated id counts once.

    A gold id such as "missing:<title>", for a passage that is not among the given ones, stays in recall's
    denominator. Evidence from outside `given` (open retrieval) is judged like any other. `given` may be
    empty: then its two figures are None.
    """
    used, wanted, available = set(evidence), set(gold), set(given)
    return SupportScores(
        recall=support_recall(used, wanted),
        precision=support_precision(used, wanted),
        f1=support_f1(used, wanted),
        error_rate=error_rate(used, wanted),
        given_recall=support_recall(available, wanted) if available else None,
        given_error_rate=error_rate(available, wanted),
    )


def support_recall(used: set[str], gold: set[str]) -> float | None:
    """Return share of the gold passages that were used (the paragraph recall of IRCoT; Trivedi et al., ACL 2023)."""
    return len(used & gold) / len(gold) if gold else None


def support_precision(used: set[str], gold: set[str]) -> float | None:
    """Return share of the used passages that are gold (the supporting-fact precision of HotpotQA, over whole
    passages).
    """
    return len(used & gold) / len(used) if used and gold else None


def support_f1(used: set[str], gold: set[str]) -> float | None:
    """Return harmonic mean of recall and precision, 0 without a shared passage (MuSiQue; Trivedi et al., TACL 2022)."""
    return 2 * len(used & gold) / (len(used) + len(gold)) if gold else None


def error_rate(used: set[str], gold: set[str]) -> float | None:
    """Return share of the used passages that are irrelevant: "document error rate", TRACE Table 5 (Fang et al.,
    2024).
    """
    return len(used - gold) / len(used) if used and gold else None

"""A judge's verdicts on a run: accuracy, what has no verdict, and agreement with exact match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kgqa.artifacts.metrics import VerdictSummary
from kgqa.artifacts.verdicts import RIGHT, WRONG, Judgement
from kgqa.scoring.agreement import agreement
from kgqa.scoring.intervals import estimate


def summarise_verdicts(rows: Sequence[Judgement], exact: Sequence[bool], *, seed: int = 0) -> VerdictSummary:
    """Return accuracy in percent over the scored and the failed, with its 95 % bootstrap interval; counts; agreement
    with EM.

    exact: of each row, whether its EM is 1. Without a single verdict there is no accuracy. Agreement is over the
    verdicts of a judge, not over exact matches that were never sent.
    """
    labels = Counter(row.verdict for row in rows if row.verdict is not None)
    return VerdictSummary(
        questions=len(rows),
        accuracy=estimate([row.share if labels else None for row in rows], seed),
        verdicts={label: labels[label] for label in (RIGHT, WRONG, "not_attempted")},
        unscored=sum(row.share is None for row in rows),
        failed=sum(row.fate == "failed" for row in rows),
        exact=sum(row.fate == "exact" for row in rows),
        agreement_with_em=agreement([row.label for row in rows], [RIGHT if is_exact else WRONG for is_exact in exact]),
    )

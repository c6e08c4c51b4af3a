"""Summarize the scores and verdicts of a run for `metrics.json`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TypeVar

from kgqa.artifacts.metrics import (
    UNDEFINED,
    Estimate,
    FoundAndRight,
    Means,
    ScoreSummary,
    VerdictSummary,
    Wording,
)
from kgqa.artifacts.verdicts import RIGHT, WRONG, Judgement
from kgqa.scoring.comparison import agreement
from kgqa.scoring.intervals import estimate, mean, percent
from kgqa.scoring.metrics import PROFILES, abstains, score
from kgqa.scoring.questions import METRICS, ScoredQuestion

T = TypeVar("T")
UNKNOWN = "unknown"  # the group of questions without known hops or type


def summarise(rows: Sequence[ScoredQuestion], *, seed: int = 0) -> ScoreSummary:
    """Return means in percent with 95 % bootstrap intervals.

    A failed question counts as 0 in EM, F1, containment, support recall and support F1. It does not count in support
    precision and error rate. If all questions failed, scores are undefined.
    `context_tokens` and `figures` are means over the questions that report them, `figures_if_right` over those with
    EM 1 (KnowTrace §4.4). `given` scores all passages that come with the questions (TRACE Table 5).

    Raises ValueError: no rows, or rows of several profiles.
    """
    if not rows:
        raise ValueError("no questions to summarise")
    profiles = {row.profile for row in rows}
    if len(profiles) > 1:
        raise ValueError(f"one run is scored by one profile, not by {', '.join(sorted(profiles))}")
    failed = sum(row.answer is None for row in rows)
    answers, supports = [row.answer for row in rows if row.answer is not None], [row.support for row in rows]
    answerable = [row for row in rows if row.question.answerable is not False]
    summary = ScoreSummary(
        questions=len(rows),
        failed=failed,
        answerless=sum(row.answer is not None and not row.answer.strip() for row in rows),
        profile=rows[0].profile,
        scores=_scores(rows, seed),
        answered=_scores([row for row in rows if row.answer is not None], seed) if 0 < failed < len(rows) else None,
        given={
            "support_recall": percent([support.given_recall for support in supports]),
            "support_error_rate": percent([support.given_error_rate for support in supports]),
        },
        wording=Wording(
            words=mean([len(answer.split()) for answer in answers]),
            abstained=percent([abstains(answer) for answer in answers]),
        ),
        found_and_right=_cross_found_and_right(rows),
        context_tokens=mean([row.prediction.context_tokens for row in rows]),
        flags=_sum_flags(rows),
        figures=_mean_figures(rows),
        figures_if_right=_mean_figures([row for row in rows if row.em == 1]) or None,
        by_hops=_breakdown(rows, lambda row: "" if row.question.hops is None else str(row.question.hops)),
        by_type=_breakdown(rows, lambda row: row.question.type),
        profiles={name: _rescore(answerable, name) for name in PROFILES},
    )
    if failed < len(rows):
        return summary
    undefined = {name: UNDEFINED for name, metric in METRICS.items() if not metric.optional}
    return summary.replace(scores=undefined, found_and_right=None, by_hops={}, by_type={}, profiles={})


def _scores(rows: Sequence[ScoredQuestion], seed: int) -> dict[str, Estimate]:
    scores = {name: estimate([metric.share(row) for row in rows], seed) for name, metric in METRICS.items()}
    return {name: score for name, score in scores.items() if score.n or not METRICS[name].optional}


def _cross_found_and_right(rows: Sequence[ScoredQuestion]) -> FoundAndRight | None:
    """Count questions by whether all gold passages were used and the answer is right. None: support is unknown."""
    counts = Counter((row.support_recall == 1, row.em == 1) for row in rows if row.support_recall is not None)
    if not counts:
        return None
    return FoundAndRight(
        found_right=counts[True, True],
        found_wrong=counts[True, False],
        missed_right=counts[False, True],
        missed_wrong=counts[False, False],
    )


def _rescore(rows: Sequence[ScoredQuestion], profile: str) -> dict[str, float | None]:
    scores = [score(row.answer, row.question.answers, profile) for row in rows]
    return {name: percent([score[name] for score in scores]) for name in ("em", "f1")}


def group_rows(rows: Sequence[T], group_of: Callable[[T], str]) -> dict[str, list[T]]:
    """Return rows by group, sorted by name with "unknown" last, or {} if all groups are unknown."""
    groups: dict[str, list[T]] = {}
    for row in rows:
        groups.setdefault(group_of(row) or UNKNOWN, []).append(row)
    if set(groups) == {UNKNOWN}:
        return {}
    return dict(sorted(groups.items(), key=lambda item: (item[0] == UNKNOWN, item[0])))


def _breakdown(rows: Sequence[ScoredQuestion], group_of: Callable[[ScoredQuestion], str]) -> dict[str, Means]:
    return {
        name: {"n": len(group), "em": percent([row.em for row in group]), "f1": percent([row.f1 for row in group])}
        for name, group in group_rows(rows, group_of).items()
    }


def _sum_flags(rows: Sequence[ScoredQuestion]) -> dict[str, int]:
    totals = Counter[str]()
    for row in rows:
        totals.update(row.prediction.flags)
    return dict(sorted(totals.items()))


def _mean_figures(rows: Sequence[ScoredQuestion]) -> dict[str, float]:
    values = defaultdict[str, list[float]](list)
    for row in rows:
        for name, value in row.prediction.figures.items():
            values[name].append(value)
    return {name: fmean(values[name]) for name in sorted(values)}


def summarise_verdicts(rows: Sequence[Judgement], exact: Sequence[bool], *, seed: int = 0) -> VerdictSummary:
    """Return accuracy in percent with its 95 % bootstrap interval, counts of verdicts, and agreement with EM.

    exact: whether EM is 1, for each row. Accuracy counts failed questions as wrong and skips unscored ones. Agreement
    is over answers that the judge saw.
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

"""Summarize the scores and the verdicts of a run, as `metrics.json` has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import fsum
from typing import TypeVar

from kgqa.artifacts.metrics import (
    UNDEFINED,
    EmF1,
    Estimate,
    FoundAndRight,
    Given,
    Group,
    ScoreSummary,
    VerdictSummary,
    Wording,
)
from kgqa.artifacts.verdicts import RIGHT, WRONG, Judgement
from kgqa.scoring.comparison import agreement
from kgqa.scoring.intervals import estimate, mean, percent
from kgqa.scoring.metrics import PROFILES, Score, abstains, score
from kgqa.scoring.questions import METRICS, ScoredQuestion

T = TypeVar("T")
UNKNOWN = "unknown"  # the group of questions without known hops or type


def summarise(rows: Sequence[ScoredQuestion], *, seed: int = 0) -> ScoreSummary:
    """Return means in percent with 95 % bootstrap intervals.

    A failed question counts as 0 in EM, F1, containment, support recall and support F1. It does not count in support
    precision and error rate. `answered` holds the same scores over answered questions only.
    Each score is a mean over the `n` questions that define it, and None if there are none or if all questions failed.
    `context_tokens` and `figures` are means over the questions that report them, `figures_if_right` over those with
    EM 1 (KnowTrace §4.4). `given` scores all passages that come with the questions (TRACE Table 5). `struct_em` is EM
    over questions of type "structural" (Struct-EM of KGP Table 1), if there are any.

    Raises:
        ValueError: no rows, or rows of several profiles.
    """
    if not rows:
        raise ValueError("no questions to summarise")
    profiles = {row.profile for row in rows}
    if len(profiles) > 1:
        raise ValueError(f"one run is scored by one profile, not by {', '.join(sorted(profiles))}")
    failed = sum(row.answer is None for row in rows)
    supports = [row.support for row in rows]
    answerable = [row for row in rows if row.question.answerable is not False]
    summary = ScoreSummary(
        questions=len(rows),
        failed=failed,
        answerless=sum(row.answer is not None and not row.answer.strip() for row in rows),
        profile=rows[0].profile,
        scores=_scores(rows, seed),
        answered=_scores([row for row in rows if row.answer is not None], seed) if 0 < failed < len(rows) else None,
        given=Given(
            support_recall=percent([support.given_recall for support in supports]),
            support_error_rate=percent([support.given_error_rate for support in supports]),
        ),
        wording=_wording([row.answer for row in rows if row.answer is not None]),
        found_and_right=_cross_found_and_right(rows),
        context_tokens=mean([row.prediction.context_tokens for row in rows]),
        flags=_sum_flags(rows),
        figures=_mean_figures(rows),
        figures_if_right=_mean_figures([row for row in rows if row.em == 1]) or None,
        by_hops=_breakdown(rows, lambda row: "" if row.question.hops is None else str(row.question.hops)),
        by_type=_breakdown(rows, lambda row: row.question.type),
        profiles={
            name: _mean_scores([score(row.answer, row.question.answers, name) for row in answerable])
            for name in PROFILES
        },
    )
    return summary if failed < len(rows) else without_scores(summary)


def _scores(rows: Sequence[ScoredQuestion], seed: int) -> dict[str, Estimate]:
    scores = {name: estimate([metric.share(row) for row in rows], seed) for name, metric in METRICS.items()}
    return {name: score for name, score in scores.items() if score.n or not METRICS[name].optional}


def without_scores(summary: ScoreSummary) -> ScoreSummary:
    """Return the summary of a run whose questions all failed: scores are undefined, not 0."""
    scores = {name: UNDEFINED for name, metric in METRICS.items() if not metric.optional}
    return summary.replace(scores=scores, found_and_right=None, by_hops={}, by_type={}, profiles={})


def _wording(answers: Sequence[str]) -> Wording:
    return Wording(
        words=mean([len(answer.split()) for answer in answers]),
        abstained=percent([abstains(answer) for answer in answers]),
    )


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


def _mean_scores(scores: Sequence[Score]) -> EmF1:
    return EmF1(em=percent([score["em"] for score in scores]), f1=percent([score["f1"] for score in scores]))


def group_rows(rows: Sequence[T], group_of: Callable[[T], str]) -> dict[str, list[T]]:
    """Return rows by group, sorted by name with "unknown" last, or {} if the dataset has no groups."""
    groups: dict[str, list[T]] = {}
    for row in rows:
        groups.setdefault(group_of(row) or UNKNOWN, []).append(row)
    if set(groups) == {UNKNOWN}:
        return {}
    return dict(sorted(groups.items(), key=lambda item: (item[0] == UNKNOWN, item[0])))


def _breakdown(rows: Sequence[ScoredQuestion], group_of: Callable[[ScoredQuestion], str]) -> dict[str, Group]:
    return {name: _group(grouped) for name, grouped in group_rows(rows, group_of).items()}


def _group(rows: Sequence[ScoredQuestion]) -> Group:
    return Group(n=len(rows), em=percent([row.em for row in rows]), f1=percent([row.f1 for row in rows]))


def _sum_flags(rows: Sequence[ScoredQuestion]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update(row.prediction.flags)
    return dict(sorted(totals.items()))


def _mean_figures(rows: Sequence[ScoredQuestion]) -> dict[str, float]:
    reported = [row.prediction.figures for row in rows]
    names = sorted({name for figures in reported for name in figures})
    known = {name: [figures[name] for figures in reported if name in figures] for name in names}
    return {name: fsum(values) / len(values) for name, values in known.items()}


def summarise_verdicts(rows: Sequence[Judgement], exact: Sequence[bool], *, seed: int = 0) -> VerdictSummary:
    """Return accuracy in percent with its 95 % bootstrap interval, counts of verdicts, and agreement with EM.

    exact: whether EM is 1, for each row.
    Accuracy is over questions with a verdict and failed ones, and None without any verdict. Agreement is over the
    judge's verdicts, without exact matches that were not sent to it.
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

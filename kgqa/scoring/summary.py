"""Summarize the scores and verdicts of a run for `metrics.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

from kgqa.artifacts.metrics import (
    UNDEFINED,
    Estimate,
    FoundAndRight,
    ScoreSummary,
    VerdictSummary,
    Wording,
)
from kgqa.artifacts.verdicts import RIGHT, WRONG, Judgement, list_verdicts
from kgqa.scoring.agreement import agreement
from kgqa.scoring.intervals import estimate, mean, percent
from kgqa.scoring.metrics import available_profiles, containment, score
from kgqa.scoring.normalization import count_words
from kgqa.scoring.questions import (
    BUILT_IN,
    METRICS,
    ScoredQuestion,
    Share,
    find_failed_metrics,
)

T = TypeVar("T")
V = TypeVar("V")
Groups = dict[str, dict[str, int | Estimate]]
# the group of questions without known hops or type
UNKNOWN = "unknown"
_EM_AND_F1: Mapping[str, Share] = {"em": lambda row: row.em, "f1": lambda row: row.f1}
# the name of the judge's accuracy in a group
JUDGE = "judge"


def summarise(rows: Sequence[ScoredQuestion]) -> ScoreSummary:
    """Return means in percent with 95 % intervals.

    A failed question counts as 0 in EM, F1 and containment. It does not count in the scores of support. If all
    questions failed, scores are undefined.
    `context_tokens` and `figures` are means over the questions that report them, `figures_if_right` over those with
    EM 1 (KnowTrace §4.4). `given` scores all passages that come with the questions (TRACE Table 5).

    Raises ValueError: no rows, or rows of several profiles.
    """
    if not rows:
        raise ValueError("no questions to summarize")
    profiles = {row.profile for row in rows}
    if len(profiles) > 1:
        raise ValueError(f"one run is scored by one profile, not by {', '.join(sorted(profiles))}")
    answered = [row for row in rows if row.answer is not None]
    answerable = [row for row in rows if row.question.answerable is not False]
    scores = _scores(rows)
    # the scores have called the metrics
    failed_metrics = find_failed_metrics(rows)
    own = {
        name: metric.share
        for name, metric in METRICS.items()
        if name not in BUILT_IN and name not in failed_metrics
    }
    shares = {**_EM_AND_F1, **own}
    summary = ScoreSummary(
        questions=len(rows),
        failed=len(rows) - len(answered),
        answerless=sum(row.answer is not None and not row.answer.strip() for row in answered),
        profile=rows[0].profile,
        scores=scores,
        answered=_scores(answered) if 0 < len(answered) < len(rows) else None,
        failed_metrics=failed_metrics or None,
        given={
            "support_recall": percent(row.given.recall for row in rows),
            "support_error_rate": percent(row.given.error_rate for row in rows),
        },
        wording=Wording(
            words=mean(count_words(row.answer).total() for row in rows if row.answer is not None),
            abstained=percent(row.abstained for row in answered),
        ),
        found_and_right=_cross_found_and_right(rows),
        context_tokens=mean(row.prediction.context_tokens for row in rows),
        flags=_sum_flags(rows),
        figures=_mean_figures(rows),
        figures_if_right=_mean_figures([row for row in rows if row.em == 1]) or None,
        by_hops=_by_hops(rows, shares),
        by_type=_by_type(rows, shares),
        profiles=_rescore(answerable),
    )
    if answered:
        return summary
    undefined = {name: UNDEFINED for name, metric in METRICS.items() if not metric.optional}
    return summary.replace(
        scores=undefined, found_and_right=None, by_hops={}, by_type={}, profiles={}
    )


def _by_hops(rows: Sequence[ScoredQuestion], shares: Mapping[str, Share]) -> Groups:
    return group_scores(rows, lambda row: row.question.hops, shares, estimate)


def _by_type(rows: Sequence[ScoredQuestion], shares: Mapping[str, Share]) -> Groups:
    return group_scores(rows, lambda row: row.question.type, shares, estimate)


def group_verdicts(
    rows: Sequence[ScoredQuestion], verdicts: Sequence[Judgement]
) -> dict[str, Groups]:
    """Return the accuracy by the judge of each group: `by_hops` and `by_type`. verdicts: on these answers."""
    right = list_verdicts(verdicts)
    shares: dict[str, Share] = {JUDGE: lambda row: right[row.id]}
    return {"by_hops": _by_hops(rows, shares), "by_type": _by_type(rows, shares)}


def _scores(rows: Sequence[ScoredQuestion]) -> dict[str, Estimate]:
    scores = {
        name: estimate([metric.share(row) for row in rows]) for name, metric in METRICS.items()
    }
    return {name: score for name, score in scores.items() if score.n or not METRICS[name].optional}


def _cross_found_and_right(rows: Sequence[ScoredQuestion]) -> FoundAndRight | None:
    """Count questions by whether all gold passages were used and the answer is right. None: support is unknown.

    Failed questions are not counted.
    """
    counts = Counter(
        (row.support.recall == 1, row.em == 1) for row in rows if row.support.recall is not None
    )
    if not counts:
        return None
    return FoundAndRight(
        found_right=counts[True, True],
        found_wrong=counts[True, False],
        missed_right=counts[False, True],
        missed_wrong=counts[False, False],
    )


def _rescore(rows: Sequence[ScoredQuestion]) -> dict[str, dict[str, float | None]]:
    """Return EM, F1 and containment in percent by profile."""
    profiles = available_profiles()
    shares: dict[str, dict[str, list[float | None]]] = {
        profile: {"em": [], "f1": [], "containment": []} for profile in profiles
    }
    # all profiles of an answer together, because only few long texts are cached
    for row in rows:
        pair = (row.answer, row.question.answers)
        for profile in profiles:
            scores = {**score(*pair, profile), "containment": containment(*pair, profile)}
            for name, share in scores.items():
                shares[profile][name].append(share)
    return {
        profile: {name: percent(values) for name, values in columns.items()}
        for profile, columns in shares.items()
    }


def group_scores(
    rows: Sequence[T],
    group_of: Callable[[T], int | str | None],
    shares: Mapping[str, Callable[[T], float | None]],
    measure: Callable[[Iterable[float | None]], V],
) -> dict[str, dict[str, int | V]]:
    """Return the size of each group and the measure of its shares, sorted by name with "unknown" last.

    If all groups are unknown (None or ""), return {}.
    """
    groups: dict[str, list[T]] = {}
    for row in rows:
        group = group_of(row)
        groups.setdefault(UNKNOWN if group in (None, "") else str(group), []).append(row)
    if set(groups) == {UNKNOWN}:
        return {}
    return {
        name: {
            "n": len(groups[name]),
            **{key: measure(map(share, groups[name])) for key, share in shares.items()},
        }
        for name in sorted(groups, key=lambda name: (name == UNKNOWN, name))
    }


def _sum_flags(rows: Sequence[ScoredQuestion]) -> dict[str, int]:
    totals = Counter[str]()
    for row in rows:
        totals.update(row.prediction.flags)
    return dict(sorted(totals.items()))


def _mean_figures(rows: Sequence[ScoredQuestion]) -> dict[str, float]:
    all_figures = [row.prediction.figures for row in rows]
    names = sorted({name for figures in all_figures for name in figures})
    return {
        name: fmean(figures[name] for figures in all_figures if name in figures) for name in names
    }


def summarise_verdicts(rows: Sequence[Judgement], exact: Sequence[bool]) -> VerdictSummary:
    """Return accuracy in percent with its 95 % interval, counts of verdicts, and agreement with EM.

    exact: whether EM is 1, for each row. Accuracy counts failed questions as wrong and skips unscored ones. Agreement
    is over answers that the judge saw.
    """
    labels = Counter(row.verdict for row in rows if row.verdict is not None)
    return VerdictSummary(
        questions=len(rows),
        accuracy=estimate([row.share if labels else None for row in rows]),
        verdicts={label: labels[label] for label in (RIGHT, WRONG, "not_attempted")},
        unscored=sum(row.share is None for row in rows),
        failed=sum(row.fate == "failed" for row in rows),
        exact=sum(row.fate == "exact" for row in rows),
        agreement_with_em=agreement(
            [row.label for row in rows], [RIGHT if is_exact else WRONG for is_exact in exact]
        ),
    )

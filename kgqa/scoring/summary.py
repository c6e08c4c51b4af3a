"""The scores of a whole run: what `metrics.json` says, apart from its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import fsum

from kgqa.artifacts.metrics import UNDEFINED, EmF1, Estimate, FoundAndRight, Given, Group, Scores, ScoreSummary, Wording
from kgqa.scoring.answer_style import abstains, word_count
from kgqa.scoring.intervals import estimate, mean, percent
from kgqa.scoring.metrics import PROFILES, Score, score
from kgqa.scoring.questions import ScoredQuestion

STRUCTURAL = "structural"  # the type of questions about a document's pages and tables (KGP §4)
_UNKNOWN = "unknown"  # the group of questions whose hops or type the dataset does not say


def summarise(rows: Sequence[ScoredQuestion], *, seed: int = 0) -> ScoreSummary:
    """Return means in percent with 95 % bootstrap intervals.

    A failed question counts 0 in EM, F1, containment, support recall and support F1, and is left out of support
    precision and error rate. Every score is over the questions that define it, `n` of them; with n = 0 its figures are
    None, as all are where every question failed. `context_tokens` and each of `figures` are means over the questions
    that report them, `figures_if_right` over those of them that were answered exactly (KnowTrace §4.4). `given` is how
    the passages the questions came with would score if all were read (TRACE Table 5). `struct_em`, KGP Table 1's
    Struct-EM, is EM over the questions of type "structural"; it is there only if there are such.

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
    summary = ScoreSummary(
        questions=len(rows),
        failed=failed,
        answerless=sum(row.answer is not None and not row.answer.strip() for row in rows),
        profile=rows[0].profile,
        scores=_scores(rows, seed),
        given=Given(
            support_recall=percent([support.given_recall for support in supports]),
            support_error_rate=percent([support.given_error_rate for support in supports]),
        ),
        wording=_wording([row.answer for row in rows if row.answer is not None]),
        found_and_right=_measure_found_and_right(rows),
        context_tokens=mean([row.prediction.context_tokens for row in rows]),
        flags=_sum_flags(rows),
        figures=_mean_figures(rows),
        figures_if_right=_mean_figures([row for row in rows if row.em == 1]) or None,
        by_hops=_breakdown(rows, lambda row: _UNKNOWN if row.question.hops is None else str(row.question.hops)),
        by_type=_breakdown(rows, lambda row: row.question.type or _UNKNOWN),
        profiles={
            name: _mean_scores([score(row.answer, row.question.answers, name) for row in rows]) for name in PROFILES
        },
    )
    return summary if failed < len(rows) else without_scores(summary)


def _scores(rows: Sequence[ScoredQuestion], seed: int) -> Scores:
    supports = [row.support for row in rows]
    return Scores(
        em=estimate([row.em for row in rows], seed),
        f1=estimate([row.f1 for row in rows], seed),
        containment=estimate([row.containment for row in rows], seed),
        struct_em=_structural(rows, seed),
        support_recall=estimate([support.recall for support in supports], seed),
        support_precision=estimate([support.precision for support in supports], seed),
        support_f1=estimate([support.f1 for support in supports], seed),
        support_error_rate=estimate([support.error_rate for support in supports], seed),
    )


def without_scores(summary: ScoreSummary) -> ScoreSummary:
    """Return the summary of a run that answered nothing, without scores. None of them is 0."""
    scores = Scores(**{name: UNDEFINED for name, field in Scores.model_fields.items() if field.is_required()})
    return summary.replace(scores=scores, found_and_right=None, by_hops={}, by_type={}, profiles={})


def _wording(answers: Sequence[str]) -> Wording:
    return Wording(
        words=mean([word_count(answer) for answer in answers]),
        abstained=percent([abstains(answer) for answer in answers]),
    )


def _measure_found_and_right(rows: Sequence[ScoredQuestion]) -> FoundAndRight | None:
    """Of the questions whose gold passages are known; None where there are none, or passages were not said."""
    counts = Counter((row.support_recall == 1, row.em == 1) for row in rows if row.support_recall is not None)
    if not counts:
        return None
    return FoundAndRight(
        found_right=counts[True, True],
        found_wrong=counts[True, False],
        missed_right=counts[False, True],
        missed_wrong=counts[False, False],
    )


def _structural(rows: Sequence[ScoredQuestion], seed: int) -> Estimate | None:
    scores = [row.em for row in rows if row.question.type == STRUCTURAL]
    return estimate(scores, seed) if scores else None


def _mean_scores(scores: Sequence[Score]) -> EmF1:
    return EmF1(em=percent([score["em"] for score in scores]), f1=percent([score["f1"] for score in scores]))


def _breakdown(rows: Sequence[ScoredQuestion], group_of: Callable[[ScoredQuestion], str]) -> Mapping[str, Group]:
    """Return mean scores per group, groups by name; {} where the dataset names no group at all."""
    groups: dict[str, list[ScoredQuestion]] = {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    if set(groups) == {_UNKNOWN}:
        return {}
    return {name: _group(groups[name]) for name in sorted(groups, key=lambda name: (name == _UNKNOWN, name))}


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

"""The scores of a whole run: what `metrics.json` says, apart from its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from kgqa.scoring.intervals import estimate, mean, percent
from kgqa.scoring.metrics import PROFILES, Score, profile_formula, score
from kgqa.scoring.support import SupportScores, support
from kgqa.types import Json

STRUCTURAL = "structural"  # the type of questions about a document's pages and tables (KGP §4)
_UNKNOWN = "unknown"  # the group of questions whose hops or type the dataset does not say


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """One prediction beside what it is measured against."""

    question_id: str
    answer: str | None  # None: there is no answer
    error: str | None  # why the question failed; an answer beside an error is not scored
    golds: tuple[str, ...]
    profile: str
    evidence: tuple[str, ...]
    support: frozenset[str]
    given: tuple[str, ...]
    context_tokens: int | None
    hops: int | None
    type: str
    flags: Mapping[str, int]
    figures: Mapping[str, float]

    @property
    def prediction(self) -> str | None:
        """What may be scored: None for a failed question."""
        return self.answer if self.error is None else None


def summarise(rows: Sequence[ScoredQuestion], *, seed: int = 0) -> dict[str, Json]:
    """Means in percent with 95 % bootstrap intervals, ready for `json.dumps`.

    A failed question counts 0 in EM, F1, support recall and support F1, and is left out of support precision
    and error rate. Every score is over the questions that define it, `n` of them; with n = 0 its figures are
    None. `context_tokens` and each of `figures` are means over the questions that report them. `given` is how the
    passages the questions came with would score if all were read (TRACE Table 5). `struct_em`, KGP Table 1's
    Struct-EM, is EM over the questions of type "structural"; it is there only if there are such.

    Raises:
        ValueError: no rows, rows of several profiles, or a question without gold answers.
        ConfigError: no such profile.
    """
    if not rows:
        raise ValueError("no questions to summarise")
    profiles = {row.profile for row in rows}
    if len(profiles) > 1:
        raise ValueError(f"one run is scored by one profile, not by {', '.join(sorted(profiles))}")
    profile = rows[0].profile
    profile_formula(profile)  # an unknown one is refused before any work
    by_profile = {name: [score(row.prediction, row.golds, name) for row in rows] for name in PROFILES}
    answers = by_profile[profile]
    supports = [_support_of(row) for row in rows]
    return {
        "questions": len(rows),
        "failed": sum(row.prediction is None for row in rows),
        "answerless": sum(row.prediction is not None and not row.prediction.strip() for row in rows),
        "profile": profile,
        "scores": {
            "em": estimate([answer["em"] for answer in answers], seed),
            "f1": estimate([answer["f1"] for answer in answers], seed),
            **_structural(rows, answers, seed),
            "support_recall": estimate([each.recall for each in supports], seed),
            "support_precision": estimate([each.precision for each in supports], seed),
            "support_f1": estimate([each.f1 for each in supports], seed),
            "support_error_rate": estimate([each.error_rate for each in supports], seed),
        },
        "given": {
            "support_recall": percent([each.given_recall for each in supports]),
            "support_error_rate": percent([each.given_error_rate for each in supports]),
        },
        "context_tokens": mean([row.context_tokens for row in rows]),
        "flags": _sum_flags(rows),
        "figures": _mean_figures(rows),
        "by_hops": _breakdown(rows, answers, lambda row: _UNKNOWN if row.hops is None else str(row.hops)),
        "by_type": _breakdown(rows, answers, lambda row: row.type or _UNKNOWN),
        "profiles": {name: _mean_scores(scores) for name, scores in by_profile.items()},
    }


def _structural(rows: Sequence[ScoredQuestion], answers: Sequence[Score], seed: int) -> dict[str, Json]:
    scores = [answer["em"] for row, answer in zip(rows, answers, strict=True) if row.type == STRUCTURAL]
    return {"struct_em": estimate(scores, seed)} if scores else {}


def _support_of(row: ScoredQuestion) -> SupportScores:
    evidence = () if row.prediction is None else row.evidence  # a failed question has used nothing
    return support(evidence, row.support, row.given)


def _mean_scores(scores: Sequence[Score]) -> dict[str, float | None]:
    return {"em": percent([each["em"] for each in scores]), "f1": percent([each["f1"] for each in scores])}


def _breakdown(
    rows: Sequence[ScoredQuestion], scores: Sequence[Score], group_of: Callable[[ScoredQuestion], str]
) -> dict[str, Json]:
    """Mean scores per group, groups by name; {} where the dataset names no group at all."""
    groups: dict[str, list[Score]] = {}
    for row, each in zip(rows, scores, strict=True):
        groups.setdefault(group_of(row), []).append(each)
    if set(groups) == {_UNKNOWN}:
        return {}
    in_order = sorted(groups, key=lambda name: (name == _UNKNOWN, name))
    return {name: {"n": len(groups[name]), **_mean_scores(groups[name])} for name in in_order}


def _sum_flags(rows: Sequence[ScoredQuestion]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update(row.flags)
    return dict(sorted(totals.items()))


def _mean_figures(rows: Sequence[ScoredQuestion]) -> dict[str, float]:
    names = sorted({name for row in rows for name in row.figures})
    known = {name: [row.figures[name] for row in rows if name in row.figures] for name in names}
    return {name: fsum(values) / len(values) for name, values in known.items()}

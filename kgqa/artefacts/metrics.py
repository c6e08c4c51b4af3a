"""`metrics.json`: a run's scores, what it cost and how its engines were used. Scores are in percent.

What some runs have no figures for is None here, and no key of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import LEFT_OUT, Number, as_json, read
from kgqa.types import Json

METRICS = "metrics.json"
Figures = Mapping[str, str | Number | None]  # named by whoever measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean with the ends of its 95 % bootstrap interval, over the `n` questions that define it; of 0: None."""

    mean: Number | None
    low: Number | None
    high: Number | None
    n: int


UNDEFINED = Estimate(mean=None, low=None, high=None, n=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    em: Estimate
    f1: Estimate
    containment: Estimate | None = field(default=None, metadata=LEFT_OUT)  # runs of 0.1 have none
    struct_em: Estimate | None = field(default=None, metadata=LEFT_OUT)  # only where questions are structural
    support_recall: Estimate
    support_precision: Estimate
    support_f1: Estimate
    support_error_rate: Estimate

    def named(self) -> dict[str, Estimate]:
        """By their names in the file, in its order."""
        scores = {
            "em": self.em,
            "f1": self.f1,
            "containment": self.containment,
            "struct_em": self.struct_em,
            "support_recall": self.support_recall,
            "support_precision": self.support_precision,
            "support_f1": self.support_f1,
            "support_error_rate": self.support_error_rate,
        }
        return {name: score for name, score in scores.items() if score is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The passages the questions came with, as if all were read."""

    support_recall: Number | None
    support_error_rate: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmF1:
    em: Number | None
    f1: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    n: int
    em: Number | None
    f1: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Of the answers of questions that did not fail; with none of them the figures are None."""

    words: Number | None  # mean length
    abstained: Number | None  # percent that say they have no answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAndRight:
    """Questions by whether all gold passages were among those used, and whether the answer is an exact match."""

    found_right: int
    found_wrong: int
    missed_right: int
    missed_wrong: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """What answers are worth, whoever gave them."""

    questions: int
    failed: int
    answerless: int
    profile: str
    scores: Scores
    given: Given
    wording: Wording | None = field(default=None, metadata=LEFT_OUT)
    found_and_right: FoundAndRight | None = field(default=None, metadata=LEFT_OUT)  # where both are defined
    context_tokens: Number | None
    flags: Mapping[str, int]
    figures: Mapping[str, Number] = field(default_factory=dict)
    figures_if_right: Mapping[str, Number] | None = field(default=None, metadata=LEFT_OUT)
    by_hops: Mapping[str, Group]
    by_type: Mapping[str, Group]
    profiles: Mapping[str, EmF1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flagged:
    """Calls whose reply carries a flag, and their share of all calls."""

    calls: int
    share: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCost:
    """US dollars are None where the price is not known."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int | None = field(default=None, metadata=LEFT_OUT)  # of the output, where models thought
    seconds: Number
    usd: Number | None = None
    flags: Mapping[str, Flagged] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(RoleCost):
    """Of all roles together, and of each."""

    calls_per_question: Number | None
    by_role: Mapping[str, RoleCost]
    queue_seconds: Number | None = field(default=None, metadata=LEFT_OUT)  # only of what was paid


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """`method`: as if nothing had been cached. `paid`: what this command asked. Extraction is in neither."""

    method: Cost
    paid: Cost
    extraction_paid: Cost | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Tokens per second; None where every reply came from the cache."""

    prompt: Number | None
    output: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineUse:
    """`mean_calls`: in flight, idle time counted in. `capacity`: calls it takes at once, on average where that changes.
    `full_share`: of the time, with nearly all of these places taken, so that the engine and not the run was the limit;
    None in runs of earlier versions."""

    engine: str
    roles: tuple[str, ...]
    busy_share: Number
    mean_calls: Number
    capacity: int
    full_share: Number | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    seconds: Number
    tokens_per_second: Rates
    engines: tuple[EngineUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSeconds:
    """Of a question's model calls one after another, cached ones with the time they once took: quantiles."""

    p50: Number
    p95: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """`recall`, `all_gold`: by budget of passages. A group's figures: `n`, and its recall by budget.

    `page_recall`: any passage of the right page counts; only where it differs, as on IIRC.
    """

    n: int
    ranked: bool
    recall: Mapping[str, Estimate]
    page_recall: Mapping[str, Estimate] | None = field(default=None, metadata=LEFT_OUT)
    all_gold: Mapping[str, Number | None]
    fixed_budget_recall: Number | None
    mrr: Number | None
    passages_per_question: Number | None
    without_passages: int
    by_hops: Mapping[str, Mapping[str, Number | None]]
    by_type: Mapping[str, Mapping[str, Number | None]]
    alarm: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    length: Number | None
    documents_per_question: Number | None
    document_error_rate_percent: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """`confusion`: {first: {second: count}}; with n = 0 the figures are None."""

    n: int
    left_out: int
    percent: Number | None
    kappa: Number | None
    confusion: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSummary:
    questions: int
    accuracy: Estimate
    verdicts: Mapping[str, int]
    unscored: int
    failed: int
    exact: int
    agreement_with_em: Agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMetrics:
    """A `VerdictSummary` with who judged and what it cost."""

    judge: str
    models: Mapping[str, str]  # by role
    prompts: Mapping[str, str]  # their hashes
    questions: int
    accuracy: Estimate
    verdicts: Mapping[str, int]
    unscored: int
    failed: int
    exact: int
    agreement_with_em: Agreement
    cost: Costs
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(ScoreSummary):
    """`calls`, `cache_hits`, `call_seconds`: by kind of call. `graph`, `passage_graph`: figures of what was built."""

    cost: Costs
    throughput: Throughput | None = field(default=None, metadata=LEFT_OUT)
    calls: Mapping[str, int]
    cache_hits: Mapping[str, int]
    call_seconds: Mapping[str, Number] | None = field(default=None, metadata=LEFT_OUT)
    retrieval: Retrieval | None = field(default=None, metadata=LEFT_OUT)
    chains: Chains | None = field(default=None, metadata=LEFT_OUT)
    seconds: Number | None = field(default=None, metadata=LEFT_OUT)
    question_seconds: QuestionSeconds | None = field(default=None, metadata=LEFT_OUT)
    graph: Figures | None = field(default=None, metadata=LEFT_OUT)
    passage_graph: Figures | None = field(default=None, metadata=LEFT_OUT)
    judge: JudgeMetrics | None = field(default=None, metadata=LEFT_OUT)
    trained_questions: Mapping[str, int] | None = field(default=None, metadata=LEFT_OUT)  # by key, where there are any

    @classmethod
    def read(cls, folder: Path) -> Metrics:
        """Raises DataError: the run has not ended, or its file is damaged; the key is named."""
        return read(Metrics, folder / METRICS)

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written

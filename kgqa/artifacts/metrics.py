"""`metrics.json`: a run's scores, what it cost and how its engines were used. Scores are in percent.

What some runs have no figures for is None here, and no key of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kgqa.artifacts.schema import Artifact, Number, omit_none, read

METRICS = "metrics.json"
Figures = Mapping[str, str | Number | None]  # named by whoever measures


class Estimate(Artifact):
    """A mean with the ends of its 95 % bootstrap interval, over the `n` questions that define it; of 0: None."""

    mean: Number | None
    low: Number | None
    high: Number | None
    n: int


UNDEFINED = Estimate(mean=None, low=None, high=None, n=0)


class Scores(Artifact):
    em: Estimate
    f1: Estimate
    containment: Estimate | None = omit_none()  # runs of 0.1 have none
    struct_em: Estimate | None = omit_none()  # only where questions are structural
    support_recall: Estimate
    support_precision: Estimate
    support_f1: Estimate
    support_error_rate: Estimate

    def named(self) -> dict[str, Estimate]:
        """Return the metrics by their names in the file, in its order."""
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


class Given(Artifact):
    """The passages the questions came with, as if all were read."""

    support_recall: Number | None
    support_error_rate: Number | None


class EmF1(Artifact):
    em: Number | None
    f1: Number | None


class Group(Artifact):
    n: int
    em: Number | None
    f1: Number | None


class Wording(Artifact):
    """Of the answers of questions that did not fail; with none of them the figures are None."""

    words: Number | None  # mean length
    abstained: Number | None  # percent that say they have no answer


class FoundAndRight(Artifact):
    """Questions by whether all gold passages were among those used, and whether the answer is an exact match."""

    found_right: int
    found_wrong: int
    missed_right: int
    missed_wrong: int


class ScoreSummary(Artifact):
    """The scores of a set of answers, independent of the method that gave them."""

    questions: int
    failed: int
    answerless: int
    profile: str
    scores: Scores
    given: Given
    wording: Wording | None = omit_none()
    found_and_right: FoundAndRight | None = omit_none()  # where both are defined
    context_tokens: Number | None
    flags: Mapping[str, int]
    figures: Mapping[str, Number] = {}
    figures_if_right: Mapping[str, Number] | None = omit_none()
    by_hops: Mapping[str, Group]
    by_type: Mapping[str, Group]
    profiles: Mapping[str, EmF1]


class Flagged(Artifact):
    """Calls whose reply carries a flag, and their share of all calls."""

    calls: int
    share: Number


class RoleCost(Artifact):
    """US dollars are None where the price is not known."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int | None = omit_none()  # of the output, where models thought
    seconds: Number
    usd: Number | None = None
    flags: Mapping[str, Flagged] = {}


class Cost(RoleCost):
    """Of all roles together, and of each."""

    calls_per_question: Number | None
    by_role: Mapping[str, RoleCost]
    queue_seconds: Number | None = omit_none()  # only of what was paid


class Costs(Artifact):
    """`method`: as if nothing had been cached. `paid`: what this command asked. Extraction is in neither."""

    method: Cost
    paid: Cost
    extraction_paid: Cost | None = omit_none()


class Rates(Artifact):
    """Tokens per second; None where every reply came from the cache."""

    prompt: Number | None
    output: Number | None


class EngineUse(Artifact):
    """`mean_calls`: in flight, idle time counted in. `capacity`: calls it takes at once, on average where that changes.
    `full_share`: of the time, with nearly all of these places taken, so that the engine and not the run was the limit;
    None in runs of earlier versions."""

    engine: str
    roles: tuple[str, ...]
    busy_share: Number
    mean_calls: Number
    capacity: int
    full_share: Number | None = omit_none()


class Throughput(Artifact):
    seconds: Number
    tokens_per_second: Rates
    engines: tuple[EngineUse, ...]


class QuestionSeconds(Artifact):
    """Of a question's model calls one after another, cached ones with the time they once took: quantiles."""

    p50: Number
    p95: Number


class Retrieval(Artifact):
    """`recall`, `all_gold`: by budget of passages. A group's figures: `n`, and its recall by budget.

    `page_recall`: any passage of the right page counts; only where it differs, as on IIRC.
    """

    n: int
    ranked: bool
    recall: Mapping[str, Estimate]
    page_recall: Mapping[str, Estimate] | None = omit_none()
    all_gold: Mapping[str, Number | None]
    fixed_budget_recall: Number | None
    mrr: Number | None
    passages_per_question: Number | None
    without_passages: int
    by_hops: Mapping[str, Mapping[str, Number | None]]
    by_type: Mapping[str, Mapping[str, Number | None]]
    alarm: str | None


class Chains(Artifact):
    length: Number | None
    documents_per_question: Number | None
    document_error_rate_percent: Number | None


class Agreement(Artifact):
    """`confusion`: {first: {second: count}}; with n = 0 the figures are None."""

    n: int
    left_out: int
    percent: Number | None
    kappa: Number | None
    confusion: Mapping[str, Mapping[str, int]]


class VerdictSummary(Artifact):
    questions: int
    accuracy: Estimate
    verdicts: Mapping[str, int]
    unscored: int
    failed: int
    exact: int
    agreement_with_em: Agreement


class JudgeMetrics(Artifact):
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


class Metrics(ScoreSummary):
    """`calls`, `cache_hits`, `call_seconds`: by kind of call. `graph`, `passage_graph`: figures of what was built."""

    cost: Costs
    throughput: Throughput | None = omit_none()
    calls: Mapping[str, int]
    cache_hits: Mapping[str, int]
    call_seconds: Mapping[str, Number] | None = omit_none()
    retrieval: Retrieval | None = omit_none()
    chains: Chains | None = omit_none()
    seconds: Number | None = omit_none()
    question_seconds: QuestionSeconds | None = omit_none()
    graph: Figures | None = omit_none()
    passage_graph: Figures | None = omit_none()
    judge: JudgeMetrics | None = omit_none()
    trained_questions: Mapping[str, int] | None = omit_none()  # by key, where there are any

    @classmethod
    def read(cls, folder: Path) -> Metrics:
        """Raise DataError: the run has not ended, or its file is damaged; the key is named."""
        return read(Metrics, folder / METRICS)

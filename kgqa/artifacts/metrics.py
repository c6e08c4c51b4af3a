"""`metrics.json`: a run's scores, what it cost and how its engines were used. Scores are in percent.

What some runs have no figures for is None here, and no key of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from kgqa.artifacts.schema import Artifact, Number, as_json, omit_none, read
from kgqa.types import Json

METRICS = "metrics.json"
ANSWERED_BY = "answered_by:"  # start of a reply's flag: another model than the requested one answered
Figures = Mapping[str, str | Number | None]  # named by whoever measures


class Estimate(Artifact):
    """A mean with the ends of its 95 % bootstrap interval, over the `n` questions that define it; of 0: None."""

    mean: Number | None
    low: Number | None
    high: Number | None
    n: int


UNDEFINED = Estimate(mean=None, low=None, high=None, n=0)


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
    """The scores of a set of answers, independent of the method that gave them.

    scores: by the name of the metric, see `kgqa.scoring.questions.METRICS`. A failed question counts 0.
    answered: the same over the answered questions only, if some failed and some did not.
    """

    questions: int
    failed: int
    answerless: int
    profile: str
    scores: Mapping[str, Estimate]
    answered: Mapping[str, Estimate] | None = omit_none()
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

    @property
    def answered_text(self) -> str:
        """Return "answered 191 of 200", or "" if no question failed."""
        return f"answered {self.questions - self.failed:,} of {self.questions:,}" if self.failed else ""

    def score(self, name: str) -> Estimate:
        """Return a score; one that is not defined for these questions has no mean."""
        return self.scores.get(name, UNDEFINED)


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
    engine: str  # as in "smollm2_135m@llamacpp"
    roles: tuple[str, ...]


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


class JudgeMetrics(VerdictSummary):
    """The verdicts, with who judged and what it cost."""

    judge: str
    models: Mapping[str, str]  # by role
    prompts: Mapping[str, str]  # their hashes
    identity: str | None = omit_none()  # with a hash of settings, code, prompts and engines
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
    predictions: str | None = omit_none()  # sha256 of the file that was scored

    @property
    def other_models(self) -> dict[str, int]:
        """Return the calls that other models answered than the requested ones, by the name of the model."""
        counts = Counter[str]()
        for cost in (self.cost.method, self.cost.extraction_paid):
            for flag, flagged in cost.flags.items() if cost else ():
                if flag.startswith(ANSWERED_BY):
                    counts[flag.removeprefix(ANSWERED_BY)] += flagged.calls
        return dict(counts)

    @classmethod
    def read(cls, folder: Path) -> Metrics:
        """Raise DataError: the run has not ended, or its file is damaged; the key is named."""
        return read(Metrics, folder / METRICS)


class Evaluation(Artifact):
    """`source`: a run's folder or a file. `notes`: what else to know of it, a line each."""

    source: str
    scores: ScoreSummary
    notes: tuple[str, ...]
    judge: JudgeMetrics | None = None

    def json(self) -> dict[str, Json]:  # type: ignore[override]
        scored = {"source": self.source, **as_json(self.scores), "notes": list(self.notes)}
        return scored if self.judge is None else {**scored, "judge": as_json(self.judge)}

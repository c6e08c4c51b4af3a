"""`metrics.json`: the scores of a run in percent, its costs and the use of its engines.

A key that does not apply to a run is None here and missing in the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from kgqa.artifacts.manifest import check_hash
from kgqa.artifacts.schema import Artifact, Count, Number, omit_none, read
from kgqa.util.text import score_text

METRICS = "metrics.json"
# start of a reply's flag: another model than the requested one answered
ANSWERED_BY = "answered_by:"
# of the passages that a retriever finds by their text only, and why
LACKS = {
    "unmatched": "not in the file of triples",
    "failed": "failed model calls of the index",
    "unreadable": "unreadable replies of the model",
    "without_triples": "without triples",
    "without_entities": "without entities",
}
Figures = Mapping[str, str | Number | None]
Means = Mapping[str, Number | None]


class Estimate(Artifact):
    """A mean with its 95 % interval over the `n` questions that define it. All None if there are none."""

    mean: Number | None
    low: Number | None
    high: Number | None
    n: Count

    def __str__(self) -> str:
        return "–" if self.mean is None else f"{score_text(self.mean)}  {self.interval}"

    @property
    def interval(self) -> str:
        """Return the interval as text, "" if there is none."""
        if self.low is None or self.high is None:
            return ""
        return f"[{score_text(self.low)}, {score_text(self.high)}]"


# of a group: `n`, and scores by name. Older runs have means without intervals
Estimates = Mapping[str, Estimate | Number | None]
UNDEFINED = Estimate(mean=None, low=None, high=None, n=0)


class Wording(Artifact):
    """The style of the answers of questions that did not fail. None: all failed."""

    words: Number | None  # mean length
    # percent that say they have no answer
    abstained: Number | None


class FoundAndRight(Artifact):
    """Numbers of questions: all gold passages were used or not, and the answer is an exact match or not."""

    found_right: Count
    found_wrong: Count
    missed_right: Count
    missed_wrong: Count


class ScoreSummary(Artifact):
    """The scores of answers, independent of the method.

    scores: by metric, see `kgqa.scoring.questions.METRICS`. A failed question counts as 0.
    answered: the same over answered questions only, if some questions failed.
    failed_metrics: the user's metrics that failed on an answer and have no score, with the first error.
    """

    questions: Count
    failed: Count
    answerless: Count
    profile: str
    # what the gold answers lack: "without aliases"
    missing_golds: str | None = omit_none()
    scores: Mapping[str, Estimate]
    answered: Mapping[str, Estimate] | None = omit_none()
    failed_metrics: Mapping[str, str] | None = omit_none()
    # support recall and error rate of all passages that come with the questions
    given: Means
    wording: Wording | None = omit_none()
    found_and_right: FoundAndRight | None = omit_none()  # where both are defined
    context_tokens: Number | None
    flags: Mapping[str, Count]
    figures: Mapping[str, Number] = {}
    figures_if_right: Mapping[str, Number] | None = omit_none()
    # n, em, f1 and your own metrics of each group
    by_hops: Mapping[str, Estimates]
    by_type: Mapping[str, Estimates]
    profiles: Mapping[str, Means]  # em, f1, containment

    @property
    def answered_questions(self) -> int:
        """Return the number of questions without the failed ones, by which costs are divided."""
        return self.questions - self.failed

    @property
    def answered_text(self) -> str:
        """Return "answered 191 of 200", or "" if no question failed."""
        return f"answered {self.answered_questions:,} of {self.questions:,}" if self.failed else ""

    @property
    def profile_text(self) -> str:
        """Return "2wiki profile, without aliases"."""
        return f"{self.profile} profile{f', {self.missing_golds}' if self.missing_golds else ''}"

    def score(self, name: str) -> Estimate:
        """Return a score. Its mean is None if the questions do not define it."""
        return self.scores.get(name, UNDEFINED)


class Flagged(Artifact):
    """The number and share of calls with a flag in their reply."""

    calls: Count
    share: Number


class RoleCost(Artifact):
    calls: Count
    failed: Count | None = omit_none()  # of the calls: without a reply
    prompt_tokens: Count
    cached_tokens: Count
    output_tokens: Count
    reasoning_tokens: Count | None = omit_none()  # of the output
    seconds: Number
    usd: Number | None = None  # None: unknown price
    flags: Mapping[str, Flagged] = {}


class Cost(RoleCost):
    """The cost of all roles."""

    calls_per_question: Number | None
    by_role: Mapping[str, RoleCost]
    queue_seconds: Number | None = omit_none()  # only of paid calls


class Costs(Artifact):
    """`method`: as if nothing had been cached. `paid`: new calls of this command. Both without extraction.

    `extraction`, `extraction_paid`: the same of the triples that were extracted before the questions.
    """

    method: Cost
    paid: Cost
    extraction: Cost | None = omit_none()
    extraction_paid: Cost | None = omit_none()

    @property
    def new_replies(self) -> int:
        """Return the number of new calls without those that failed although they were charged."""
        return self.paid.calls - (self.paid.failed or 0)


class EngineUse(Artifact):
    engine: str  # such as "smollm2_135m@llamacpp"
    roles: tuple[str, ...]


class Throughput(Artifact):
    seconds: Number
    # prompt, output. None: every reply came from the cache
    tokens_per_second: Means
    engines: tuple[EngineUse, ...]


class Retrieval(Artifact):
    """The retrieval of the questions that did not fail.

    `recall`, `all_gold`: by budget of passages. `by_hops`, `by_type`: `n`, and recall by budget, of each group.

    `page_recall`: recall if any passage of the right page counts. Only if it differs, as on IIRC.
    `leaf_recall`: recall of all retrieved passages and of those under retrieved summaries. Only with summaries.
    `without_entities`: questions without an entity of the corpus. Only of retrievers that start from entities.
    """

    n: Count
    ranked: bool
    recall: Mapping[str, Estimate]
    page_recall: Mapping[str, Estimate] | None = omit_none()
    all_gold: Means
    leaf_recall: Number | None = omit_none()
    without_entities: Count | None = omit_none()
    fixed_budget_recall: Number | None
    mrr: Number | None
    passages_per_question: Number | None
    most_passages: int | None = omit_none()  # of a question
    without_passages: Count
    by_hops: Mapping[str, Means]
    by_type: Mapping[str, Means]
    alarm: str | None

    @property
    def budgets(self) -> tuple[str, ...]:
        """Return the budgets that differ: one that no question exceeds is the last."""
        numbers = sorted(self.recall, key=int)
        enough = (
            int(budget)
            for budget in numbers
            if self.most_passages and int(budget) >= self.most_passages
        )
        last = next(enough, None)
        return tuple(budget for budget in numbers if last is None or int(budget) <= last)


class LabelAgreement(Artifact):
    """`confusion`: {first: {second: count}}. `percent`, `kappa`: None if n is 0."""

    n: Count
    left_out: Count
    percent: Number | None
    kappa: Number | None
    confusion: Mapping[str, Mapping[str, Count]]


class VerdictSummary(Artifact):
    questions: Count
    accuracy: Estimate
    verdicts: Mapping[str, Count]
    unscored: Count
    failed: Count
    exact: Count
    agreement_with_em: LabelAgreement

    @property
    def has_verdicts(self) -> bool:
        """Return whether some answer has a verdict, or there are no answers to judge."""
        answers = self.questions - self.failed
        return self.unscored < answers or not answers


class JudgeMetrics(VerdictSummary):
    """`members`: the accuracy by each member of a panel. `pairs`: the agreement of each two of them.

    corrected: the accuracy after correction by labels. `by_hops`, `by_type`: n and `judge`, the accuracy of each group.
    """

    judge: str
    models: Mapping[str, str]  # by role
    prompts: Mapping[str, str]  # their hashes
    # name and hash of settings, code, prompts and engines
    identity: str | None = omit_none()
    cost: Costs
    warnings: tuple[str, ...]
    members: Mapping[str, Estimate] | None = omit_none()
    pairs: Mapping[str, LabelAgreement] | None = omit_none()
    corrected: Estimate | None = omit_none()
    by_hops: Mapping[str, Estimates] | None = omit_none()
    by_type: Mapping[str, Estimates] | None = omit_none()


class Metrics(ScoreSummary):
    """`calls`, `cache_hits`, `call_seconds`: by kind of call. `graph`, `passage_graph`: figures of the graphs."""

    cost: Costs
    throughput: Throughput | None = omit_none()
    calls: Mapping[str, Count]
    cache_hits: Mapping[str, Count]
    call_seconds: Mapping[str, Number] | None = omit_none()
    retrieval: Retrieval | None = omit_none()
    # `passages`, and those that lack something, see LACKS
    retriever: Mapping[str, Count] | None = omit_none()
    chains: Means | None = omit_none()
    seconds: Number | None = omit_none()
    # p50, p95 of the model seconds per question
    question_seconds: Mapping[str, Number] | None = omit_none()
    graph: Figures | None = omit_none()
    passage_graph: Figures | None = omit_none()
    judge: JudgeMetrics | None = omit_none()
    trained_questions: Mapping[str, Count] | None = omit_none()  # by key
    # replies from a file of `kgqa cache import`: all that the cache has, such as searches and the judge's
    imported: Count | None = omit_none()
    predictions: str | None = omit_none()  # sha256 of the scored file

    @property
    def other_models(self) -> dict[str, int]:
        """Return the number of calls that other models than the requested ones answered, by model."""
        return _count_other_models(self.cost)

    @property
    def other_judges(self) -> dict[str, int]:
        """Return the same of the judge's calls."""
        return _count_other_models(self.judge.cost) if self.judge else {}

    @classmethod
    def read(cls, folder: Path) -> Metrics:
        """Read the metrics of a run. Raises DataError if it is not finished, or its file is damaged or was changed."""
        metrics = read(Metrics, folder / METRICS)
        check_hash(folder, METRICS)
        return metrics


def _count_other_models(costs: Costs) -> dict[str, int]:
    counts = Counter[str]()
    for cost in (costs.method, costs.extraction_paid):
        for flag, flagged in cost.flags.items() if cost else ():
            if flag.startswith(ANSWERED_BY):
                counts[flag.removeprefix(ANSWERED_BY)] += flagged.calls
    return dict(counts)

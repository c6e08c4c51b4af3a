"""Score a question: its answer against the gold answers, its evidence against the gold passages.

`METRICS` is the registry: the built-in metrics and those of the user's `conf/metric/`. Each metric in it is in
metrics.json, reports, sweeps, comparisons, the viewer and exports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kgqa.artifacts.metrics import UNDEFINED, Estimate, ScoreSummary
from kgqa.artifacts.predictions import Prediction
from kgqa.errors import ConfigError, DataError
from kgqa.scoring.comparison import mark_direction
from kgqa.scoring.metrics import abstains, containment, score
from kgqa.scoring.own_metrics import OwnMetric, list_own_metrics
from kgqa.types import Json, Question

# flags of method=verify
VERDICTS = (VALID, NOISE, UNVERIFIED) = ("valid", "noise", "unverified")
# the type of questions about a document's pages and tables (KGP §4)
STRUCTURAL = "structural"


@dataclass(frozen=True, slots=True)
class SupportScores:
    """Agreement of used passages with gold passages, as shares in 0..1.

    All are None if the gold passages are unknown, or the question failed. Without used passages recall and F1 are 0,
    and precision and error rate are None.
    """

    # share of the gold passages that were used (IRCoT's paragraph recall)
    recall: float | None = None
    # share of the used passages that are gold (HotpotQA's, of passages)
    precision: float | None = None
    f1: float | None = None  # harmonic mean of both (MuSiQue)
    # share of the used passages that are not gold (TRACE Table 5)
    error_rate: float | None = None


class OwnScores:
    """The shares of a run's answers by the user's metrics.

    A metric is called once per answer, when its first share is used. If it fails on one answer, no answer has a share:
    the mean of the others would be that of other questions than EM's.
    """

    def __init__(self, answers: Mapping[str, tuple[Question, Prediction]]) -> None:
        self._answers = answers
        self._shares = dict[OwnMetric, Mapping[str, float | None]]()
        # by name of the metric
        self.failures = dict[str, str]()

    def share(self, metric: OwnMetric, question_id: str) -> float | None:
        """Return the share of an answer. None: the question does not define it, or the metric fails."""
        if metric not in self._shares:
            self._shares[metric] = self._score(metric)
        return self._shares[metric].get(question_id)

    def _score(self, metric: OwnMetric) -> dict[str, float | None]:
        try:
            return {key: metric.share(*answer) for key, answer in self._answers.items()}
        except ConfigError as error:
            self.failures[metric.name] = f"metric {metric.name} has no score: {error}"
            return {}


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """A question with its prediction and scores, as shares in 0..1. A failed one has EM and F1 0, and no support."""

    question: Question
    prediction: Prediction
    profile: str
    em: float
    f1: float
    # None: the profile does not count the answer
    containment: float | None
    support: SupportScores
    # of all passages that come with the question, as if they were used
    given: SupportScores
    # by the user's metrics, of all questions of the run
    own: OwnScores = field(compare=False, repr=False)
    # answered, and abstained from its twin. None: no twin was answered
    pair_right: bool | None = None

    @property
    def id(self) -> str:
        return self.question.id

    @property
    def answer(self) -> str | None:
        """Return the answer to score: None for a failed question."""
        return self.prediction.scored_answer

    @property
    def abstained(self) -> bool:
        return has_abstained(self.prediction)

    @property
    def answerability(self) -> float | None:
        """Return 1 if an answer or abstention agrees with the dataset, otherwise 0. None: the dataset does not say."""
        if self.question.answerable is None:
            return None
        return float(self.answer is not None and self.abstained != self.question.answerable)


Share = Callable[[ScoredQuestion], float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """A score of questions. Its mean in percent is `scores.NAME` in metrics.json.

    share: of a question, from 0 to 1. None: the question does not define it.
    listed: whether summaries and reports show it.
    column: whether sweeps and the viewer show it.
    tested: whether `kgqa compare` tests it.
    of: what it measures. A run omits those of answers or of passages if the method has none.
    of_golds: whether it compares with the gold answers.
    optional: whether metrics.json omits it if no question defines it.
    """

    name: str
    label: str
    share: Share
    listed: bool = True
    column: bool = False
    tested: bool = False
    of: Literal["answer", "passages", "question"] = "answer"
    of_golds: bool = False
    optional: bool = False
    lower_is_better: bool = False

    @property
    def title(self) -> str:
        return mark_direction(self.label, lower_is_better=self.lower_is_better)


def _unless_unanswerable(share: Share) -> Share:
    return lambda row: None if row.question.answerable is False else share(row)


def _of_pair(share: Share) -> Share:
    return lambda row: None if row.pair_right is None else share(row) if row.pair_right else 0.0


def find_verdict(prediction: Prediction) -> str | None:
    """Return what method=verify decided about the question, or None for another method and a failed question."""
    return next((flag for flag in VERDICTS if flag in prediction.flags), None)


def _is_noise(row: ScoredQuestion) -> float | None:
    verdict = find_verdict(row.prediction)
    return None if verdict is None else float(verdict == NOISE)


_LIST = (
    Metric(
        "em",
        "EM",
        _unless_unanswerable(lambda row: row.em),
        column=True,
        tested=True,
        of_golds=True,
    ),
    Metric(
        "f1",
        "F1",
        _unless_unanswerable(lambda row: row.f1),
        column=True,
        tested=True,
        of_golds=True,
    ),
    Metric(
        "containment",
        "containment",
        _unless_unanswerable(lambda row: row.containment),
        column=True,
        of_golds=True,
    ),
    # MuSiQue-Full's An+Suff and Sp+Suff F1 (Trivedi et al., TACL 2022)
    Metric("pair_f1", "F1 of pairs", _of_pair(lambda row: row.f1), optional=True),
    Metric(
        "pair_support_f1",
        "support F1 of pairs",
        _of_pair(lambda row: row.support.f1),
        optional=True,
    ),
    # 1 - risk, at the coverage n / questions
    Metric(
        "selective_em",
        "EM of given answers",
        lambda row: (
            None if row.answerability is None or row.answer is None or row.abstained else row.em
        ),
        optional=True,
    ),
    Metric("answerability", "answerability", lambda row: row.answerability, optional=True),
    Metric(
        "correct_abstention",
        "abstained, of unanswerable",
        lambda row: float(row.abstained) if row.question.answerable is False else None,
        optional=True,
    ),
    Metric(
        "false_abstention",
        "abstained, of answerable",
        lambda row: float(row.abstained) if row.question.answerable else None,
        optional=True,
        lower_is_better=True,
    ),
    # KGP Table 1's Struct-EM
    Metric(
        "struct_em",
        "EM of structural questions",
        lambda row: row.em if row.question.type == STRUCTURAL else None,
        optional=True,
    ),
    Metric(
        "support_recall",
        "support recall",
        lambda row: row.support.recall,
        column=True,
        of="passages",
    ),
    Metric(
        "support_precision", "support precision", lambda row: row.support.precision, of="passages"
    ),
    Metric("support_f1", "support F1", lambda row: row.support.f1, listed=False, of="passages"),
    Metric(
        "support_error_rate",
        "support error rate",
        lambda row: row.support.error_rate,
        of="passages",
        lower_is_better=True,
    ),
    # SAFE's Table 2: of all questions that did not fail
    Metric(
        "noise", "noise", _is_noise, column=True, of="question", optional=True, lower_is_better=True
    ),
)
BUILT_IN = {metric.name: metric for metric in _LIST}
# other names that metrics= and the rows of questions use. Those of costs are in `report.columns`
RESERVED = ("judge", "corrected", "calls", "tokens", "seconds", "usd")
# of the columns of `kgqa.report.columns` that are no metrics
_LABELS_OF_JUDGES = ("judge accuracy", "judge accuracy, corrected")


class _Registry(Mapping[str, Metric]):
    """The built-in metrics and those of the user's folder, by name."""

    def __getitem__(self, name: str) -> Metric:
        return self._metrics()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics())

    def __len__(self) -> int:
        return len(self._metrics())

    def items(self) -> ItemsView[str, Metric]:
        # the inherited method would list the user's files once per metric
        return self._metrics().items()

    def _metrics(self) -> Mapping[str, Metric]:
        own = list_own_metrics()
        if clashes := own.keys() & {*BUILT_IN, *RESERVED}:
            file = own[min(clashes)].file
            raise ConfigError(f"{file}: kgqa has a metric of this name. Rename the file")
        _check_labels(own.values())
        return (
            {**BUILT_IN, **{name: _wrap(name, metric) for name, metric in own.items()}}
            if own
            else BUILT_IN
        )


def _check_labels(own: Iterable[OwnMetric]) -> None:
    """Raise ConfigError if a metric has the label of another score: tables and comparisons name scores by labels."""
    labels = (*(metric.label for metric in BUILT_IN.values()), *_LABELS_OF_JUDGES)
    owners = {label.casefold(): "kgqa" for label in labels}
    for metric in own:
        owner = owners.setdefault(metric.label.casefold(), str(metric.file))
        if owner != str(metric.file):
            raise ConfigError(
                f"{metric.file}: {owner} has a score with the label {metric.label}. Write another label: in this file"
            )


def _wrap(name: str, metric: OwnMetric) -> Metric:
    return Metric(
        name,
        metric.label,
        lambda row: row.own.share(metric, row.id),
        column=True,
        tested=True,
        lower_is_better=metric.lower_is_better,
    )


METRICS = _Registry()
_DIGITS = 6  # of a score in percent


def percent_scores(
    row: ScoredQuestion | None, summary: ScoreSummary | None
) -> dict[str, float | None]:
    """Return a question's scores in percent. None: the run or the question does not define the score."""
    scores: dict[str, float | None] = {}
    for name, metric in METRICS.items():
        if not metric.optional or (summary and name in summary.scores):
            share = metric.share(row) if row and summary and summary.score(name).n else None
            scores[name] = None if share is None else round(100 * share, _DIGITS)
    return scores


def show_score(summary: ScoreSummary, name: str) -> Estimate:
    """Return a score for tables: undefined if it is one of passages and no question used any."""
    uses_passages = summary.score("support_precision").n > 0
    is_defined = uses_passages or METRICS[name].of != "passages"
    return summary.score(name) if is_defined else UNDEFINED


def collect_shares(rows: Sequence[ScoredQuestion]) -> dict[str, dict[str, float | None]]:
    """Return the share of each question by score."""
    return {name: {row.id: metric.share(row) for row in rows} for name, metric in METRICS.items()}


def prediction_lines(
    rows: Iterable[ScoredQuestion], summary: ScoreSummary
) -> Iterator[dict[str, Json]]:
    """Yield the lines of `predictions.jsonl`: each question with its gold answers, its answer and its scores."""
    for row in rows:
        line, scores = row.prediction.json(), percent_scores(row, summary)
        first = {
            "question_id": row.id,
            "question": row.question.text,
            "gold": list(row.question.answers),
        }
        answered = {
            "answer": line["answer"],
            "error": line["error"],
            "em": scores["em"],
            "f1": scores["f1"],
        }
        yield {**first, **answered, **line}


def score_questions(
    questions: Iterable[Question], predictions: Mapping[str, Prediction], profile: str
) -> list[ScoredQuestion]:
    """Score the questions of a run in order. Raises as `score_question`."""
    rows = [score_question(question, predictions[question.id], profile) for question in questions]
    own = OwnScores({row.id: (row.question, row.prediction) for row in rows})
    right = {row.id: row.answerability == 1 for row in rows}
    return [
        replace(
            row,
            own=own,
            pair_right=right[row.id] and right[row.question.twin]
            if row.question.twin in right
            else None,
        )
        for row in rows
    ]


def score_question(question: Question, prediction: Prediction, profile: str) -> ScoredQuestion:
    """Score the answer and the evidence of a prediction. An unanswerable question is right if the answer abstains.

    Raises DataError: the question has no gold answer. ConfigError: no such profile.
    """
    if not question.answers:
        raise DataError(f"question {question.id} has no answers, so its answer cannot be scored")
    answer = prediction.scored_answer
    shares = score(answer, question.answers, profile)
    contained = containment(answer, question.answers, profile)
    if question.answerable is False:
        contained = shares["em"] = shares["f1"] = float(has_abstained(prediction))
    evidence = prediction.passages_of(question)
    support = pool_support = SupportScores()
    if evidence is not None:
        # what a failed question would have used is unknown: its failure is no miss of the retriever
        if answer is not None:
            support = score_support(evidence, question.support)
        if question.passages:
            pool_support = score_support(
                [passage.id for passage in question.passages], question.support
            )
    return ScoredQuestion(
        question,
        prediction,
        profile,
        shares["em"],
        shares["f1"],
        contained,
        support,
        pool_support,
        OwnScores({question.id: (question, prediction)}),
    )


def find_failed_metrics(rows: Iterable[ScoredQuestion]) -> dict[str, str]:
    """Return for each of the user's metrics that failed on an answer, by name, a line with its first error."""
    failures: dict[str, str] = {}
    for row in rows:
        failures = {**row.own.failures, **failures}
    return failures


def has_abstained(prediction: Prediction) -> bool:
    """Return whether a program says that the question is unanswerable. Without such a field its answer says so."""
    if prediction.scored_answer is None:
        return False
    return (
        abstains(prediction.scored_answer)
        if prediction.answerable is None
        else not prediction.answerable
    )


def score_support(evidence: Collection[str], gold: Collection[str]) -> SupportScores:
    """Compare sets of passage ids."""
    used, wanted = set(evidence), set(gold)
    if not wanted:
        return SupportScores()
    hits = len(used & wanted)
    return SupportScores(
        recall=hits / len(wanted),
        precision=hits / len(used) if used else None,
        f1=2 * hits / (len(used) + len(wanted)),
        error_rate=len(used - wanted) / len(used) if used else None,
    )

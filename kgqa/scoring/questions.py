"""The one place where a question is scored: its answer against the gold ones, its evidence against the support."""

from __future__ import annotations

from dataclasses import dataclass

from kgqa.artifacts.predictions import Prediction
from kgqa.errors import DataError
from kgqa.scoring.answer_style import contains_gold
from kgqa.scoring.metrics import score
from kgqa.scoring.support import SupportScores, support
from kgqa.types import Question


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """Shares in 0..1; a failed question has EM, F1 and support recall 0, and no precision."""

    question: Question
    prediction: Prediction
    profile: str
    em: float
    f1: float
    containment: float
    support: SupportScores  # all None where nothing is said of the passages, or no gold passage is known

    @property
    def id(self) -> str:
        return self.question.id

    @property
    def answer(self) -> str | None:
        """Return what may be scored: None for a failed question."""
        return self.prediction.scored_answer

    @property
    def support_recall(self) -> float | None:
        return self.support.recall


def score_question(question: Question, prediction: Prediction, profile: str) -> ScoredQuestion:
    """
    Raises:
        DataError: the question has no gold answer.
        ConfigError: no such profile.
    """
    if not question.answers:
        raise DataError(f"question {question.id} has no answers, so nothing can be scored against it")
    answer = prediction.scored_answer
    shares = score(answer, question.answers, profile)
    contained = 0.0 if answer is None else contains_gold(answer, question.answers)
    evidence = prediction.passages_of(question)
    gold = question.support if evidence is not None else frozenset()
    used = evidence if evidence is not None and answer is not None else ()
    given = [passage.id for passage in question.passages]
    agreement = support(used, gold, given)
    return ScoredQuestion(question, prediction, profile, shares["em"], shares["f1"], contained, agreement)

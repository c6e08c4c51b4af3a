"""Questions that somebody has just put: answered and told, not scored and not kept in a run's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kgqa.artefacts.predictions import Prediction
from kgqa.artefacts.trace import TracedQuestion
from kgqa.experiment.prepare.indexes import opened_index
from kgqa.experiment.prepare.prepared import prepare
from kgqa.experiment.prepare.triples import Added
from kgqa.experiment.run.answering import answer
from kgqa.experiment.session.session import Session
from kgqa.runtime.display import Display
from kgqa.runtime.folder import traced_question
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Question


@dataclass(frozen=True, slots=True)
class Heard:
    """Who is told: of each of the method's calls when it is answered, of each extraction when it is made."""

    call: Callable[[CallRecord], None] = lambda _: None
    extraction: Added = lambda _: None


NOBODY = Heard()


def answer_given(session: Session, display: Display, heard: Heard = NOBODY) -> list[TracedQuestion]:
    """Each question of the experiment with what led to its answer, in the order in which they ended.

    A question that failed has its error in place of an answer.
    """
    told: list[TracedQuestion] = []
    with opened_index(session, display) as index:
        prepared = prepare(session, index, display, heard.extraction).prepared
        with session.runner(prepared) as runner:
            runner.heard = heard.call
            answer(session.experiment, runner, _Listed(told), display)
    return told


class _Listed:
    def __init__(self, told: list[TracedQuestion]) -> None:
        self._told = told

    def record(self, question: Question, prediction: Prediction, records: Iterable[CallRecord]) -> None:
        self._told.append(traced_question(question, prediction, records))

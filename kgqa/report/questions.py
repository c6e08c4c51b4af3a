"""The questions and calls of a run as rows. Values that depend on the method are JSON texts: one type per column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS, Prediction, run_predictions
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.schema import AGAIN
from kgqa.artifacts.trace import (
    TRACE,
    CallCost,
    TracedQuestion,
    choose_own_calls,
    read_costs,
    read_question,
    read_trace,
)
from kgqa.artifacts.verdicts import Judgement, Judgements
from kgqa.errors import DataError
from kgqa.scoring.questions import (
    ScoredQuestion,
    percent_scores,
    score_question,
    show_score,
)
from kgqa.types import Json, Question
from kgqa.util.fs import replace_file
from kgqa.util.text import score_text

_USED = ("prompt_tokens", "cached_tokens", "output_tokens", "seconds")  # by a call
ROUNDING = 0.1  # points
Value = str | int | float | bool | list[str] | None
Row = Mapping[str, Value]
QuestionRow = dict[str, Json]  # see `ReportedQuestion`


@dataclass(frozen=True, slots=True)
class ReportedQuestion:
    """A question with its trace and the judge's votes on its answer.

    row: the question, its answer (None: it failed), a key per score in percent (None: undefined), the judge's verdict
    or "unscored" (None: this answer was not judged), and its costs without the cache.
    """

    row: QuestionRow
    traced: TracedQuestion
    judgement: Judgement | None


def report_question(traced: TracedQuestion) -> ReportedQuestion:
    """Return a question of no run with its row. It has no scores, because there is no gold answer."""
    row = _build_row(traced.question, traced.prediction, traced.calls)
    return ReportedQuestion(row, traced, None)


def _build_row(
    question: Question,
    prediction: Prediction,
    calls: tuple[CallCost, ...],
    metrics: Metrics | None = None,
    scored: ScoredQuestion | None = None,
    judgement: Judgement | None = None,
) -> QuestionRow:
    calls = choose_own_calls(calls)
    usages = [usage for call in calls if (usage := call.usage)]
    return {
        "question_id": question.id,
        "question": question.text,
        "gold": list(question.answers),
        "answer": prediction.scored_answer,
        "error": prediction.error,
        **_show_percents(scored, metrics),
        "verdict": judgement.shown if judgement else None,
        "hops": question.hops,
        "type": question.type,
        "flags": dict(prediction.flags),
        "context_tokens": prediction.context_tokens,
        "calls": len(calls),
        # those that failed, too
        "model_calls": sum(call.kind in ("generate", "choose") for call in calls),
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "output_tokens": sum(usage.output_tokens for usage in usages),
    }


def _show_percents(
    scored: ScoredQuestion | None, metrics: Metrics | None
) -> dict[str, float | None]:
    """Return the scores of a question, without those of passages if the run used none."""
    percents = percent_scores(scored, metrics)
    if metrics is None:
        return percents
    return {
        name: value if show_score(metrics, name).n else None for name, value in percents.items()
    }


def is_right(row: QuestionRow) -> bool:
    """Return whether the answer is an exact match."""
    return bool(row["em"] == 100)


class RunQuestions:
    """The questions of a run in the data file's order. Their rows are in memory, their calls are read when needed."""

    def __init__(self, run: FinishedRun, scored: Iterable[ScoredQuestion] = ()) -> None:
        """Read the rows.

        scored: the questions whose scores are known. The others are scored here.

        Raises DataError: the trace is damaged, or lacks a question of the predictions.
        """
        self._run, self._judgements = run, Judgements(run.folder)
        self.predictions = {each.question_id: each for each in run_predictions(run.folder)}
        self._offsets = dict[str, int]()
        rows = dict[str, QuestionRow]()
        by_id = {row.id: row for row in scored}
        for offset, question, calls in read_costs(run.folder):
            self._offsets[question.id] = offset
            if prediction := self.predictions.get(question.id):
                score = by_id.get(question.id) or score_question(
                    question, prediction, run.metrics.profile
                )
                judgement = self._judgements.of(prediction)
                rows[question.id] = _build_row(
                    question, prediction, calls, run.metrics, score, judgement
                )
        self.rows: dict[str, QuestionRow] = {}
        for question_id in self.predictions:
            if question_id not in rows:
                raise DataError(
                    f"{run.folder / TRACE}: no question {question_id}, which {PREDICTIONS} has. {AGAIN}"
                )
            self.rows[question_id] = rows[question_id]
        self._check_scores()

    def _check_scores(self) -> None:
        """Raise a DataError if EM or F1 of the metrics are not those of the answers, which were scored again."""
        for name in ("em", "f1"):
            mean = self._run.metrics.score(name).mean
            values = [row[name] for row in self.rows.values() if row[name] is not None]
            if mean is not None and values and abs(mean - fmean(values)) > ROUNDING:
                raise DataError(
                    f"{self._run.folder / METRICS}: scores.{name}.mean={score_text(mean)}, but its answers have "
                    f"{score_text(fmean(values))}. {AGAIN}"
                )

    def __iter__(self) -> Iterator[ReportedQuestion]:
        return map(self.question, self.rows)

    def question(self, question_id: str) -> ReportedQuestion:
        """Return one question with its calls. Raises DataError: the run does not have it."""
        if question_id not in self.rows:
            raise DataError(f"{question_id}: no such question in {self._run.folder}")
        traced = read_question(self._run.folder, self._offsets[question_id])
        return ReportedQuestion(
            self.rows[question_id], traced, self._judgements.of(traced.prediction)
        )


def prediction_rows(run: FinishedRun) -> Iterator[Row]:
    """Yield a row per question, in the data file's order."""
    questions = RunQuestions(run)
    for question_id, row in questions.rows.items():
        prediction = questions.predictions[question_id]
        read = {
            "evidence": prediction.evidence or (),
            "evidence_titles": prediction.evidence_titles if prediction.error is None else None,
            "figures": prediction.figures,
        }
        yield {key: _value(value) for key, value in {**row, **read}.items()}


def call_rows(run: FinishedRun) -> Iterator[Row]:
    """Yield a row per call, in the order in which their questions finished.

    request, reply: JSON as in the trace. text: generated by a model. path: see `TracedCall`.
    """
    for traced in read_trace(run.folder):
        for number, call in enumerate(traced.calls):
            yield {
                "question_id": traced.question.id,
                "number": number,
                "path": ".".join(map(str, call.path)),
                "call": call.kind,
                "role": call.role,
                "template": call.template,
                "request": _json(
                    {key: value for key, value in call.request.items() if key != "role"}
                ),
                "reply": _json(call.reply),
                "text": call.text,
                "error": call.error,
                **{name: getattr(call.usage, name, None) for name in _USED},
                "cached": call.cached,
                "queued": call.queued,
            }


def write_jsonl(rows: Iterable[Mapping[str, Json]], file: Path) -> None:
    replace_file(file, (f"{_json(row)}\n" for row in rows))


def _value(value: Json) -> Value:
    result: Value = (
        _json(value)
        if isinstance(value, Mapping)
        else list(value)
        if isinstance(value, tuple)
        else value
    )
    return result


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)

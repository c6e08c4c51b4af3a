"""`predictions.jsonl`: the answer to each question. It holds no times, so that equal runs give equal bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from pydantic import ValidationError

from kgqa.artifacts.manifest import check_hash
from kgqa.artifacts.schema import (
    Artifact,
    Count,
    Number,
    as_json,
    check_json,
    explain,
    read_lines,
    validate,
)
from kgqa.errors import DataError
from kgqa.types import Answer, Json, Lesson, Question
from kgqa.util.redaction import describe_error

PREDICTIONS = "predictions.jsonl"
# of a running run, in the order in which questions finish
PARTIAL_PREDICTIONS = "predictions.partial.jsonl"
_KEYS = (
    "answer",
    "error",
    "evidence",
    "evidence_titles",
    "context_tokens",
    "flags",
    "figures",
    "lessons",
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to a question. Its passages are in `evidence`, `titles` or `places`, or unknown (all None)."""

    question_id: str
    answer: str | None  # None: failed or not answered
    # an answer with an error is not scored
    error: str | None = None
    evidence: tuple[str, ...] | None = None  # passage ids
    titles: tuple[str, ...] | None = None  # only of other programs' predictions
    # of the question's passages, from 0, only of other programs' predictions
    places: tuple[int, ...] | None = None
    # whether the program says so; None: its answer says so. Only of other programs
    answerable: bool | None = None
    evidence_titles: tuple[str, ...] = ()  # of `evidence`
    context_tokens: Count | None = None
    flags: Mapping[str, Count] = field(default_factory=dict)
    figures: Mapping[str, Number] = field(default_factory=dict)
    # only for the trace: chains, reasoning, …
    notes: Mapping[str, Json] = field(default_factory=dict)
    lessons: tuple[Lesson, ...] = ()

    @classmethod
    def of(cls, question: Question, outcome: Answer | Exception) -> Prediction:
        """Build the prediction from a method's answer, or from the error that it raised."""
        if isinstance(outcome, Exception):
            return cls(question.id, None, describe_error(outcome), ())
        same = {
            each.name: getattr(outcome, each.name)
            for each in fields(outcome)
            if each.name != "text"
        }
        return cls(question.id, outcome.text, **same)

    @classmethod
    def of_json(
        cls,
        record: Mapping[str, Json],
        question_id: str,
        place: str,
        notes: Mapping[str, Json] | None = None,
    ) -> Prediction:
        """Read a line of a run's file, or one with only an answer. Raises DataError if a value has the wrong type."""
        values = {key: record[key] for key in _KEYS if record.get(key) is not None}
        try:
            prediction = validate(
                cls, {"answer": None, **values, "question_id": question_id, "notes": notes or {}}
            )
        except ValidationError as error:
            raise DataError(f"{place}: {explain(error)}") from error
        return replace(
            prediction,
            error=prediction.error or ("no answer" if prediction.answer is None else None),
        )

    @property
    def scored_answer(self) -> str | None:
        """Return the answer, or None for a failed question."""
        return self.answer if self.error is None else None

    def passages_of(self, question: Question) -> tuple[str, ...] | None:
        """Return the ids of the passages, or None if unknown. A title without a passage counts as a passage."""
        if self.titles is not None:
            by_title = {
                title: [p.id for p in question.passages if p.title == title]
                for title in self.titles
            }
            return tuple(
                id_ for title, ids in by_title.items() for id_ in ids or [f"{title} is not given"]
            )
        if self.places is not None:
            return tuple(question.passages[place].id for place in self.places)
        return self.evidence

    def json(self) -> dict[str, Json]:
        """Return a line of the file. A failed question has its error and no figures."""
        line: dict[str, Json] = {
            "question_id": self.question_id,
            "answer": self.answer,
            "error": self.error,
        }
        line["evidence"] = list(self.evidence or ())
        if self.error is not None:
            return line
        return {
            **line,
            "evidence_titles": list(self.evidence_titles),
            "context_tokens": self.context_tokens,
            "flags": dict(self.flags),
            "figures": dict(self.figures),
            **({"lessons": as_json(self.lessons)} if self.lessons else {}),
        }


def run_predictions(folder: Path) -> list[Prediction]:
    """Read a run's predictions in the order of the data file. Raises DataError: it is not finished, or damaged."""
    check_hash(folder, PREDICTIONS)
    return [
        Prediction.of_json(record, check_json(_SavedLine, record, place).question_id, place)
        for place, record in read_lines(folder / PREDICTIONS)
    ]


def question_ids(folder: Path) -> list[str]:
    """Read the ids of a finished run's questions. Raises DataError as `run_predictions`."""
    return [prediction.question_id for prediction in run_predictions(folder)]


class _SavedLine(Artifact):
    """The keys that every line has."""

    question_id: str
    answer: str | None

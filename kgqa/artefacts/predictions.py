"""`predictions.jsonl`: what was answered to each question. It holds no times, so that equal runs give equal bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import Number, as_json, checked, read_lines
from kgqa.errors import DataError
from kgqa.redaction import told
from kgqa.types import Answer, Json, Lesson, Question

PREDICTIONS = "predictions.jsonl"
PARTIAL_PREDICTIONS = "predictions.partial.jsonl"  # in the order in which questions end, while a run works


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was answered. The passages it rests on, in one of three ways or not at all (None)."""

    question_id: str
    answer: str | None  # None: failed, or not answered
    error: str | None = None  # an answer beside an error is not scored
    evidence: tuple[str, ...] | None = None  # passage ids
    titles: tuple[str, ...] | None = None  # only of others' predictions
    places: tuple[int, ...] | None = None  # among the question's passages, from 0; only of others'
    evidence_titles: tuple[str, ...] = ()  # those of `evidence`
    context_tokens: int | None = None
    flags: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, Number] = field(default_factory=dict)
    notes: Mapping[str, Json] = field(default_factory=dict)  # for the trace alone: chains, thoughts, …
    lessons: tuple[Lesson, ...] = ()

    @classmethod
    def of(cls, question: Question, outcome: Answer | Exception) -> Prediction:
        """What a method came to."""
        if isinstance(outcome, Exception):
            return cls(question.id, None, told(outcome), ())
        return cls(
            question.id,
            outcome.text,
            evidence=outcome.evidence,
            evidence_titles=outcome.evidence_titles,
            context_tokens=outcome.context_tokens,
            flags=outcome.flags,
            figures=outcome.figures,
            notes=outcome.notes,
            lessons=outcome.lessons,
        )

    @classmethod
    def of_json(
        cls, record: Mapping[str, Json], question_id: str, place: str, notes: Mapping[str, Json] | None = None
    ) -> Prediction:
        """A line of a run's file, or one with an answer only; what is not there is not known.

        Raises:
            DataError: a value of the wrong type.
        """
        answer, error = (_text(record.get(key), f"{place}: {key}") for key in ("answer", "error"))
        evidence, titles = (_texts(record.get(key), f"{place}: {key}") for key in ("evidence", "evidence_titles"))
        tokens = record.get("context_tokens")
        if tokens is not None and not is_whole(tokens):
            raise DataError(f"{place}: context_tokens={shortened(tokens)}: must be a whole number")
        return cls(
            question_id,
            answer,
            error or ("no answer" if answer is None else None),
            evidence,
            evidence_titles=titles or (),
            context_tokens=tokens,
            flags=_numbers(record, "flags", place),
            figures=_numbers(record, "figures", place),
            notes=notes or {},
            lessons=checked(tuple[Lesson, ...], record.get("lessons", ()), f"{place}: lessons"),
        )

    @property
    def scored_answer(self) -> str | None:
        """None for a failed question."""
        return self.answer if self.error is None else None

    def passages_of(self, question: Question) -> tuple[str, ...] | None:
        """Ids of the passages used; None where the file does not say. A title no passage has stays in as it is."""
        if self.titles is not None:
            by_title = {title: [p.id for p in question.passages if p.title == title] for title in self.titles}
            return tuple(id_ for title, ids in by_title.items() for id_ in ids or [f"{title} is not given"])
        if self.places is not None:
            return tuple(question.passages[place].id for place in self.places)
        return self.evidence

    def json(self) -> dict[str, Json]:
        """A line of the file; a failed question has nothing but its error."""
        answered: dict[str, Json] = {"question_id": self.question_id, "answer": self.answer, "error": self.error}
        if self.error is not None:
            return {**answered, "evidence": list(self.evidence or ())}
        return {
            **answered,
            "evidence": list(self.evidence or ()),
            "evidence_titles": list(self.evidence_titles),
            "context_tokens": self.context_tokens,
            "flags": dict(self.flags),
            "figures": dict(self.figures),
            **({"lessons": as_json(self.lessons)} if self.lessons else {}),
        }


def run_predictions(folder: Path) -> list[Prediction]:
    """A finished run's, in the data file's order.

    Raises:
        DataError: the run has not ended, or its file is damaged; the line and key are named.
    """
    return [Prediction.of_json(record, record["question_id"], place) for place, record in _lines(folder)]


def question_ids(folder: Path) -> list[str]:
    """What a finished run answered, in the data file's order. Raises DataError as `run_predictions`."""
    return [record["question_id"] for _, record in _lines(folder)]


def _lines(folder: Path) -> Iterator[tuple[str, dict[str, Json]]]:
    for place, record in read_lines(folder / PREDICTIONS):
        if not isinstance(record, dict) or not isinstance(record.get("question_id"), str) or "answer" not in record:
            missing = "answer" if isinstance(record, dict) and "question_id" in record else "question_id"
            raise DataError(f"{place}: {missing} is missing: no prediction; run the same command again to rewrite it")
        yield place, record


def is_whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shortened(value: Json) -> str:
    """For a message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def _text(value: Json, place: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise DataError(f"{place}={shortened(value)}: must be a string")


def _texts(value: Json, place: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return tuple(value)
    raise DataError(f"{place}={shortened(value)}: must be a list of passage ids")


def _numbers(record: Mapping[str, Json], key: str, place: str) -> dict[str, Json]:
    values = record.get(key, {})
    if not isinstance(values, dict):
        raise DataError(f"{place}: {key}: {shortened(values)}: must be an object of keys and values")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{place}: {key}.{name}={shortened(value)}: must be a finite number")
    return values

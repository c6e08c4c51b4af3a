"""Checks every reader makes: the record's schema, its answers, and the set of questions as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from kgqa.datasets.contexts import plain
from kgqa.errors import DataError
from kgqa.types import Json, Question

R = TypeVar("R", bound=BaseModel)
# Keys that only one format has, told apart in this order: a hint for messages, nothing is decided by it.
SIGNATURES = {
    "kgp": "title_chunks",
    "musique": "paragraphs",
    "2wiki": "evidences",
    "hotpotqa": "context",
    "iirc": "contexts",
}


class Gold(BaseModel):
    """The answer fields of a record, in any of the supported formats."""

    answer: str | None = None
    answers: list[str] = []  # in place of `answer`: the first is the answer, the others are aliases
    answer_aliases: list[str] = []
    supporting_titles: list[str] = []  # of records without contexts

    def golds(self, where: str, further: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the answer and its aliases, in order, once each. Blank aliases are dropped: they would reward silence.

        Raises:
            DataError: there is no answer.
        """
        answer = self.answer if self.answer is not None or not self.answers else self.answers[0]
        if answer is None or not answer.strip():
            raise DataError(
                f"{where}: answer={_short(answer)}: a question needs an answer; remove the question, "
                "or use the dev split if this is the test split"
            )
        aliases = [*self.answers, *self.answer_aliases, *further]
        return tuple(dict.fromkeys([answer, *(alias for alias in aliases if alias.strip())]))

    def gold_titles(self, further: Iterable[str] = ()) -> frozenset[str]:
        """Return the titles of the support as passages have them."""
        return frozenset(plain(title) for title in [*self.supporting_titles, *further])


def parse_record(schema: type[R], record: Json, where: str) -> R:
    """Return the record as `schema` describes it; further keys are ignored.

    Raises:
        DataError: the first key that is missing or of the wrong type, text that cannot be written as UTF-8, or a
            record of another dataset.
    """
    refuse_half_surrogates(record, where)
    try:
        valid = schema.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
    else:
        if _foreign(record, schema):
            raise DataError(f"{where}: {_hint(record, schema)}")
        return valid
    key = ".".join(map(str, first["loc"])) or "record"
    hint = _hint(record, schema)
    if first["type"] == "missing":
        raise DataError(f"{where}: no key {key!r}; {hint}")
    raise DataError(f"{where}: {key}={_short(first['input'])}: {first['msg'].lower()}; {hint}")


def check_record(questions: Iterable[tuple[str, Question | None]], file: Path) -> Iterator[Question | None]:
    """Yield the questions as they come.

    Raises:
        DataError: an id a second time, or no question at all.
    """
    places: dict[str, str] = {}
    for where, question in questions:
        if question is not None:
            if question.id in places:
                raise DataError(
                    f"{where}: id {question.id!r} is already taken by {places[question.id]}; remove one of them"
                )
            places[question.id] = where
        yield question
    if not places:
        raise DataError(f"{file}: no answerable questions in this file; fetch it again, or give dataset.path=FILE")


def refuse_half_surrogates(record: Json, where: str) -> None:
    """JSON can spell them ("\\ud800"), but no file, prompt or hash can hold them."""
    rest: list[Json] = [record]
    try:
        while rest:
            value = rest.pop()
            if isinstance(value, str):
                value.encode()
            elif isinstance(value, dict):
                rest += (*value.keys(), *value.values())
            elif isinstance(value, list):
                rest += value
    except UnicodeEncodeError as error:
        spelt = ascii(error.object[error.start])
        raise DataError(f"{where}: {spelt} is half a character, its other half is missing; correct the text") from None


def looks_like(record: Json) -> str | None:
    """Return the dataset whose format the record has, if it is a known one."""
    if not isinstance(record, Mapping):
        return None
    return next((name for name, key in SIGNATURES.items() if key in record), None)


def _foreign(record: Json, schema: type[BaseModel]) -> str | None:
    """Return the dataset a record is of that has nothing of the schema's own format."""
    own = SIGNATURES.values() & schema.model_fields.keys()
    return None if isinstance(record, Mapping) and own & record.keys() else looks_like(record)


def _hint(record: Json, schema: type[BaseModel]) -> str:
    if other := _foreign(record, schema):
        return f"this looks like {other}: run with dataset={other}"
    return "correct the record, or choose the dataset that has this format"


def _short(value: Json) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"

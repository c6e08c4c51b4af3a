"""Checks of all readers: the schema of a record, its answers, its text, and the set of questions."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from kgqa.errors import DataError
from kgqa.types import Json, Question
from kgqa.util.validators import explain_problem

# Locations for messages, and questions; None: a question without an answer
LocatedQuestions = Iterator[tuple[str, Question | None]]
R = TypeVar("R", bound=BaseModel)
# Keys that only one format has, in the order in which they are looked for
SIGNATURES = {
    "golden_answers": "flashrag",
    "title_chunks": "kgp",
    "paragraphs": "musique",
    "evidences": "2wiki",
    "context": "hotpotqa",
    "contexts": "iirc",
}


class Gold(BaseModel):
    """The answer fields of a record, in any of the supported formats."""

    answer: str | None = None
    # instead of `answer`: the first is the answer, the others are aliases
    answers: list[str] = []
    answer_aliases: list[str] = []
    supporting_titles: list[str] = []  # of records without contexts

    def golds(self, where: str, further: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the answer and its aliases, once each, without blank ones. Raise a DataError without an answer."""
        answer = self.answer if self.answer is not None or not self.answers else self.answers[0]
        if answer is None or not answer.strip():
            raise DataError(
                f"{where}: answer={answer!r}: no gold answer. Remove the question, "
                "or use the dev split (test splits have no answers)"
            )
        aliases = [*self.answers, *self.answer_aliases, *further]
        return tuple(dict.fromkeys([answer, *(alias for alias in aliases if alias.strip())]))

    def gold_titles(self, further: Iterable[str] = ()) -> frozenset[str]:
        """Return the titles of the support as passages have them."""
        return frozenset(plain_title(title) for title in [*self.supporting_titles, *further])


def plain_title(title: str) -> str:
    """Return a title with markup entities resolved: HotpotQA escaped its titles but not its texts.

    Only complete entities: `html.unescape` alone would also turn "R&copy" into "R©".
    """
    return (
        re.sub(r"&#?\w+;", lambda entity: html.unescape(entity[0]), title)
        if "&" in title
        else title
    )


def parse_record(schema: type[R], record: Json, where: str) -> R:
    """Return the record as `schema` describes it, without other keys.

    Raises:
        DataError: a key is missing or invalid, a text is not UTF-8, or the record seems to be of another dataset.
    """
    refuse_half_surrogates(record, where)
    keys = record.keys() if isinstance(record, dict) else set[str]()
    own = SIGNATURES.keys() & schema.model_fields.keys()
    other = "" if own & keys else looks_like(record)
    hint = f"This looks like {other}: run with dataset={other}" if other else "Correct the record"
    try:
        valid = schema.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "record"
        if first["type"] == "missing":
            if not other and key in schema.model_fields:
                hint = _describe_form(schema)
            raise DataError(f"{where}: no key {key!r}. {hint}") from None
        raise DataError(
            f"{where}: {key}={shorten(first['input'])}: {explain_problem(first)}. {hint}"
        ) from None
    if issubclass(schema, Gold) and not keys & {"answer", "answers"}:
        _refuse_similar_key(keys - schema.model_fields.keys(), where)
    if own and other:  # all passages would be lost
        raise DataError(f"{where}: {hint}")
    return valid


def _refuse_similar_key(unknown: set[str], where: str) -> None:
    """Raise a DataError if one of the unknown keys of a record without an answer is a misspelled "answer"."""
    # "answerable" is another key, and less similar
    for key in get_close_matches("answer", sorted(unknown), n=1, cutoff=0.8):
        raise DataError(f"{where}: unknown key {key!r}. Did you mean answer? Correct the record")


def _describe_form(schema: type[BaseModel]) -> str:
    """Return which keys a record needs."""
    names = [name for name, field in schema.model_fields.items() if field.is_required()]
    if issubclass(schema, Gold):
        names.append("answer")
    needed = ", ".join(dict.fromkeys(names))
    own = "Without id: dataset=FILE.jsonl. " if "id" in names else ""
    return f"A record needs {needed}. {own}For a file of another form: kgqa new dataset NAME"


def check_questions(questions: LocatedQuestions, file: Path) -> Iterator[Question | None]:
    """Yield the questions. Raise a DataError for a repeated id, an empty id or question, or no question."""
    locations: dict[str, str] = {}
    for where, question in questions:
        if question is not None:
            for name, text in (("id", question.id), ("question", question.text)):
                if not text.strip():
                    raise DataError(f"{where}: the {name} is empty. Correct the record")
            if question.id in locations:
                raise DataError(
                    f"{where}: id {question.id!r} is already used by {locations[question.id]}. Remove one of them"
                )
            locations[question.id] = where
        yield question
    if not locations:
        raise DataError(
            f"{file}: no answerable questions in this file. Name another one: dataset.path=FILE"
        )


def refuse_half_surrogates(record: Json, where: str) -> None:
    """Raise a DataError for text such as "\\ud800", which JSON can contain, but no file, prompt or hash."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        character = ascii(error.object[error.start])
        raise DataError(
            f"{where}: {character} is half a character, its other half is missing. Correct the text"
        ) from None


def looks_like(record: Json) -> str:
    """Return the dataset that a record seems to be of, or ""."""
    keys = record if isinstance(record, dict) else ()
    return next((name for key, name in SIGNATURES.items() if key in keys), "")


def shorten(value: Json) -> str:
    """Return a value for a message, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

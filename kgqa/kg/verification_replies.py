"""The verifier's replies: the forms they are held to, and reading them. Any string is accepted, nothing is made up."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import NamedTuple

from kgqa.json_values import NotJson, first_value
from kgqa.types import Json

_TRIPLE = {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3}
_NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 2}
_LIST = re.compile(r"\[\s*(?=[\[\]])")  # of lists, or empty
_BETWEEN = re.compile(r"[\s,]*")
Triple = tuple[str, str, str]


class Lists(NamedTuple):
    """The lists of texts in a reply, in their order; how many members were none, and whether the end was there."""

    members: tuple[tuple[str, ...], ...]
    malformed: int
    whole: bool


class Path(NamedTuple):
    valid: bool
    triples: tuple[Triple, ...]
    explanation: str
    malformed: int  # members of the path that are no triples


def triples_schema() -> str:
    return _object(triples={"type": "array", "items": _TRIPLE})


def groups_schema() -> str:
    return _object(groups={"type": "array", "items": _NAMES})


@cache
def path_schema(characters: int) -> str:
    """With at most so many characters of explanation."""
    path = {"type": "array", "items": _TRIPLE}
    return _object(
        is_valid={"type": "boolean"}, reasoning_path=path, explanation={"type": "string", "maxLength": characters}
    )


def _object(**properties: Json) -> str:
    """What a reply has to be: an object, for some servers take no other schema."""
    return json.dumps(
        {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    )


def read_triples(text: str) -> Lists | None:
    """Members of three texts; numbers are texts, too. None where there is no list of lists.

    Of a list that is cut, or broken at some place, the members before that.
    """
    return _read_lists(text, of=3)


def read_groups(text: str) -> Lists | None:
    """The same of any number of texts."""
    return _read_lists(text, of=None)


def _read_lists(text: str, of: int | None) -> Lists | None:
    opening = _LIST.search(text)
    if opening is None:
        return None
    members: list[tuple[str, ...]] = []
    malformed, at = 0, opening.end()
    while not text.startswith("]", at := _between(text, at)):
        try:
            value, at = first_value(text, at)
        except NotJson:
            return Lists(tuple(members), malformed, whole=False)
        member = _texts(value)
        if member and len(member) == (of or len(member)):
            members.append(member)
        else:
            malformed += 1
    return Lists(tuple(members), malformed, whole=True)


def read_path(text: str) -> Path | None:
    """None where no JSON object says whether the path is valid."""
    try:
        written = first_value(text, text.index("{"))[0]
    except ValueError:  # NotJson is one
        return None
    valid = written.get("is_valid")
    if isinstance(valid, str):
        valid = {"true": True, "false": False}.get(valid.strip().casefold())
    if not isinstance(valid, bool):
        return None
    listed = written.get("reasoning_path")
    read = [_texts(member) for member in listed] if isinstance(listed, list) else []
    triples = [(member[0], member[1], member[2]) for member in read if len(member) == 3]
    said = written.get("explanation")
    explanation = " ".join(said.split()) if isinstance(said, str) else ""
    return Path(valid, tuple(triples), explanation, len(read) - len(triples))


def _between(text: str, at: int) -> int:
    """The place of the next member, or of the end."""
    blank = _BETWEEN.match(text, at)
    return blank.end() if blank else at


def _texts(value: Json) -> tuple[str, ...]:
    """Without blanks that say nothing; () where something is no text, or an empty one."""
    if not isinstance(value, list):
        return ()
    numbers = (str(part) if isinstance(part, int | float) and not isinstance(part, bool) else part for part in value)
    texts = tuple(" ".join(part.split()) if isinstance(part, str) else "" for part in numbers)
    return texts if all(texts) else ()

"""The teacher's replies: the forms they are held to, and reading them. Any string is accepted, nothing is made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from kgqa.types import Json
from kgqa.util.jsonio import decode_first

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
KINDS = ("Attribution", "Logical")


class Planned(NamedTuple):
    kind: str  # one of KINDS
    do: str


class Claim(NamedTuple):
    claim: str
    passage: int  # 0: of none


class Said(NamedTuple):
    """Of a step; without blanks that say nothing."""

    diagnosis: str
    guidance: str


class Found(NamedTuple):
    step: int
    error_type: str
    diagnosis: str
    guidance: str


def _object(**properties: Json) -> str:
    """Return what a reply has to be: an object, for some servers take no other schema."""
    return json.dumps(_node(**properties))


def _node(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


PLAN = _object(plan={"type": "array", "items": _node(kind={"type": "string", "enum": [*KINDS]}, do=_TEXT)})
CLAIM = _object(claim=_TEXT, passage=_NUMBER)
STEPS = _object(steps={"type": "array", "items": _node(claim=_TEXT, passage=_NUMBER)})
AGREES = _object(agree={"type": "boolean"}, why=_TEXT)


@cache
def feedback_schema(characters: int) -> str:
    """Return the feedback schema with at most so many characters of diagnosis and of guidance."""
    text = {**_TEXT, "maxLength": characters}
    return _object(diagnosis=text, guidance=text)


@cache
def finding_schema(characters: int, names: Sequence[str]) -> str:
    text = {**_TEXT, "maxLength": characters}
    return _object(step=_NUMBER, error_type={"type": "string", "enum": [*names]}, diagnosis=text, guidance=text)


def read_plan(text: str) -> tuple[Planned, ...] | None:
    """Return None where it is none, has a step of no kind, or does not end in a logical one."""
    listed = _format_written(text).get("plan")
    if not isinstance(listed, list):
        return None
    steps = [Planned(_text(step, "kind"), _text(step, "do")) for step in listed]
    whole = all(step.kind in KINDS and step.do for step in steps)
    kinds = [step.kind for step in steps]
    return tuple(steps) if whole and kinds[-1:] == ["Logical"] and "Attribution" in kinds else None


def read_steps(text: str) -> tuple[Claim, ...] | None:
    listed = _format_written(text).get("steps")
    if not isinstance(listed, list):
        return None
    claims = [_claim(member) for member in listed]
    return tuple(claim for claim in claims if claim) if claims and all(claims) else None


def read_claim(text: str) -> Claim | None:
    return _claim(_format_written(text))


def read_agrees(text: str) -> bool | None:
    agree = _format_written(text).get("agree")
    return agree if isinstance(agree, bool) else None


def read_feedback(text: str) -> Said | None:
    """Return None where either text is missing."""
    said = Said(*(_text(_format_written(text), key) for key in Said._fields))
    return said if all(said) else None


def read_found(text: str, names: Sequence[str]) -> Found | None:
    """Return None where it names no step or no known error."""
    written = _format_written(text)
    step, name = written.get("step"), written.get("error_type")
    if not isinstance(step, int) or isinstance(step, bool) or name not in names:
        return None
    found = Found(step, str(name), _text(written, "diagnosis"), _text(written, "guidance"))
    return found if found.diagnosis and found.guidance else None


def _format_written(text: str) -> dict[str, Json]:
    try:
        written = decode_first(text, text.index("{"))[0]
    except ValueError:  # NotJson is one
        return {}
    return written if isinstance(written, dict) else {}


def _claim(member: Json) -> Claim | None:
    claim, passage = _text(member, "claim"), member.get("passage") if isinstance(member, dict) else None
    if not claim or not isinstance(passage, int) or isinstance(passage, bool):
        return None
    return Claim(claim, passage)


def _text(member: Json, key: str) -> str:
    value = member.get(key) if isinstance(member, dict) else None
    return " ".join(value.split()) if isinstance(value, str) else ""

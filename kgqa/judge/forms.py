"""Format a judge's prompt and parse its reply, which must be one of a fixed set of verdicts.

A verdict is never looked for inside a text: "correct" stands in "incorrect" and in "not correct".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kgqa.types import Json

Label = Literal["correct", "incorrect", "not_attempted"]
FormName = Literal["three_way", "kgp", "safe"]

_OBJECT = re.compile(r"\{.*\}", flags=re.DOTALL)


@dataclass(frozen=True, slots=True)
class Form:
    """One way of asking. `key`: of the reply's JSON object; None: the reply is the bare verdict.

    vocabulary: the replies there are, folded, with what each means.
    """

    template: str
    key: str | None
    schema: str | None
    vocabulary: Mapping[str, Label]

    def read(self, reply: str) -> Label | None:
        """Return the verdict; None where the reply is not, as a whole, one of the vocabulary.

        Case, blanks and punctuation are ignored. Where an object is asked for, a bare verdict is taken too.
        """
        written = reply if self.key is None else _value(reply, self.key)
        return self.vocabulary.get(_fold(written)) if isinstance(written, str) else None


def _value(reply: str, key: str) -> Json:
    """Return what the reply's object says under `key`; the reply itself where it holds no brace at all."""
    if "{" not in reply:
        return reply
    match = _OBJECT.search(reply)
    try:
        written = json.loads(match.group()) if match else None
    except (ValueError, RecursionError):  # an integer of thousands of digits is a ValueError too
        return None
    return written.get(key) if isinstance(written, dict) else None


def _fold(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def _object(properties: Mapping[str, Json]) -> str:
    """Return the JSON schema of an object that has all these properties and no other."""
    closed = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return json.dumps(closed)


FORMS: Mapping[str, Form] = {
    "three_way": Form(
        "judge/three_way",
        "verdict",
        _object({"verdict": {"type": "string", "enum": ["correct", "incorrect", "not_attempted"]}}),
        {"correct": "correct", "incorrect": "incorrect", "notattempted": "not_attempted"},
    ),
    # KGP, Listing 5: one digit. Not every engine takes a schema that is no object, so none is given.
    "kgp": Form("judge/kgp", None, None, {"1": "correct", "0": "incorrect"}),
    # SAFE, Figure 14: two keys, the verdict before its reason
    "safe": Form(
        "judge/safe",
        "is_correct",
        _object(
            {
                "is_correct": {"type": "string", "enum": ["correct", "wrong"]},
                "reasoning": {"type": "string", "maxLength": 400},
            }
        ),
        {"correct": "correct", "wrong": "incorrect"},
    ),
}

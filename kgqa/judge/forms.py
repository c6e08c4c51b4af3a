"""Format a judge's prompt and parse its reply, which must be one of a fixed set of verdicts.

A verdict is never searched for inside a text, because "incorrect" and "not correct" contain "correct".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kgqa.prompting.json_replies import object_schema, read_object
from kgqa.types import Json

Label = Literal["correct", "incorrect", "not_attempted"]
FormName = Literal["three_way", "kgp", "safe"]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a judge's prompt and reply.

    key: the key of the verdict in the reply's JSON object. None: the reply is the verdict.
    vocabulary: the label of each verdict, in lower case without spaces and punctuation.
    """

    template: str
    key: str | None
    schema: str | None
    vocabulary: Mapping[str, Label]

    def read(self, reply: str) -> Label | None:
        """Return the label of a reply, ignoring case, spaces and punctuation. None: not in the vocabulary."""
        verdict: Json = reply
        if self.key is not None and "{" in reply:
            verdict = (read_object(reply) or {}).get(self.key)
        return self.vocabulary.get(re.sub(r"[\W_]+", "", verdict.casefold())) if isinstance(verdict, str) else None


FORMS: Mapping[str, Form] = {
    "three_way": Form(
        "judge/three_way",
        "verdict",
        object_schema(verdict={"type": "string", "enum": ["correct", "incorrect", "not_attempted"]}),
        {"correct": "correct", "incorrect": "incorrect", "notattempted": "not_attempted"},
    ),
    # KGP, Listing 5: one digit, without a schema, because some engines accept only schemas of objects
    "kgp": Form("judge/kgp", None, None, {"1": "correct", "0": "incorrect"}),
    # SAFE, Figure 14: two keys, the verdict before its reason
    "safe": Form(
        "judge/safe",
        "is_correct",
        object_schema(
            is_correct={"type": "string", "enum": ["correct", "wrong"]},
            reasoning={"type": "string", "maxLength": 400},
        ),
        {"correct": "correct", "wrong": "incorrect"},
    ),
}

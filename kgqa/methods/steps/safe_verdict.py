"""SAFE's verdicts: the error taxonomy (Table 1) as a closed vocabulary, and reading one from a reply."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

CORRECT = "Correct (No Error)"
# Table 1, with what each means in our words, by the phases of the evaluation protocol (Figure 12) and in its order
PROTOCOL: Mapping[str, Mapping[str, str]] = {
    "final answer": {"Wrong Conclusion": "a final answer that the earlier steps do not lead to"},
    "utility": {
        "Overthinking": "a further step although the earlier ones already hold the answer",
        "Off-topic": "a fact or conclusion that does not help with the question",
        "Redundancy": "a repetition of what an earlier step found",
        "Inefficiency": "no extraction and no conclusion: a plan, an announcement, a summary",
    },
    "attribution": {
        "Contradictory": "a statement that a passage contradicts",
        "Unsupported": "a statement that the cited passage does not make",
        "Information Miss": "a claim that something is not given although a passage gives it",
        "Premature Attribution": "a fact about an entity before a step has connected that entity with the question",
    },
    "logical": {"Logical Fallacy": "a conclusion that does not follow from the earlier steps"},
}
PREMATURE_CONCLUSION = {"Premature Conclusion": "a final answer before the earlier steps hold all that it needs"}
Labels = Literal["paper", "released"]
OBJECT = re.compile(r"\{.*\}", flags=re.DOTALL)


class StepVerdict(NamedTuple):
    error_type: str  # one of ERRORS, or CORRECT
    diagnosis: str
    guidance: str

    @property
    def is_error(self) -> bool:
        return self.error_type != CORRECT


@cache
def protocol(labels: Labels) -> Mapping[str, Mapping[str, str]]:
    """Table 1; `released`: with the type that the released code has beside it."""
    if labels == "paper":
        return PROTOCOL
    return {**PROTOCOL, "final answer": {**PROTOCOL["final answer"], **PREMATURE_CONCLUSION}}


@cache
def errors(labels: Labels) -> tuple[str, ...]:
    return tuple(name for phase in protocol(labels).values() for name in phase)


@cache
def verdict_schema(characters: int, labels: Labels) -> str:
    """What a reply has to be, with at most so many characters of diagnosis and of guidance."""
    text = {"type": "string", "maxLength": characters}
    named = {"error_type": {"type": "string", "enum": [*errors(labels), CORRECT]}, "diagnosis": text, "guidance": text}
    schema = {"type": "object", "properties": named, "required": [*named], "additionalProperties": False}
    return json.dumps(schema)


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())


@cache
def _names(labels: Labels) -> Mapping[str, str]:
    return {**{_folded(name): name for name in (*errors(labels), CORRECT)}, "correct": CORRECT}


def read_verdict(text: str, labels: Labels = "paper") -> StepVerdict | None:
    """The verdict in a reply; None where there is no JSON object with a known error type.

    Error types are compared whole, after folding case, blanks and hyphens; "Correct" is a synonym. Texts that are
    missing are empty.
    """
    match = OBJECT.search(text)
    if match is None:
        return None
    try:
        written = json.loads(match.group())
    except (ValueError, RecursionError):  # an integer of thousands of digits is a ValueError too
        return None
    name = written.get("error_type")
    names = _names(labels)
    if not isinstance(name, str) or _folded(name) not in names:
        return None
    texts = (written.get(key) for key in ("diagnosis", "guidance"))
    diagnosis, guidance = (text.strip() if isinstance(text, str) else "" for text in texts)
    return StepVerdict(names[_folded(name)], diagnosis, guidance)

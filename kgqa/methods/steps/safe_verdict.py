"""SAFE's verdicts: the error taxonomy (Table 1), and parsing a verdict from a reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from kgqa.prompting.json_replies import object_schema, read_object

CORRECT = "Correct (No Error)"
# Table 1 with our descriptions, by the phases of the evaluation protocol (Figure 12) and in its order
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
PREMATURE_CONCLUSION = {
    "Premature Conclusion": "a final answer before the earlier steps hold all that it needs"
}
Labels = Literal["paper", "released"]


class StepVerdict(NamedTuple):
    error_type: str  # one of ERRORS, or CORRECT
    diagnosis: str
    guidance: str

    @property
    def is_error(self) -> bool:
        return self.error_type != CORRECT


def protocol(labels: Labels) -> Mapping[str, Mapping[str, str]]:
    """Return Table 1; `released` adds the error type of the released code."""
    if labels == "paper":
        return PROTOCOL
    return {**PROTOCOL, "final answer": {**PROTOCOL["final answer"], **PREMATURE_CONCLUSION}}


def errors(labels: Labels) -> Mapping[str, str]:
    """Return the meaning of each error type."""
    return {name: meaning for phase in protocol(labels).values() for name, meaning in phase.items()}


def verdict_schema(characters: int, labels: Labels) -> str:
    """Return the JSON schema of a reply, with a maximum length of diagnosis and guidance."""
    text, named = (
        {"type": "string", "maxLength": characters},
        {"type": "string", "enum": [*errors(labels), CORRECT]},
    )
    return object_schema(error_type=named, diagnosis=text, guidance=text)


def read_verdict(text: str, labels: Labels = "paper") -> StepVerdict | None:
    """Return the verdict in a reply, or None without a JSON object with a known error type.

    Case, spaces and hyphens of error types are ignored, and "Correct" is a synonym. Missing texts are empty.
    """
    fields = read_object(text) or {}
    names = {_normalize(name): name for name in (*errors(labels), CORRECT)} | {"correct": CORRECT}
    if not (name := names.get(_normalize(str(fields.get("error_type"))))):
        return None
    texts = (fields.get(key) for key in ("diagnosis", "guidance"))
    return StepVerdict(name, *(text.strip() if isinstance(text, str) else "" for text in texts))


def _normalize(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())

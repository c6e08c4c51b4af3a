"""SAFE's verdicts: the error taxonomy (Table 1) as a closed vocabulary, and reading one from a reply."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

CORRECT = "Correct (No Error)"
# Table 1, with what each means in our words, in the order of the evaluation protocol (Figure 12)
ERRORS = {
    "Wrong Conclusion": "a final answer that the earlier steps do not lead to",
    "Overthinking": "a further step although the earlier ones already hold the answer",
    "Off-topic": "a fact or conclusion that does not help with the question",
    "Redundancy": "a repetition of what an earlier step found",
    "Inefficiency": "no extraction and no conclusion: a plan, an announcement, a summary",
    "Contradictory": "a statement that a passage contradicts",
    "Unsupported": "a statement that the cited passage does not make",
    "Information Miss": "a claim that something is not given although a passage gives it",
    "Premature Attribution": "a fact about an entity before a step has connected that entity with the question",
    "Logical Fallacy": "a conclusion that does not follow from the earlier steps",
}
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "error_type": {"type": "string", "enum": [*ERRORS, CORRECT]},
            "diagnosis": {"type": "string", "maxLength": 400},
            "guidance": {"type": "string", "maxLength": 400},
        },
        "required": ["error_type", "diagnosis", "guidance"],
        "additionalProperties": False,
    }
)
OBJECT = re.compile(r"\{.*\}", flags=re.DOTALL)


class StepVerdict(NamedTuple):
    error_type: str  # a key of ERRORS, or CORRECT
    diagnosis: str
    guidance: str


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())


NAMES = {**{_folded(name): name for name in (*ERRORS, CORRECT)}, "correct": CORRECT}


def read_verdict(text: str) -> StepVerdict | None:
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
    if not isinstance(name, str) or _folded(name) not in NAMES:
        return None
    texts = (written.get(key) for key in ("diagnosis", "guidance"))
    diagnosis, guidance = (text.strip() if isinstance(text, str) else "" for text in texts)
    return StepVerdict(NAMES[_folded(name)], diagnosis, guidance)

"""Measure properties of an answer other than correctness: containment of gold, length, abstention."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kgqa.scoring.normalisation import normalise

# whole answers, once normalised: a span that merely begins so ("None of the Above", a title) is an answer
_ABSTENTIONS = re.compile(
    r"na|unknown|unanswerable|idk|not (?:known|available|applicable|specified|mentioned|provided|stated|given)"
    r"|(?:answer is )?(?:unknown|not (?:known|specified|mentioned|provided|stated|given))"
    r"|no (?:answer|information|evidence|relevant information)(?: (?:is )?(?:found|available|provided|given))?"
    r"|(?:i am |im )?(?:not sure|unsure|unable to (?:answer|determine|find|say)).*"
    r"|i (?:do not|dont|cannot|cant|could not|couldnt) (?:know|answer|determine|find|tell|say).*"
    r"|(?:it |answer |question |this |this question )?(?:is not|cannot be|can not be|cant be) "
    r"(?:possible to |be )?(?:determine|answer|found|infer|known|clear|mentioned|specified|provided|stated|say).*"
    r"|it is (?:not (?:possible|clear|known|mentioned|specified|provided|stated)|impossible|unclear|unknown).*"
    r"|there is (?:no|not enough|insufficient) (?:information|evidence|mention|answer|context).*"
    r"|(?:insufficient|not enough) (?:information|evidence|context).*"
    r"|(?:passages|context|text|information|documents|given passages|provided (?:passages|context|text|information)) "
    r"(?:provided )?(?:do|does) not (?:say|mention|provide|contain|specify|state|include|answer).*"
)


def contains_gold(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if the words of a gold answer stand in the answer, in order and unbroken, all normalised as for EM;
    else 0.

    This is what papers on retrieval-augmented generation call "accuracy" (Mallen et al., ACL 2023); an answer in a
    sentence counts, and so does one that lists everything. Whole words are wanted: programs that look for
    substrings find "no" in "I do not know". A gold answer without words stands only in an answer without words.
    """
    words = f" {normalise(answer)} "
    return float(any(f" {gold} " in words if gold else words == "  " for gold in map(normalise, golds)))


def word_count(answer: str) -> int:
    """Return parted by blanks, as written."""
    return len(answer.split())


def abstains(answer: str) -> bool:
    """Return whether the answer says that there is none: "I don't know.", "not mentioned", "N/A", or nothing at all.

    The list is ours; yes, no and none are answers.
    """
    text = normalise(answer)
    return not text or _ABSTENTIONS.fullmatch(text) is not None

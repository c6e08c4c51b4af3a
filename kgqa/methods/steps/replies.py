"""Parse replies, such as an answer after its label. Any string is accepted."""

from __future__ import annotations

import re
from typing import Annotated

from kgqa.types import Completion
from kgqa.util.validators import Validator

SCORE = re.compile(r"[\s*_\"'“(\[]*(?:score\W+)?(10(?:\.0*)?|\d(?:\.\d*)?)(?!\d|\.\d)", re.IGNORECASE)
MARKS = re.compile(r"(?:(?:[-–—•]+|\*(?!\*)|\(?\d{1,2}[.)](?=\s))\s*)+")  # a bullet or a number before a line
WRAPS = (("<", ">"), ("(", ")"), ("[", "]"), ("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'), ("“", "”"), ("'", "'"))
MAX_SCORE_TOKENS = 4  # two digits, and a few tokens that small models write before them
Score = Annotated[int, Validator("must be from 0 to 10", lambda score: 0 <= score <= 10)]


def text_after_label(label: str, text: str) -> str:
    """Return the rest of the first line that starts with "Label:", or ""."""
    match = re.search(rf"^[^\S\n]*{re.escape(label)}:[^\S\n]*(\S.*)$", text, flags=re.MULTILINE)
    return match.group(1).strip() if match else ""


def bullet_items(text: str) -> list[str]:
    """Return the distinct non-empty lines that start with a bullet or a number, without it."""
    marked = ((MARKS.match(line), line) for line in map(str.strip, text.split("\n")))
    items = dict.fromkeys(line[mark.end() :] for mark, line in marked if mark)
    return [item for item in items if item]


def unwrap(text: str) -> str:
    """Remove spaces, quotes, brackets and emphasis around the text."""
    text = text.strip()
    for opening, closing in WRAPS:
        inner = text.removeprefix(opening).removesuffix(closing)
        if len(text) - len(inner) == len(opening + closing) and opening not in inner and closing not in inner:
            text = inner.strip()
    return text


def read_score(text: str) -> float | None:
    """Return the number from 0 to 10 at the start of a reply, or None."""
    match = SCORE.match(text)
    return float(match.group(1)) if match else None


def nonzero_flags(**flags: bool | int) -> dict[str, int]:
    """Return the flags with a count, for `Answer.flags`."""
    return {flag: int(count) for flag, count in flags.items() if count}


def first_line(reply: Completion) -> tuple[str, bool]:
    """Return the first non-empty line, stripped, and whether it was truncated."""
    line, _, further = reply.text.strip().partition("\n")
    return line.strip(), reply.finish == "length" and not further


def read_conclusion(text: str) -> tuple[str, bool]:
    """Return the answer after "Answer:" and True, or the last line and False."""
    answer = text_after_label("Answer", text)
    return (answer, True) if answer else (text.strip().rpartition("\n")[2].strip(), False)

"""Reading what a model wrote, such as an answer under its label. Any string is accepted and nothing is made up."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from kgqa.constraints import Bound
from kgqa.types import Completion

SCORE = re.compile(r"[\s*_\"'“(\[]*(?:score\W+)?(10(?:\.0*)?|\d(?:\.\d*)?)(?!\d|\.\d)", re.IGNORECASE)
MARKS = re.compile(r"(?:(?:[-–—•]+|\*(?!\*)|\(?\d{1,2}[.)](?=\s))\s*)+")  # a bullet or a number before a line
WRAPS = (("<", ">"), ("(", ")"), ("[", "]"), ("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'), ("“", "”"), ("'", "'"))
MAX_SCORE_TOKENS = 4  # a number of two digits, and what a small model writes before it
Score = Annotated[int, Bound("must be from 0 to 10", lambda score: 0 <= score <= 10)]


def labelled(label: str, text: str) -> str:
    """What stands behind the first "Label:" that begins a line, up to the line's end; "" where there is none."""
    match = re.search(rf"^[^\S\n]*{re.escape(label)}:[^\S\n]*(\S.*)$", text, flags=re.MULTILINE)
    return match.group(1).strip() if match else ""


def bullets(text: str) -> list[str]:
    """The lines that begin with a bullet or a number, without it, in order, once each; empty ones are left out."""
    marked = ((MARKS.match(line), line) for line in map(str.strip, text.split("\n")))
    items = dict.fromkeys(line[mark.end() :] for mark, line in marked if mark)
    return [item for item in items if item]


def unwrapped(text: str) -> str:
    """Without the blanks, quotes, brackets and signs of emphasis that stand around all of it."""
    text = text.strip()
    for opening, closing in WRAPS:
        inner = text.removeprefix(opening).removesuffix(closing)
        if len(text) - len(inner) == len(opening + closing) and opening not in inner and closing not in inner:
            text = inner.strip()
    return text


def scored(text: str) -> float | None:
    """The number from 0 to 10 that a reply begins with; None where it does not begin with one."""
    match = SCORE.match(text)
    return float(match.group(1)) if match else None


def counted(**flags: bool | int) -> dict[str, int]:
    """The flags that are set, as `Answer.flags` holds them."""
    return {flag: int(count) for flag, count in flags.items() if count}


def cut(replies: Iterable[Completion]) -> int:
    """How many replies ended at their token limit."""
    return sum(reply.finish == "length" for reply in replies)


def first_line(reply: Completion) -> tuple[str, bool]:
    """The first line that says something, without blanks around it, and whether the reply was cut within it."""
    line, _, further = reply.text.strip().partition("\n")
    return line.strip(), reply.finish == "length" and not further


def concluded(text: str) -> tuple[str, bool]:
    """The answer of a chain of thought, and whether it was marked; unmarked, it is the last line."""
    answer = labelled("Answer", text)
    return (answer, True) if answer else (text.strip().rpartition("\n")[2].strip(), False)

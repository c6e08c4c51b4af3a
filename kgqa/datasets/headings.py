"""Find the heading of a document, which titles its passages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

FRONT = re.compile(r"---\n(.*?)\n---\s*\n", re.DOTALL)  # what static sites and notebooks keep before the text
NAMED = re.compile(r"^title:\s*(.+)$", re.MULTILINE)
FENCE = re.compile(r"\s{0,3}(```|~~~)")
ATX = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
UNDERLINE = re.compile(r"\s{0,3}(=+|-+)\s*$")
LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")


def of_markdown(text: str) -> str:
    """Return the title in its front matter, else its first heading of the highest level, in plain words; "" without
    any.
    """
    front = FRONT.match(text)
    if front and (named := NAMED.search(front[1])):
        return _plain(named[1].strip("\"'"))
    text = text[front.end() :] if front else text
    found: list[tuple[int, str]] = []
    fenced = False
    for line, below in pairwise([*text.splitlines(), ""]):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := ATX.match(line)):
            found.append((len(heading[1]), heading[2]))
        elif not fenced and line.strip() and not line.startswith((" ", "-", "|")) and (under := UNDERLINE.match(below)):
            found.append((1 if under[1].startswith("=") else 2, line.strip()))
        if found and found[-1][0] == 1:
            break
    return _plain(min(found, key=lambda heading: heading[0])[1]) if found else ""


def titles(headings: Mapping[str, str]) -> dict[str, str]:
    """Return the title of each document: its heading, with the name if others have the same heading, or the name."""
    shared = Counter(heading.casefold() for heading in headings.values())
    return {
        name: (heading if shared[heading.casefold()] == 1 else f"{heading} ({name})") if heading else name
        for name, heading in headings.items()
    }


def _plain(words: str) -> str:
    return " ".join(re.sub(r"[*`]", "", LINK.sub(r"\1", words)).split())

"""What a document calls itself: the heading that titles its passages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

LONGEST = 80  # characters of a first line that is taken for a heading
FRONT = re.compile(r"---\n(.*?)\n---\s*\n", re.DOTALL)  # what static sites and notebooks keep before the text
NAMED = re.compile(r"^title:\s*(.+)$", re.MULTILINE)
FENCE = re.compile(r"\s{0,3}(```|~~~)")
ATX = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
UNDERLINE = re.compile(r"\s{0,3}(=+|-+)\s*$")
LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
ENDS = ".!?:;,…"  # of a sentence, or of a line that leads over to the next


def of_markdown(text: str) -> str:
    """The title in its front matter, else its first heading of the highest level, in plain words; else as `of_text`."""
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
    if not found:
        return of_text(text)
    return _plain(min(found, key=lambda heading: heading[0])[1])


def of_blocks(blocks: Sequence[str]) -> str:
    """The first of several paragraphs if it reads as a heading: short, and no sentence."""
    first = blocks[0].strip() if len(blocks) > 1 else ""
    return first if "\n" not in first and len(first) <= LONGEST and not first.endswith(tuple(ENDS)) else ""


def of_text(text: str) -> str:
    """The same of a plain text, whose paragraphs blank lines part."""
    return of_blocks(text.strip().split("\n\n", 1))


def titles(headings: Mapping[str, str]) -> dict[str, str]:
    """By a document's name: its heading, with the name where others have it too; the name itself without one."""
    shared = Counter(heading.casefold() for heading in headings.values())
    return {
        name: (heading if shared[heading.casefold()] == 1 else f"{heading} ({name})") if heading else name
        for name, heading in headings.items()
    }


def _plain(words: str) -> str:
    return " ".join(re.sub(r"[*`]", "", LINK.sub(r"\1", words)).split())

r"""Read answers in \boxed{…}: as models write them, and as the scorers of two released programs do."""

from __future__ import annotations

import re
from collections.abc import Iterator

BOX, UNBRACED = r"\boxed{", "\\boxed "
FONT = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mathbf|mbox)\{([^{}]*)\}")
# up to the last brace of the line
GREEDY = re.compile(r"\\boxed\{(.*)\}")
GREEDY_TEXT = re.compile(r"\\text\{(.*)\}")


def read_boxed(text: str) -> str | None:
    r"""Return the last \boxed{…} that is not empty, without commands for fonts.

    The last box can be open, because a reply can end in it. Return "" if all boxes are empty, and None without a box.
    """
    contents = [_plain(content) for content, _ in _boxes(text)]
    return next(filter(None, reversed(contents)), "") if contents else None


def read_last_boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{…} unchanged, or None if there is none or if it is open (ReSearch).

    The program also accepts \boxed without braces, up to the next dollar sign.
    """
    if UNBRACED in text:
        return text.rpartition(UNBRACED)[2].partition("$")[0].strip()
    boxes = list(_boxes(text))
    return boxes[-1][0] if boxes and boxes[-1][1] else None


def read_greedy_boxed(text: str) -> str | None:
    r"""Return the last \boxed{…} up to the last brace of its line (Search-o1, SimpleDeepSearcher)."""
    boxes = GREEDY.findall(text)
    if not boxes:
        return None
    texts = GREEDY_TEXT.findall(boxes[-1])
    content: str = texts[-1] if texts else boxes[-1]
    return content.strip("()")


def _boxes(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the content of each box, with its braces counted, and whether it is closed."""
    end = 0
    while (start := text.find(BOX, end)) >= 0:
        start += len(BOX)
        depth, end = 1, start
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield text[start : end - (not depth)], not depth


def _plain(content: str) -> str:
    previous = ""
    while content != previous:
        previous, content = content, FONT.sub(r"\1", content)
    return content.strip()

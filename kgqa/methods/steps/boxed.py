r"""Read answers in \boxed{…}, as models write them."""

from __future__ import annotations

import re
from collections.abc import Iterator

BOX = r"\boxed{"
FONT = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|mathrm|mathbf|mbox)\{([^{}]*)\}")


def read_boxed(text: str) -> str | None:
    r"""Return the last \boxed{…} that is not empty, without commands for fonts.

    The last box can be open, because a reply can end in it. Return "" if all boxes are empty, and None without a box.
    """
    contents = [_plain(content) for content, _ in _boxes(text)]
    return next(filter(None, reversed(contents)), "") if contents else None


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

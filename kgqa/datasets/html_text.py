"""The text of an HTML page: one line for each block, without scripts, styles and markup."""

from __future__ import annotations

from html.parser import HTMLParser

UNSEEN = ("script", "style", "head", "title", "noscript", "template", "svg")
INLINE = ("a", "abbr", "b", "cite", "code", "em", "i", "q", "s", "small", "span", "strong", "sub", "sup", "u", "wbr")
CELLS = ("td", "th")


def plain_text(html: str) -> str:
    """Blocks in order, with blank lines between them and single blanks inside; cells of a row on one line."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return "\n\n".join(text for block in reader.blocks if (text := " ".join(block.split())))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks = [""]
        self._unseen: list[str] = []  # open elements whose text is not shown

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the parser's signature
        if tag == "body":  # a head may have been left open
            self._unseen.clear()
        elif tag in UNSEEN:
            self._unseen.append(tag)
        self._border(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        self._border(tag)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.blocks[-1] += data

    def _border(self, tag: str) -> None:
        if tag in CELLS:
            self.blocks[-1] += " "
        elif tag not in INLINE:
            self.blocks.append("")

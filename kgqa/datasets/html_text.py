"""The text of an HTML page: one line for each block, without scripts, styles and markup."""

from __future__ import annotations

from html import unescape
from html.parser import HTMLParser

UNSEEN = ("script", "style", "head", "title", "noscript", "template", "svg")
INLINE = ("a", "abbr", "b", "cite", "code", "em", "i", "q", "s", "small", "span", "strong", "sub", "sup", "u", "wbr")
CELLS = ("td", "th")
UNENDED = 50  # tags and comments that never end; what follows more of them is taken for text


def plain_text(html: str) -> str:
    """Blocks in order, with blank lines between them and single blanks inside; cells of a row on one line."""
    reader = _Reader()
    reader.read(html)
    return "\n\n".join(text for block in reader.blocks if (text := " ".join("".join(block).split())))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[list[str]] = [[]]  # the parts of each
        self._unseen: list[str] = []  # open elements whose text is not shown, each once

    def read(self, html: str) -> None:
        """All of it. Closing the parser would look from each "<" that is never ended through all that follows."""
        self.feed(html)
        for _ in range(UNENDED):
            left = self.rawdata
            if not left.startswith("<") or ">" not in left:
                break
            unended = next((opening for opening in ("<!--", "<![") if left.startswith(opening)), None)
            self.rawdata = ""
            # no comment that begins further on ends either; of a tag only its own beginning is known to be text
            self.feed(left.replace(unended, f"&lt;{unended[1:]}") if unended else f"&lt;{left[1:]}")
        if self.rawdata.startswith("<"):
            left, self.rawdata = self.rawdata, ""
            self.handle_data(unescape(left))
        self.close()

    def parse_html_declaration(self, i: int) -> int:
        try:
            return super().parse_html_declaration(i)
        except AssertionError:  # what stands after "<![" is none of what the parser knows
            return self.parse_bogus_comment(i)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the parser's signature
        if tag == "body":  # a head may have been left open
            self._unseen.clear()
        elif tag in UNSEEN and tag not in self._unseen:
            self._unseen.append(tag)
        self._border(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        self._border(tag)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.blocks[-1].append(data)

    def _border(self, tag: str) -> None:
        if tag in CELLS:
            self.blocks[-1].append(" ")
        elif tag not in INLINE:
            self.blocks.append([])

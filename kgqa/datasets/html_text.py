"""The text of an HTML page: one line for each block, without scripts, styles and markup."""

from __future__ import annotations

from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser

UNSEEN = ("script", "style", "head", "title", "noscript", "template", "svg")
INLINE = ("a", "abbr", "b", "cite", "code", "em", "i", "q", "s", "small", "span", "strong", "sub", "sup", "u", "wbr")
CELLS = ("td", "th")
UNENDED = 50  # tags and comments that never end; what follows more of them is taken for text


@dataclass(frozen=True, slots=True)
class Page:
    """`heading`: its first <h1>, else its <title>; "" without either. `blocks`: in order, with single blanks inside,
    cells of a row in one."""

    heading: str
    blocks: tuple[str, ...]


def page(html: str) -> Page:
    reader = _Reader()
    reader.read(html)
    blocks = [" ".join("".join(block).split()) for block in reader.blocks]
    first = " ".join(filter(None, blocks[reader.heading])) if reader.heading else ""
    return Page(first or " ".join("".join(reader.title).split()), tuple(filter(None, blocks)))


def plain_text(html: str) -> str:
    """Return the blocks in order, with blank lines between them."""
    return "\n\n".join(page(html).blocks)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[list[str]] = [[]]  # the parts of each
        self.title: list[str] = []
        self.heading: slice | None = None  # blocks of the first <h1>
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
        if tag == "h1" and self.heading is None and not self._unseen:
            self.heading = slice(len(self.blocks) - 1, None)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        self._border(tag)
        if tag == "h1" and self.heading is not None and self.heading.stop is None:
            self.heading = slice(self.heading.start, len(self.blocks) - 1)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.blocks[-1].append(data)
        elif self._unseen in (["title"], ["head", "title"]):
            self.title.append(data)

    def _border(self, tag: str) -> None:
        if tag in CELLS:
            self.blocks[-1].append(" ")
        elif tag not in INLINE:
            self.blocks.append([])

"""Read the heading and the text of text, Markdown, HTML and Word files."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kgqa.errors import DataError
from kgqa.util.optional_deps import require_packages

MARKDOWN, HTML, DOCX = (".md", ".markdown"), (".html", ".htm"), ".docx"
TEXT = (".txt", *MARKDOWN, ".rst", ".tex", ".org", ".adoc", "")  # "": without a suffix
HIDDEN = ("script", "style", "head", "title", "noscript", "template", "svg")
INLINE = (
    "a",
    "abbr",
    "b",
    "cite",
    "code",
    "em",
    "i",
    "q",
    "s",
    "small",
    "span",
    "strong",
    "sub",
    "sup",
    "u",
    "wbr",
)
CELLS = ("td", "th")
FRONT_MATTER = re.compile(r"---\n(.*?)\n---\s*\n", re.DOTALL)
FRONT_TITLE = re.compile(r"^title:\s*(.+)$", re.MULTILINE)


class DocumentText(NamedTuple):
    heading: str  # "" without one
    text: str


def read_document(file: Path) -> DocumentText:
    """Return the heading and the text of a file of these kinds.

    The heading of Markdown is the title in its front matter or the first heading of its highest level; of HTML its
    first <h1> or its <title>; of Word its first heading of level 1. Plain text has none.

    Raises:
        DataError: it cannot be read; the message names the file, and the line if there is one.
        ConfigError: the package that reads such files is not installed.
    """
    kind = file.suffix.lower()
    if kind == DOCX:
        return parse_html(_docx_to_html(file))
    text = read_text(file)
    if kind in HTML:
        return parse_html(text)
    return DocumentText(markdown_heading(text) if kind in MARKDOWN else "", text)


def read_text(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        raise DataError(
            f"{file}:{line}: not UTF-8 (byte 0x{byte:02x}). Convert the file to UTF-8"
        ) from None
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read: {error.strerror}. Remove it from the folder"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            f"{file}:{line}: not text (a byte of 0). Convert the file to UTF-8, or remove it"
        )
    return text


def markdown_heading(text: str) -> str:
    from markdown_it import MarkdownIt

    front = FRONT_MATTER.match(text)
    if front and (title := FRONT_TITLE.search(front[1])):
        return title[1].strip("\"' ")
    tokens = MarkdownIt().parse(text[front.end() :] if front else text)
    headings = [
        (token.tag, inline) for token, inline in pairwise(tokens) if token.type == "heading_open"
    ]
    if not headings:
        return ""
    _, inline = min(headings, key=lambda heading: heading[0])
    parts = (" " if child.type == "softbreak" else child.content for child in inline.children or ())
    return " ".join("".join(parts).split())


def _docx_to_html(file: Path) -> str:
    require_packages("documents", "mammoth")
    import mammoth

    try:
        with file.open("rb") as source:
            return str(mammoth.convert_to_html(source, convert_image=lambda _: []).value)
    except Exception as error:  # noqa: BLE001 - mammoth lets through what its parsers of archives and XML raise
        cause = f"{type(error).__name__}: {error}"
        raise DataError(f"{file}: not a readable DOCX ({cause}). Save it again as .docx") from None


def parse_html(html: str) -> DocumentText:
    """Return the heading and the blocks of a page, without scripts, styles and markup. A table row is one block."""
    parser = _HtmlParser()
    parser.feed(html)
    parser.close()
    blocks = [" ".join("".join(block).split()) for block in parser.blocks]
    heading = " ".join(filter(None, blocks[parser.heading])) if parser.heading else ""
    title = " ".join("".join(parser.title).split())
    return DocumentText(heading or title, "\n\n".join(filter(None, blocks)))


class _HtmlParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[list[str]] = [[]]  # the parts of each
        self.title: list[str] = []
        self.heading: slice | None = None  # blocks of the first <h1>
        # open elements that are not shown
        self._hidden: list[str] = []

    def parse_html_declaration(self, i: int) -> int:
        try:
            return super().parse_html_declaration(i)
        except AssertionError:  # an unknown word after "<!["
            return self.parse_bogus_comment(i)

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002 - the parser's signature
        # the head can still be open
        if tag == "body":
            self._hidden.clear()
        elif tag in HIDDEN:
            self._hidden.append(tag)
        self._separate(tag)
        if tag == "h1" and self.heading is None and not self._hidden:
            self.heading = slice(len(self.blocks) - 1, None)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        self._separate(tag)
        if tag == "h1" and self.heading and self.heading.stop is None:
            self.heading = slice(self.heading.start, len(self.blocks) - 1)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.blocks[-1].append(data)
        elif self._hidden in (["title"], ["head", "title"]):
            self.title.append(data)

    def _separate(self, tag: str) -> None:
        if tag in CELLS:
            self.blocks[-1].append(" ")
        elif tag not in INLINE:
            self.blocks.append([])

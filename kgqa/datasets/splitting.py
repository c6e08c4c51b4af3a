"""Texts to passages of a given length, at the ends of sentences where they fit: KGP's 250 characters (§8.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kgqa.errors import ConfigError

PACKAGE = "semantic-text-splitter"
LONG_LINE = 10_000  # characters; in a longer one the splitter looks for the end of a sentence again for every piece
WINDOW = 8  # pieces that are looked at in one go where a line is that long
_KEPT_BACK = 3  # of these, where the window's own end may have decided


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a text: `text[start : start + len(piece.text)]`, without blanks at its ends."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def split(text: str, size: int) -> list[Piece]:
    """Return pieces of at most `size` characters, in order, with only blanks between them.

    As many whole sentences (Unicode's rules) as fit, or whole paragraphs; a longer sentence is cut between words, a
    longer word between characters. Time grows as the text does, whatever it is, and Ctrl-C is heard meanwhile.
    """
    if len(text) > LONG_LINE and max(map(len, text.split("\n"))) > LONG_LINE:
        return list(_windows(text, size))
    return [Piece(start, piece) for start, piece in _splitter(size).chunk_indices(text)]


def _windows(text: str, size: int) -> Iterator[Piece]:
    """Yield the same from bounded parts of the text, each of which begins where the last piece before it ended."""
    start, whole = 0, WINDOW * size
    while start < len(text):
        pieces = [Piece(start + at, piece) for at, piece in _splitter(size).chunk_indices(text[start : start + whole])]
        if start + whole < len(text):
            pieces = [piece for piece in pieces if piece.end <= start + whole - _KEPT_BACK * size]
            # no piece at all: blanks
            start = pieces[-1].end if pieces else start + whole - _KEPT_BACK * size
        else:
            start = len(text)
        yield from pieces


def holding(pieces: Sequence[Piece], text: str, part: str) -> list[int]:
    """Return places of the pieces of `text` that hold some of `part`, where it first stands there; none if it does
    not.
    """
    start = text.find(part) if part else -1
    end = start + len(part)
    return [place for place, piece in enumerate(pieces) if start >= 0 and piece.start < end and start < piece.end]


def identity() -> str:
    """Return the splitter and its version, which decides where passages end."""
    try:
        return f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        raise ConfigError(f"splitting documents needs {PACKAGE}; pip install 'kgqa[documents]'") from None


@cache
def _splitter(size: int) -> Any:
    identity()
    from semantic_text_splitter import TextSplitter

    return TextSplitter(size)

"""Split texts into passages of a given length, at the ends of sentences where they fit: KGP's 250 characters (§8.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kgqa.util.optional_deps import require_packages

PACKAGE = "semantic-text-splitter"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a text: `text[start : start + len(piece.text)]`, without spaces at its ends."""

    start: int
    text: str


def split(text: str, size: int) -> list[Piece]:
    """Return pieces of at most `size` characters, in order, with only spaces between them.

    A piece has as many complete sentences (Unicode's rules) or paragraphs as fit. A longer sentence is cut between
    words, a longer word between characters.
    """
    return [Piece(start, piece) for start, piece in _splitter(size).chunk_indices(text)]


def overlapping(pieces: Sequence[Piece], text: str, part: str) -> list[int]:
    """Return the positions of the pieces of `text` that overlap the first occurrence of `part`."""
    start = text.find(part) if part else -1
    if start < 0:
        return []
    end = start + len(part)
    return [
        position
        for position, piece in enumerate(pieces)
        if piece.start < end and start < piece.start + len(piece.text)
    ]


def splitter_identity() -> str:
    """Return the splitter and its version, which decides where passages end."""
    return f"{PACKAGE} {require_packages('documents', PACKAGE)[PACKAGE]}"


@cache
def _splitter(size: int) -> Any:
    splitter_identity()
    from semantic_text_splitter import TextSplitter

    return TextSplitter(size)

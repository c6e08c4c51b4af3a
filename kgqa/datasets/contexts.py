"""Passages of the datasets' own records: a paragraph gives the same passage, whichever file it is read from."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, StrictBool, StrictInt

from kgqa.types import Passage


class Paragraph(BaseModel):
    """MuSiQue's, and IRCoT's of every dataset."""

    title: str
    paragraph_text: str
    is_supporting: StrictBool = False
    idx: StrictInt | None = None  # None: the place in the list


class HotpotQAContext(BaseModel):
    """The part of a HotpotQA or 2Wiki record that has its passages."""

    context: list[tuple[str, list[str]]]


class MuSiQueContext(BaseModel):
    paragraphs: list[Paragraph]


class IIRCContext(BaseModel):
    """IRCoT's processed form of IIRC."""

    contexts: tuple[Paragraph, ...]


def of_sentences(title: str, sentences: Sequence[str]) -> Passage:
    """Return the text is the sentences joined by exactly one blank, empty ones left out; `sentences` keeps them as
    given.
    """
    text = " ".join(stripped for sentence in sentences if (stripped := sentence.strip()))
    return Passage.of(plain(title), text, tuple(sentences))


def of_paragraphs(paragraphs: Iterable[Paragraph]) -> tuple[Passage, ...]:
    return tuple(Passage.of(plain(paragraph.title), paragraph.paragraph_text) for paragraph in paragraphs)


def plain(title: str) -> str:
    """Return markup entities resolved: HotpotQA escaped its titles but not its texts.

    Only complete entities: `html.unescape` alone would also turn "R&copy" into "R©".
    """
    return re.sub(r"&#?\w+;", lambda entity: html.unescape(entity[0]), title) if "&" in title else title

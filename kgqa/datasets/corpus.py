"""Files of passages to search in.

A corpus file is JSON or JSONL of `title` and `text` (or `paragraph_text`, `body`), or of FlashRAG's `contents` (a title
in quotes, a line end and the text), one object of titles with their sentences, IIRC's `context_articles.json` (titles
with complete articles), or a question file, which gives its contexts, as IRCoT built the corpora of 2Wiki and MuSiQue.
Files can be gzipped, and memory never holds a complete one. Records of three of these forms:

    {"title": "Birch", "text": "Birch is a book."}
    {"contents": "\\"Birch\\"\\nBirch is a book."}
    {"Birch": ["Birch is a book.", " Alder wrote it."]}
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field, StrictBool, StrictInt

from kgqa.datasets.schema import parse_record, plain_title, refuse_half_surrogates
from kgqa.errors import DataError
from kgqa.types import Passage
from kgqa.util import jsonio

# characters in which the end of a JSONL file's first record is looked for
FIRST_LINE = 1 << 24
# of a record, not of pages
RECORD_KEYS = {"title", "text", "paragraph_text", "paragraphs", "context", "contexts", "contents"}
QUESTION_KEYS = {"question", "question_text", "questions"}
# IRCoT skips shorter paragraphs when it splits IIRC's articles
MIN_WORDS = 11
# a "<" before anything but a letter is not one
TAG = re.compile(r"</?[a-zA-Z][^>]*>")


class Titled(BaseModel):
    title: str
    text: str = Field(
        validation_alias=AliasChoices("text", "paragraph_text", "body")
    )  # body: MultiHop-RAG


class Contents(BaseModel):
    """A passage of FlashRAG's corpora, such as wiki18_100w.jsonl."""

    contents: str

    def passage(self) -> Passage:
        """Return the passage. Its title is the first line without quotes, "" if there is only one line."""
        first, newline, text = self.contents.partition("\n")
        if not newline:
            return Passage.of("", first)
        quoted = len(first) > 1 and first.startswith('"') and first.endswith('"')
        return Passage.of(first[1:-1] if quoted else first, text)


class Paragraph(BaseModel):
    """A paragraph of MuSiQue, and of every dataset that IRCoT processed."""

    title: str
    paragraph_text: str
    is_supporting: StrictBool = False
    # None: its position in the list
    idx: StrictInt | None = None

    @property
    def passage(self) -> Passage:
        return Passage.of(plain_title(self.title), self.paragraph_text)


class Contexts(BaseModel):
    """The contexts of a question."""

    paragraphs: tuple[Paragraph, ...] = ()  # MuSiQue
    contexts: tuple[Paragraph, ...] = ()  # IRCoT's processed forms
    context: tuple[tuple[str, list[str]], ...] = ()  # HotpotQA and 2Wiki


def join_sentences(title: str, sentences: Sequence[str]) -> Passage:
    """Return a passage of these sentences, joined by one space, without empty ones; `sentences` stay as they are."""
    text = " ".join(stripped for sentence in sentences if (stripped := sentence.strip()))
    return Passage.of(plain_title(title), text, tuple(sentences))


def read(file: Path) -> Iterator[Passage]:
    """Yield the passages of a corpus file, in order, with repetitions.

    Raises:
        DataError: a record is broken, or no passage has a text.
    """
    return refuse_empty(_read_pages(file) if _is_one_object(file) else _read_records(file), file)


def refuse_empty(passages: Iterable[Passage], file: Path) -> Iterator[Passage]:
    """Yield the passages. Raise a DataError at the end if none has a text."""
    has_text = False
    for passage in passages:
        has_text = has_text or bool(passage.text.strip())
        yield passage
    if not has_text:
        raise DataError(
            f"{file}: no passages with text in this file. Name the file to search in: dataset.corpus=FILE, or "
            "choose a method without a search, such as method=no_context"
        )


def _is_one_object(file: Path) -> bool:
    """Return whether the file is one object of titles, and not an array or JSONL."""
    line, newline, rest = jsonio.read_start(file, FIRST_LINE).lstrip().partition("\n")
    if not line.startswith("{"):
        return False
    try:
        record = jsonio.decode_json(line)
    except jsonio.JsonError:
        # an object on several lines, or a very long one
        return not newline or not rest.lstrip().startswith('{"')
    pages = all(isinstance(value, str | list) for value in record.values()) and not rest.strip()
    return pages and not (RECORD_KEYS | QUESTION_KEYS) & record.keys()


def _read_records(file: Path) -> Iterator[Passage]:
    for where, record in jsonio.stream_records(file):
        keys = record.keys() if isinstance(record, dict) else ()
        if Contexts.model_fields.keys() & keys:
            question = parse_record(Contexts, record, where)
            yield from (paragraph.passage for paragraph in question.paragraphs + question.contexts)
            yield from (join_sentences(title, sentences) for title, sentences in question.context)
        elif "contents" in keys and "text" not in keys:
            yield parse_record(Contents, record, where).passage()
        elif QUESTION_KEYS.isdisjoint(keys):
            # otherwise it is a question without contexts
            titled = parse_record(Titled, record, where)
            yield Passage.of(plain_title(titled.title), titled.text)


def _read_pages(file: Path) -> Iterator[Passage]:
    for where, title, value in jsonio.stream_members(file):
        refuse_half_surrogates([title, value], where)
        if isinstance(value, list) and all(isinstance(sentence, str) for sentence in value):
            yield join_sentences(title, value)
        elif isinstance(value, str):
            for paragraph in html.unescape(TAG.sub("", value)).split("\n"):
                if len(paragraph.split()) >= MIN_WORDS:
                    yield Passage.of(plain_title(title), paragraph.strip())
        else:
            raise DataError(
                f"{where}: expected the sentences or the text of a page. Correct the file"
            )

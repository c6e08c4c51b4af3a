"""Files of passages to search in.

A corpus file is JSON or JSONL of `title` and `text` (or `paragraph_text`); one object of titles with their sentences;
IIRC's `context_articles.json`, titles with whole articles; or a question file, which gives its contexts, as IRCoT
built the corpora of 2Wiki and MuSiQue. All of them plain or gzipped, and none is loaded whole.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field

from kgqa.datasets.contexts import HotpotQAContext, IIRCContext, MuSiQueContext, of_paragraphs, of_sentences, plain
from kgqa.datasets.schema import parse_record, refuse_half_surrogates
from kgqa.errors import DataError
from kgqa.types import Json, Passage
from kgqa.util import jsonio
from kgqa.util.jsonio import JsonError, decode_json

FIRST_LINE = 1 << 24  # characters in which the end of a JSONL file's first record is looked for
RECORD_KEYS = {"title", "text", "paragraph_text", "paragraphs", "context", "contexts"}  # of a record, not of pages
QUESTION_KEYS = {"question", "question_text", "questions"}
SHORTEST_PARAGRAPH = 11  # words; IRCoT leaves out shorter ones when it splits IIRC's articles
TAG = re.compile(r"</?[a-zA-Z][^>]*>")  # a "<" before anything but a letter is one


class _Titled(BaseModel):
    title: str
    text: str = Field(validation_alias=AliasChoices("text", "paragraph_text"))


def read(file: Path) -> Iterator[Passage]:
    """Yield the passages of a corpus file, in order, repeated ones as often as they stand there.

    Raises:
        DataError: on coming to a broken record, or at the end of a file in which no passage has a text.
    """
    some = textless = 0
    for passage in _passages(file):
        some += 1
        textless += not passage.text.strip()
        yield passage
    if not some:
        raise DataError(f"{file}: no passages in this file; name the file to search in: dataset.corpus=FILE")
    if textless == some:
        raise DataError(f"{file}: titles only: none of {some:,} passages has a text; give dataset.corpus=FILE")


def distinct(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Yield each passage once, where it first comes."""
    seen: set[int] = set()  # numbers take less room than ids: 0.5 GB at five million passages
    for passage in passages:
        number = int(passage.id, 16)
        if number not in seen:
            seen.add(number)
            yield passage


def _passages(file: Path) -> Iterator[Passage]:
    if _is_one_object(file):
        for where, title, value in jsonio.stream_members(file):
            yield from _member(where, title, value)
        return
    for where, record in jsonio.stream_records(file):
        yield from _of_record(record, where)


def _is_one_object(file: Path) -> bool:
    """Return whether the file is one object of titles; otherwise it is an array, or has a record in each line."""
    line, ended, rest = jsonio.read_start(file, FIRST_LINE).lstrip().partition("\n")
    if not line.startswith("{"):
        return False
    try:
        record = decode_json(line)
    except JsonError:
        # An object over several lines, or on one that is too long; a JSONL file with a broken first line is
        # refused all the same.
        return not ended or not rest.lstrip().startswith('{"')
    pages = all(isinstance(value, str | list) for value in record.values()) and not rest.strip()
    return pages and not (RECORD_KEYS | QUESTION_KEYS) & record.keys()


def _of_record(record: Json, where: str) -> Iterable[Passage]:
    keys = record.keys() if isinstance(record, dict) else ()
    if "paragraphs" in keys:
        return of_paragraphs(parse_record(MuSiQueContext, record, where).paragraphs)
    if "contexts" in keys:
        return of_paragraphs(parse_record(IIRCContext, record, where).contexts)
    if "context" in keys:
        return [of_sentences(*paragraph) for paragraph in parse_record(HotpotQAContext, record, where).context]
    if not QUESTION_KEYS.isdisjoint(keys):
        return ()  # a question without contexts
    return _read_titled(record, where)


def _read_titled(record: Json, where: str) -> tuple[Passage]:
    if isinstance(record, dict):
        title, text = record.get("title"), record.get("text", record.get("paragraph_text"))
        if isinstance(title, str) and isinstance(text, str):
            with suppress(UnicodeEncodeError):
                return (Passage.of(plain(title), text),)
    titled = parse_record(_Titled, record, where)  # three times slower, and says what is wrong
    return (Passage.of(plain(titled.title), titled.text),)


def _member(where: str, title: str, value: Json) -> Iterator[Passage]:
    refuse_half_surrogates([title, value], where)
    if isinstance(value, list) and all(isinstance(sentence, str) for sentence in value):
        yield of_sentences(title, value)
    elif isinstance(value, str):
        for paragraph in html.unescape(TAG.sub("", value)).split("\n"):
            if len(paragraph.split()) >= SHORTEST_PARAGRAPH:
                yield Passage.of(plain(title), paragraph.strip())
    else:
        raise DataError(f"{where}: expected the sentences or the text of a page; correct the file")

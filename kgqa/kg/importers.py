"""Read passages with triples from the files of other programs: one function per format.

hipporag  one JSON object with `docs`: `extracted_triples` of each `passage`, or of its `title` and `text`
openie    Stanford CoreNLP's JSON, a document a line or in a list: `sentences` with `openie` and `tokens`
jsonl     a passage a line with `triples`, or a triple a line with `head`, `relation`, `tail`; each with `title`, `text`
tsv       a header with head, relation, tail, text and perhaps title; a triple a line
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kgqa.errors import DataError
from kgqa.kg.imported import Parts, TripledPassage, clean_triples
from kgqa.types import Json
from kgqa.util.jsonio import stream_members, stream_records

COLUMNS = ("head", "relation", "tail", "text")  # required; title is optional
_REMEDY = "is the --format the right one?"


def read_hipporag(file: Path) -> Iterator[TripledPassage]:
    for place, key, value in stream_members(file):
        if key == "docs":
            for number, document in enumerate(_list(value, place), start=1):
                yield _document(document, f"{place} document {number}")
            return  # HippoRAG writes means after it, which can be NaN and then are no JSON
    raise DataError(f"{file}: no key 'docs'; {_REMEDY}")


def _document(document: Json, place: str) -> TripledPassage:
    fields = _object(document, place)
    title, text = fields.get("title") or "", fields.get("text")
    if text is None:
        title, text = "", fields.get("passage")
    return _make_passage(title, text, fields.get("extracted_triples"), place)


def read_openie(file: Path) -> Iterator[TripledPassage]:
    """Yield documents with the text made of their tokens, and without a title."""
    for place, record in stream_records(file):
        words: list[str] = []
        triples: list[Json] = []
        for sentence in _list(_object(record, place).get("sentences"), f"{place}: sentences"):
            fields = _object(sentence, f"{place}: a sentence")
            tokens = _list(fields.get("tokens"), f"{place}: tokens")
            words += [str(_object(token, f"{place}: a token").get("originalText", "")) for token in tokens]
            for each in _list(fields.get("openie"), f"{place}: openie"):
                read = _object(each, f"{place}: openie")
                triples.append([read.get("subject"), read.get("relation"), read.get("object")])
        yield _make_passage("", " ".join(words), triples, place)


def read_jsonl(file: Path) -> Iterator[TripledPassage]:
    for place, record in stream_records(file):
        fields = _object(record, place)
        single = [[fields.get("head"), fields.get("relation"), fields.get("tail")]] if "head" in fields else None
        yield _make_passage(fields.get("title") or "", fields.get("text"), fields.get("triples", single), place)


def read_tsv(file: Path) -> Iterator[TripledPassage]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
            names = next(rows, [])
            if missing := [name for name in COLUMNS if name not in names]:
                raise DataError(f"{file}:1: no column {missing[0]}; name the columns: {', '.join(COLUMNS)}, title")
            for row in rows:
                place = f"{file}:{rows.line_num}"
                if len(row) != len(names):
                    raise DataError(f"{place}: {len(row)} columns, the first line has {len(names)}; correct the line")
                fields = dict(zip(names, row, strict=True))
                triple = [fields["head"], fields["relation"], fields["tail"]]
                yield _make_passage(fields.get("title", ""), fields["text"], [triple], place)
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 (byte 0x{error.object[error.start]:02x}); convert the file") from None
    except (OSError, csv.Error) as error:
        raise DataError(f"{file}: cannot be read: {error}; name another file") from None


FORMATS: Mapping[str, Callable[[Path], Iterator[TripledPassage]]] = {  # as in kgqa/cli/kg.py
    "hipporag": read_hipporag,
    "openie": read_openie,
    "jsonl": read_jsonl,
    "tsv": read_tsv,
}


def join_passages(passages: Iterable[TripledPassage]) -> list[TripledPassage]:
    """Return each passage once, in order, with all its distinct triples."""
    first: dict[tuple[bool, bytes], TripledPassage] = {}
    triples: dict[tuple[bool, bytes], dict[Parts, None]] = {}
    malformed = Counter[tuple[bool, bytes]]()
    for passage in passages:
        key = (bool(passage.title), passage.key)
        first.setdefault(key, passage)
        triples.setdefault(key, {}).update(dict.fromkeys(passage.triples))
        malformed[key] += passage.malformed
    return [replace(each, triples=tuple(triples[key]), malformed=malformed[key]) for key, each in first.items()]


def _make_passage(title: Json, text: Json, values: Json, place: str) -> TripledPassage:
    if not isinstance(title, str) or not isinstance(text, str):
        raise DataError(f"{place}: title and text must be texts, or passage; {_REMEDY}")
    triples, malformed = clean_triples(_list(values, f"{place}: triples"))
    passage = TripledPassage(title.strip(), text, triples, malformed)
    if not passage.key:
        raise DataError(f"{place}: neither title nor text has a letter; remove it")
    return passage


def _object(value: Json, place: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise DataError(f"{place}: not an object; {_REMEDY}")
    return value


def _list(value: Json, place: str) -> list[Json]:
    if not isinstance(value, list):
        raise DataError(f"{place}: not a list; {_REMEDY}")
    return value

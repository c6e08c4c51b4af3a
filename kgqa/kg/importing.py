"""What other programs write about passages, read as passages with their triples: a form each.

hipporag  one JSON object with `docs`: `extracted_triples` of each `passage`, or of its `title` and `text`
openie    Stanford CoreNLP's JSON, a document a line or in a list: `sentences` with `openie` and `tokens`
jsonl     a passage a line with `triples`, or a triple a line with `head`, `relation`, `tail`; each with `title`, `text`
tsv       a first line of names, among them head, relation, tail and text; a triple a line
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from kgqa.errors import DataError
from kgqa.kg.imported import Parts, TripledPassage, cleaned
from kgqa.records import members, records
from kgqa.types import Json

COLUMNS = ("head", "relation", "tail", "text")  # that a table must have; a title is welcome
_REMEDY = "is the --format the right one?"


def read_hipporag(file: Path) -> Iterator[TripledPassage]:
    for place, key, value in members(file):
        if key == "docs":
            for number, document in enumerate(_list(value, place), start=1):
                yield _document(document, f"{place} document {number}")
            return  # what follows are means, which HippoRAG writes as NaN where there are none: no JSON
    raise DataError(f"{file}: no docs in it; {_REMEDY}")


def _document(document: Json, place: str) -> TripledPassage:
    fields = _object(document, place)
    title, text = fields.get("title") or "", fields.get("text")
    if text is None:
        title, text = "", fields.get("passage")
    return _tripled(title, text, fields.get("extracted_triples"), place)


def read_openie(file: Path) -> Iterator[TripledPassage]:
    """The text is put together from the tokens; without a title, since documents begin with theirs or have none."""
    for place, record in records(file):
        words: list[str] = []
        triples: list[Json] = []
        for sentence in _list(_object(record, place).get("sentences"), f"{place}: sentences"):
            fields = _object(sentence, f"{place}: a sentence")
            tokens = _list(fields.get("tokens"), f"{place}: tokens")
            words += [str(_object(token, f"{place}: a token").get("originalText", "")) for token in tokens]
            for each in _list(fields.get("openie"), f"{place}: openie"):
                read = _object(each, f"{place}: openie")
                triples.append([read.get("subject"), read.get("relation"), read.get("object")])
        yield _tripled("", " ".join(words), triples, place)


def read_jsonl(file: Path) -> Iterator[TripledPassage]:
    for place, record in records(file):
        fields = _object(record, place)
        single = [[fields.get("head"), fields.get("relation"), fields.get("tail")]] if "head" in fields else None
        yield _tripled(fields.get("title") or "", fields.get("text"), fields.get("triples", single), place)


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
                yield _tripled(fields.get("title", ""), fields["text"], [triple], place)
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 (byte 0x{error.object[error.start]:02x}); convert the file") from None
    except (OSError, csv.Error) as error:
        raise DataError(f"{file}: cannot be read: {error}; name another file") from None


FORMATS: Mapping[str, Callable[[Path], Iterator[TripledPassage]]] = {  # as in kgqa/commands/kg_files.py
    "hipporag": read_hipporag,
    "openie": read_openie,
    "jsonl": read_jsonl,
    "tsv": read_tsv,
}


def joined(passages: Iterable[TripledPassage]) -> list[TripledPassage]:
    """Each passage once, in the order in which they come; its triples too."""
    kept: dict[tuple[bool, bytes], TripledPassage] = {}
    triples: dict[tuple[bool, bytes], dict[Parts, None]] = {}
    malformed: dict[tuple[bool, bytes], int] = {}
    for passage in passages:
        key = (bool(passage.title), passage.key)
        kept.setdefault(key, passage)
        triples.setdefault(key, {}).update(dict.fromkeys(passage.triples))
        malformed[key] = malformed.get(key, 0) + passage.malformed
    return [
        TripledPassage(passage.title, passage.text, tuple(triples[key]), malformed[key])
        for key, passage in kept.items()
    ]


def _tripled(title: Json, text: Json, written: Json, place: str) -> TripledPassage:
    if not isinstance(title, str) or not isinstance(text, str):
        raise DataError(f"{place}: title and text must be texts, or passage; {_REMEDY}")
    triples, malformed = cleaned(_list(written, f"{place}: triples"))
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

"""Triples of other programs: import them, use them as the knowledge graph of a run, and export triples.

Formats to import:
hipporag  one JSON object with `docs`: `extracted_triples` of each `passage`, or of its `title` and `text`
openie    Stanford CoreNLP's JSON, one document per line or a list: `sentences` with `openie` and `tokens`
jsonl     one passage per line with `triples`, or one triple per line with `head`, `relation`, `tail`
tsv       a header with head, relation, tail, text and optionally title, and one triple per line

Passages are compared by title and text, ignoring case, spaces and punctuation, because tools split words differently.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar
from unicodedata import normalize
from xml.sax.saxutils import escape

from kgqa.errors import ConfigError, DataError
from kgqa.kg.extraction import UNREADABLE, Extractor, parse_triples
from kgqa.prompting import template_hash
from kgqa.protocols import Need
from kgqa.types import Json, JsonObject, Passage, Triple
from kgqa.util.fs import (
    OUT_ELSEWHERE,
    ensure_dir,
    explain_storage_errors,
    quick_sha256,
    replace_file,
)
from kgqa.util.jsonio import stream_lines, stream_members, stream_records
from kgqa.util.settings import NotIdentity, Setting

REMEDY = "Import it: kgqa kg import FILE --format hipporag|openie|jsonl|tsv"
FORMAT_REMEDY = "Check --format."
IMPORT_COLUMNS = ("head", "relation", "tail", "text")  # required; title is optional
EXPORT_COLUMNS = ("head", "relation", "tail", "title", "text")
NOT_IN_XML = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)  # and not in UTF-8
GRAPHML = '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
GRAPHML_KEYS = (("name", "node"), ("relation", "edge"), ("passage", "edge"), ("title", "edge"))
Parts = tuple[str, str, str]  # head, relation, tail
# title, text, triples of any form
Record = tuple[str | None, str, list[Any]]
ReadPassages = Iterable[tuple[Passage, tuple[Triple, ...]]]


@dataclass(frozen=True, slots=True)
class TripledPassage:
    """A passage with its triples. Without a title, the text can start with it."""

    title: str
    text: str
    triples: tuple[Parts, ...]
    malformed: int = 0  # entries that are no triples

    @property
    def key(self) -> bytes:
        return text_key(self.title, self.text)

    def json(self) -> dict[str, Json]:
        return {
            "title": self.title,
            "text": self.text,
            "triples": [list(triple) for triple in self.triples],
        }


def text_key(*texts: str) -> bytes:
    """Return a hash of the letters and digits of the joined texts, or b"" if there are none."""
    letters = "".join(filter(str.isalnum, normalize("NFKC", "".join(texts)).casefold()))
    return (
        hashlib.sha256(letters.encode("utf-8", "surrogatepass")).digest()[:16] if letters else b""
    )


# Import


def _hipporag_records(file: Path) -> Iterator[tuple[str, Json]]:
    for location, key, value in stream_members(file):
        if key == "docs":
            for number, document in enumerate(
                value if isinstance(value, list) else [value], start=1
            ):
                yield f"{location} document {number}", document
            # HippoRAG writes means after it, which can be NaN and then are no JSON
            return
    raise DataError(f"{file}: no key 'docs'. {FORMAT_REMEDY}")


def _parse_hipporag(document: Json) -> Record:
    if "text" in document:
        return document.get("title"), document["text"], document["extracted_triples"]
    return "", document["passage"], document["extracted_triples"]


def _parse_openie(document: Json) -> Record:
    sentences = document["sentences"]
    text = " ".join(token["originalText"] for sentence in sentences for token in sentence["tokens"])
    triples = (each for sentence in sentences for each in sentence["openie"])
    return "", text, [[each["subject"], each["relation"], each["object"]] for each in triples]


def _parse_jsonl(record: Json) -> Record:
    single = [[record["head"], record["relation"], record["tail"]]] if "head" in record else None
    return record.get("title"), record["text"], single or record["triples"]


def _tsv_records(file: Path) -> Iterator[tuple[str, Json]]:
    lines = (line.removesuffix("\n").removesuffix("\r") for line in stream_lines(file))
    names = next(lines).split("\t")
    if missing := [name for name in IMPORT_COLUMNS if name not in names]:
        raise DataError(
            f"{file}:1: no column {missing[0]}. Name the columns: {', '.join(IMPORT_COLUMNS)}, title"
        )
    for number, line in enumerate(lines, start=2):
        location, row = f"{file}:{number}", line.split("\t")
        if len(row) != len(names):
            raise DataError(
                f"{location}: {len(row)} columns, the first line has {len(names)}. Correct the line."
            )
        yield location, dict(zip(names, row, strict=True))


# the location and value of each record of a file
Records = Callable[[Path], Iterator[tuple[str, Json]]]
IMPORT_FORMATS: Mapping[str, tuple[Records, Callable[[Json], Record]]] = {  # as in kgqa/cli
    "hipporag": (_hipporag_records, _parse_hipporag),
    "openie": (stream_records, _parse_openie),
    "jsonl": (stream_records, _parse_jsonl),
    "tsv": (_tsv_records, _parse_jsonl),
}


def read_passages(file: Path, form: str) -> list[TripledPassage]:
    """Read a file in one of `IMPORT_FORMATS`. Return each passage once, in order, with its distinct triples."""
    records, parse = IMPORT_FORMATS[form]
    joined: dict[bytes, TripledPassage] = {}
    for location, record in records(file):
        passage = _read(parse, record, location)
        first = joined.get(passage.key, replace(passage, triples=(), malformed=0))
        triples = tuple(dict.fromkeys((*first.triples, *passage.triples)))
        joined[passage.key] = replace(
            first, triples=triples, malformed=first.malformed + passage.malformed
        )
    return list(joined.values())


def _read(parse: Callable[[Json], Record], record: Json, location: str) -> TripledPassage:
    """Return the passage of a record with its distinct triples in order, with single spaces."""
    triples: dict[Parts, None] = {}
    malformed = 0
    try:
        title, text, values = parse(record)
        for each in values:
            parts = (
                [" ".join(part.split()) for part in each if isinstance(part, str)]
                if isinstance(each, list)
                else []
            )
            if len(parts) == 3 and len(each) == 3 and all(parts):
                triples[parts[0], parts[1], parts[2]] = None
            else:
                malformed += 1
        passage = TripledPassage((title or "").strip(), text, tuple(triples), malformed)
        has_letters = bool(passage.key)
    except KeyError as error:
        raise DataError(f"{location}: no key {error}. {FORMAT_REMEDY}") from None
    except (TypeError, AttributeError):
        raise DataError(f"{location}: not in this format. {FORMAT_REMEDY}") from None
    if not has_letters:
        raise DataError(f"{location}: title and text contain no letters. Remove it.")
    return passage


# Use


@dataclass(frozen=True)
class ImportedTriples:
    """The file of `kg.path` in the format jsonl. It is read with the first passage."""

    path: Annotated[
        str | None,
        Setting(
            "File of triples of kgqa kg import or export, such as outputs/kg/imported/NAME.jsonl. Passages are "
            "found by title and text."
        ),
        NotIdentity("the identity has the hash of this file"),
    ] = None

    key: ClassVar[str] = "kg.path"  # for messages
    uses: ClassVar[frozenset[Need]] = frozenset()

    @property
    def file(self) -> Path:
        """Return the file. Raises ConfigError: no path is set, or the file does not exist."""
        if not self.path:
            raise ConfigError(f"{self.key}=null: name the file of triples. {REMEDY}")
        if not Path(self.path).is_file():
            raise ConfigError(f"{self.key}={self.path}: no such file. {REMEDY}")
        return Path(self.path)

    @property
    def sha256(self) -> str:
        """Return the hash that represents the triples in the run ID."""
        file = self.file
        with explain_storage_errors(file, "name another file"):
            return quick_sha256(file)

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Return the triples of a passage, none if the file does not have it."""
        return tuple(Triple(*parts, passage.id) for parts in self._parts(passage) or ())

    def missing(self, passages: Iterable[Passage]) -> list[Passage]:
        """Return the passages that the file does not have."""
        return [passage for passage in passages if self._parts(passage) is None]

    def counts(self, passages: Iterable[Passage]) -> dict[str, int]:
        """Return sums over distinct passages. `unmatched`: not in the file. `empty`: without triples."""
        sums = Counter(passages=0, unmatched=0, empty=0, triples=0)
        for passage in passages:
            parts = self._parts(passage)
            sums.update(
                passages=1, unmatched=parts is None, empty=not parts, triples=len(parts or ())
            )
        return dict(sums)

    def _parts(self, passage: Passage) -> tuple[Parts, ...] | None:
        """Find a passage by title and text, or by its text if the file has no titles."""
        complete = self._passages.get(text_key(passage.title, passage.text))
        return self._passages.get(text_key(passage.text)) if complete is None else complete

    @cached_property
    def _passages(self) -> dict[bytes, tuple[Parts, ...]]:
        """Read the triples of the passages by their keys."""
        passages = dict[bytes, tuple[Parts, ...]]()
        for read in read_passages(self.file, "jsonl"):
            if read.malformed:
                name = read.title or read.text[:40]
                raise DataError(
                    f"{self.file}: the passage {name!r}: {read.malformed} triples are not three texts. Correct it: "
                    f"kgqa kg import {self.file} --format jsonl"
                )
            passages[read.key] = read.triples
        return passages


@dataclass(frozen=True)
class TripleFile(ImportedTriples):
    """The file of `retriever.triples.path`, if it is set."""

    key: ClassVar[str] = "retriever.triples.path"

    def loads(self) -> JsonObject:
        """Return the hash of the file."""
        return {"sha256": self.sha256} if self.path else {}


@dataclass(frozen=True)
class RetrieverTriples(TripleFile):
    """The file of `retriever.triples.path`. Without one, `extractor` extracts the triples when the index is built."""

    extractor: Annotated[Extractor, Setting("Extracts the triples when the index is built.")] = (
        field(kw_only=True)
    )

    def loads(self) -> JsonObject:
        """Return the hash of the file, or those of the extractor's templates."""
        return super().loads() or {"templates": list(map(template_hash, self.extractor.templates))}

    async def extract(self, passage: Passage) -> tuple[tuple[Triple, ...], bool]:
        """Extract the triples of a passage. Return them, and whether the model's reply could be read."""
        extraction = await self.extractor.extract(passage)
        parsed = parse_triples(extraction.completion, passage)
        is_malformed = parsed.malformed > 0 and not parsed.triples
        return parsed.triples, not (is_malformed or UNREADABLE in extraction.flags)


# Export


def jsonl_lines(passages: ReadPassages) -> Iterator[str]:
    """Yield one line per passage, also for passages without triples: the format of `kg=imported`."""
    for passage, triples in passages:
        parts = [[each.head, each.relation, each.tail] for each in triples]
        yield (
            json.dumps(
                {"title": passage.title, "text": passage.text, "triples": parts}, ensure_ascii=False
            )
            + "\n"
        )


def tsv_lines(passages: ReadPassages) -> Iterator[str]:
    """Yield a header and one line per triple. Tabs and line ends in texts become spaces."""
    yield "\t".join(EXPORT_COLUMNS) + "\n"
    for passage, triples in passages:
        for triple in triples:
            cells = (triple.head, triple.relation, triple.tail, passage.title, passage.text)
            yield (
                "\t".join(" ".join(NOT_IN_XML.sub("\ufffd", cell).split()) for cell in cells) + "\n"
            )


def graphml_parts(passages: ReadPassages) -> Iterator[str]:
    """Yield a node per entity (equal words are one entity) and an edge per triple. Only entities are in memory."""
    entities, edges = dict[str, int](), 0
    yield GRAPHML
    for name, kind in GRAPHML_KEYS:
        yield f'<key id="{name}" for="{kind}" attr.name="{name}" attr.type="string"/>\n'
    yield '<graph id="triples" edgedefault="directed">\n'
    for passage, triples in passages:
        for triple in triples:
            for name in (triple.head, triple.tail):
                if name not in entities:
                    entities[name] = len(entities)
                    yield f'<node id="n{entities[name]}"><data key="name">{_xml(name)}</data></node>\n'
            ends = f'source="n{entities[triple.head]}" target="n{entities[triple.tail]}"'
            data = (
                ("relation", triple.relation),
                ("passage", passage.id),
                ("title", passage.title),
            )
            texts = "".join(f'<data key="{key}">{_xml(text)}</data>' for key, text in data)
            yield f'<edge id="e{edges}" {ends}>{texts}</edge>\n'
            edges += 1
    yield "</graph>\n</graphml>\n"


EXPORT_FORMATS: Mapping[str, Callable[[ReadPassages], Iterator[str]]] = {  # as in kgqa/cli
    "jsonl": jsonl_lines,
    "tsv": tsv_lines,
    "graphml": graphml_parts,
}


def write_triples(passages: ReadPassages, out: Path, form: str) -> Path:
    """Write distinct passages with their triples in one of `EXPORT_FORMATS`.

    Raises:
        ConfigError: the file exists.
        StorageError: the disk is full or not writable.
    """
    if out.exists():
        raise ConfigError(f"--out {out}: this file exists. Use another name.")
    with explain_storage_errors(out.parent, OUT_ELSEWHERE):
        ensure_dir(out.parent)
    return replace_file(out, EXPORT_FORMATS[form](passages))


def _xml(text: str) -> str:
    return escape(NOT_IN_XML.sub("\ufffd", text))

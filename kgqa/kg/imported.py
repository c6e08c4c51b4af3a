"""Triples from other programs as the knowledge graph of a run: a file that `kgqa kg import` wrote.

A passage is found by its title and text, ignoring case, spaces and punctuation, because tools split words differently.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unicodedata import normalize

from kgqa.artifacts.schema import check_json
from kgqa.errors import ConfigError, DataError
from kgqa.protocols import Need
from kgqa.types import Json, Passage, Triple
from kgqa.util.fs import explain_storage_errors, quick_sha256
from kgqa.util.jsonio import parse_json

REMEDY = "import it: kgqa kg import FILE --format hipporag|openie|jsonl|tsv"
Parts = tuple[str, str, str]  # head, relation, tail


@dataclass(frozen=True)
class ImportedTriples:
    """Fields as in conf/kg/imported.yaml."""

    path: str | None

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset()


@dataclass(frozen=True, slots=True)
class TripledPassage:
    """A passage with its triples. Without a title, the text may start with it."""

    title: str
    text: str
    triples: tuple[Parts, ...]
    malformed: int = 0  # entries that are no triples

    @property
    def key(self) -> bytes:
        return text_key(self.title, self.text)

    def json(self) -> dict[str, Json]:
        return {"title": self.title, "text": self.text, "triples": [list(triple) for triple in self.triples]}


def text_key(*texts: str) -> bytes:
    """Return a hash of the letters and digits of the joined texts; empty if there are none."""
    letters = "".join(filter(str.isalnum, normalize("NFKC", "".join(texts)).casefold()))
    return hashlib.sha256(letters.encode("utf-8", "surrogatepass")).digest()[:16] if letters else b""


def clean_triples(values: Iterable[Json]) -> tuple[tuple[Parts, ...], int]:
    """Return the distinct triples in order, with single spaces, and how many values are not three non-empty texts."""
    triples: dict[Parts, None] = {}
    malformed = 0
    for each in values:
        parts = [" ".join(part.split()) for part in each if isinstance(part, str)] if isinstance(each, list) else []
        if len(parts) == 3 and len(each) == 3 and all(parts):
            triples[parts[0], parts[1], parts[2]] = None
        else:
            malformed += 1
    return tuple(triples), malformed


@dataclass(frozen=True)
class ImportedFile:
    """The file of `kg.path`, with one passage per line. It is read with the first passage."""

    path: str | None

    @property
    def file(self) -> Path:
        """Return the file. Raises ConfigError: no path is set, or the file does not exist."""
        if not self.path:
            raise ConfigError(f"kg.path=null: name the file of triples; {REMEDY}")
        if not Path(self.path).is_file():
            raise ConfigError(f"kg.path={self.path}: no such file; {REMEDY}")
        return Path(self.path)

    @property
    def sha256(self) -> str:
        """Return the hash that represents the triples in the run ID."""
        file = self.file
        with explain_storage_errors(file, "name another file"):
            return quick_sha256(file)

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Return the triples of a passage; none if the file does not have it, see `missing`."""
        return tuple(Triple(*parts, passage.id) for parts in self._parts(passage) or ())

    def missing(self, passages: Iterable[Passage]) -> list[Passage]:
        """Return the passages that the file does not have."""
        return [passage for passage in passages if self._parts(passage) is None]

    def counts(self, passages: Iterable[Passage]) -> dict[str, int]:
        """Return sums over distinct passages. `unmatched`: not in the file; `empty`: without triples."""
        sums = Counter[str]()
        for passage in passages:
            triples = self.triples(passage)
            sums["passages"] += 1
            sums["unmatched"] += self._parts(passage) is None
            sums["empty"] += not triples
            sums["triples"] += len(triples)
        return {name: sums[name] for name in ("passages", "unmatched", "empty", "triples")}

    def _parts(self, passage: Passage) -> tuple[Parts, ...] | None:
        """Find a passage by title and text, or by its text if the file has no titles."""
        titled, untitled = self._passages
        whole, text = text_key(passage.title, passage.text), text_key(passage.text)
        return titled.get(whole, untitled.get(whole, untitled.get(text)))

    @cached_property
    def _passages(self) -> tuple[dict[bytes, tuple[Parts, ...]], dict[bytes, tuple[Parts, ...]]]:
        """Read the triples of the passages with a title, and of those without."""
        titled, untitled = dict[bytes, tuple[Parts, ...]](), dict[bytes, tuple[Parts, ...]]()
        with explain_storage_errors(self.file, "name another file"), self.file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                place = f"{self.file}:{number}"
                read = read_line(line, place)
                passages = titled if read.title else untitled
                if not read.key:
                    raise DataError(f"{place}: neither title nor text has a letter; remove the line")
                if read.key in passages:
                    raise DataError(
                        f"{place}: the passage {read.title or read.text[:40]!r} is in an earlier line, too; "
                        f"join them: kgqa kg import {self.file} --format jsonl"
                    )
                passages[read.key] = read.triples
        return titled, untitled


@dataclass(frozen=True, slots=True)
class _Line:
    title: str
    text: str
    triples: tuple[Json, ...]


def read_line(line: bytes, place: str) -> TripledPassage:
    """Parse a line. Raises DataError: `kgqa kg import` does not write such lines."""
    fields: _Line = check_json(_Line, parse_json(line, place, REMEDY), place, REMEDY)
    triples, malformed = clean_triples(fields.triples)
    if malformed:
        raise DataError(
            f"{place}: triples: {malformed} are not three texts; remove them: kgqa kg import --format jsonl"
        )
    return TripledPassage(fields.title, fields.text, triples)

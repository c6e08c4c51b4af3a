"""Extracted triples on disk: the reply of the model per passage, parsed on every load.

A folder has `extractions.sqlite` (one row per passage) and `manifest.json` (the settings it was built with). Several
processes can write at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from kgqa.artifacts.schema import check_json
from kgqa.errors import DataError, StorageError
from kgqa.prompting.triples import read_triples
from kgqa.types import Json, Passage, Triple
from kgqa.util.fs import digest, json_text, replace_file
from kgqa.util.jsonio import parse_json

FILE = "extractions.sqlite"
PARSED_IN_MEMORY = 8192  # passages
LOCK_SECONDS = 600.0  # wait for another process that writes
REMEDY = "Free disk space or choose another folder"
SUMS = ("passages", "failed", "empty", "triples", "malformed", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Extraction:
    """The unparsed reply about one passage, and its cost."""

    passage_id: str
    title: str
    completion: str
    prompt_tokens: int = 0
    output_tokens: int = 0
    flags: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None  # why there is no reply


@dataclass(frozen=True, slots=True)
class ParsedTriples:
    """Distinct triples in the order of the reply, and the number of malformed ones."""

    triples: tuple[Triple, ...]
    malformed: int


def parse_triples(completion: str, passage: Passage) -> ParsedTriples:
    """Parse the triples of a reply, see `read_triples`.

    A head that is neither the title nor in the text becomes the title, if there is one (as in the released code). Case
    and repeated spaces are ignored.
    """
    written = read_triples(completion)
    title, text = _normalize(passage.title), _normalize(passage.text)
    triples: dict[Triple, None] = {}
    for head, relation, tail in written.triples:
        known = _normalize(head) == title or _normalize(head) in text
        triples[Triple(head if known else passage.title.strip() or head, relation, tail, passage.id)] = None
    return ParsedTriples(tuple(triples), written.malformed)


def _normalize(text: str) -> str:
    return " ".join(text.split()).casefold()


def store_folder(root: Path, dataset: str, built_with: Mapping[str, Json]) -> Path:
    """Return the folder of the triples built with these settings: `root/dataset/<12 hex digits>`."""
    return root / dataset / digest(dict(built_with), 12, ensure_ascii=False)


class TripleStore:
    """The extractions of one folder. Errors: DataError for a damaged file, StorageError for a full disk."""

    def __init__(self, folder: Path, built_with: Mapping[str, Json]) -> None:
        self.folder, self.built_with = folder, dict(built_with)
        self.file = folder / FILE
        self._failed = dict[str, Extraction]()  # of this process: the next one tries them again
        self._parse_cached = lru_cache(PARSED_IN_MEMORY)(self._parse)

    @property
    def place(self) -> str:
        return str(self.folder)

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Return the triples of a passage, none if its extraction failed. Raises DataError as `extraction`."""
        return self._parse_cached(passage).triples

    def extraction(self, passage: Passage) -> Extraction:
        """Return the stored reply, or the error of this process.

        Raises:
            DataError: the passage was never extracted, or the file is damaged.
        """
        line = self._line(passage.id)
        if line is None and passage.id in self._failed:
            return self._failed[passage.id]
        if line is None:
            command = f"kgqa kg build dataset={self.folder.parent.name}"
            raise DataError(f"no triples for passage {passage.id} in {self.folder}. Run: {command}")
        where, remedy = f"{self.file}: {passage.id}: not an extraction", f"Delete {self.folder} and build it again."
        return check_json(Extraction, parse_json(line, where, remedy), where, remedy)

    def missing(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """Yield the passages without a reply in order, also failed ones."""
        return (passage for passage in passages if self._line(passage.id) is None)

    def add(self, extractions: Iterable[Extraction]) -> None:
        """Store extractions. The first one of a passage wins. Failed ones are only kept in memory."""
        extractions = list(extractions)
        self._failed |= {each.passage_id: each for each in extractions if each.error is not None}
        rows = [
            # backslashreplace writes a lone surrogate as \udcXX, which is JSON's own escape for it
            (each.passage_id, json.dumps(asdict(each), ensure_ascii=False).encode("utf-8", "backslashreplace"))
            for each in extractions
            if each.error is None
        ]
        if not rows:
            return
        if not self.file.exists():
            replace_file(self.folder / "manifest.json", json_text(self.built_with), REMEDY)
        with self._errors():
            self._connection.executemany("INSERT OR IGNORE INTO extractions VALUES (?, ?)", rows)
            self._connection.commit()

    def counts(self, passages: Iterable[Passage]) -> dict[str, int]:
        """Return sums over the passages, which must be distinct: `SUMS` and the flags of extraction."""
        sums, flags = Counter(dict.fromkeys(SUMS, 0)), Counter[str]()
        for passage in passages:
            extraction = self.extraction(passage)
            parsed = parse_triples(extraction.completion, passage)  # not cached: a corpus has millions
            sums.update(
                passages=1,
                failed=extraction.error is not None,
                empty=not parsed.triples,
                triples=len(parsed.triples),
                malformed=parsed.malformed,
                prompt_tokens=extraction.prompt_tokens,
                output_tokens=extraction.output_tokens,
            )
            flags.update(extraction.flags)
        return {**sums, **dict(sorted(flags.items()))}

    def _parse(self, passage: Passage) -> ParsedTriples:
        return parse_triples(self.extraction(passage).completion, passage)

    def _line(self, passage_id: str) -> bytes | None:
        if not self.file.exists():
            return None
        with self._errors():
            query = "SELECT line FROM extractions WHERE passage_id = ?"
            row = self._connection.execute(query, (passage_id,)).fetchone()
        return row[0] if row else None

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.file, timeout=LOCK_SECONDS, check_same_thread=False)
        connection.execute(
            "CREATE TABLE IF NOT EXISTS extractions (passage_id TEXT PRIMARY KEY, line BLOB) WITHOUT ROWID"
        )
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StorageError(f"{self.file}: {error}. {REMEDY}.") from error
        except sqlite3.DatabaseError as error:
            raise DataError(f"{self.file}: damaged ({error}). Delete {self.folder} and build it again.") from error

"""Extracted triples on disk: the reply of the model per passage, parsed on every load.

A folder has `extractions.sqlite` (one row per passage), `manifest.json` (the settings it was built with) and
`statistics.json`. Several processes can add at once. The folder is created with the first extraction.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from kgqa.artifacts.schema import check_json
from kgqa.errors import DataError, StorageError
from kgqa.kg.parsing import Extraction, ParsedTriples, parse_triples
from kgqa.types import Json, Passage, Triple
from kgqa.util.fs import create_private, digest, explain_storage_errors, json_text, replace_file
from kgqa.util.jsonio import JsonError, decode_json

FILE = "extractions.sqlite"
PARSED_IN_MEMORY = 8192  # passages: those of the questions that are being answered, and more
LOCK_SECONDS = 600.0  # to wait for another process that writes
REMEDY = "make room or choose another folder"
DOUBTS = ("replaced_heads", "other_heads", "absent_tails")  # of triples, see `ParsedTriples`
SUMS = ("passages", "failed", "empty", "triples", "malformed", *DOUBTS, "prompt_tokens", "output_tokens")


def store_folder(root: Path, dataset: str, built_with: Mapping[str, Json]) -> Path:
    """Return the folder of the triples built with these settings: `root/dataset/<12 hex digits>`."""
    return root / dataset / digest(dict(built_with), 12, ensure_ascii=False)


class TripleStore:
    """The extractions of one folder. Errors: DataError for a damaged file, StorageError for a full disk."""

    def __init__(self, folder: Path, built_with: Mapping[str, Json]) -> None:
        self.folder, self.built_with = folder, dict(built_with)
        self._connection: sqlite3.Connection | None = None
        self._parse_cached = lru_cache(PARSED_IN_MEMORY)(self._parse)

    @property
    def file(self) -> Path:
        return self.folder / FILE

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Return the triples of a passage, none if its extraction failed.

        Raises:
            DataError: the passage was never extracted, or the file is damaged.
        """
        return self._parse_cached(passage).triples

    def extraction(self, passage: Passage) -> Extraction:
        """Return the stored reply; see `triples` for errors."""
        line = self._line(passage.id)
        if line is None:
            command = f"kgqa kg build dataset={self.folder.parent.name}"
            raise DataError(f"no triples for passage {passage.id} in {self.folder}; run: {command}")
        return _parse_line(line, f"{self.file}: {passage.id}", f"delete {self.folder} and build it again")

    def missing(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """Yield the passages without a row, in their order; a failed passage has one."""
        return (passage for passage in passages if self._line(passage.id) is None)

    def add(self, extraction: Extraction) -> None:
        self.add_all([extraction])

    def add_all(self, extractions: Iterable[Extraction]) -> None:
        """Store extractions. A passage that has one already keeps it."""
        rows = [(each.passage_id, extraction_line(each)) for each in extractions]
        if not rows:
            return
        if not self.file.exists():
            replace_file(self.folder / "manifest.json", json_text(self.built_with), REMEDY)
        with self._errors():
            connection = self._connect()
            connection.executemany("INSERT OR IGNORE INTO extractions VALUES (?, ?)", rows)
            connection.commit()

    def counts(self, passages: Iterable[Passage]) -> dict[str, int]:
        """Return sums over the passages, which must be distinct: `SUMS` and the flags of extraction."""
        sums, flags = Counter[str](), Counter[str]()
        for passage in passages:
            extraction = self.extraction(passage)
            parsed = parse_triples(extraction.completion, passage)  # millions of passages do not fit in memory
            sums["passages"] += 1
            sums["failed"] += extraction.error is not None
            sums["empty"] += not parsed.triples
            sums["triples"] += len(parsed.triples)
            sums["malformed"] += parsed.malformed
            sums.update({doubt: len(getattr(parsed, doubt)) for doubt in DOUBTS})
            sums["prompt_tokens"] += extraction.prompt_tokens
            sums["output_tokens"] += extraction.output_tokens
            flags.update(extraction.flags)
        return {name: sums[name] for name in SUMS} | dict(sorted(flags.items()))

    def write_statistics(self, statistics: Mapping[str, Json]) -> Path:
        """Replace `statistics.json` and return its path."""
        return replace_file(self.folder / "statistics.json", json_text(dict(statistics)), REMEDY)

    def _parse(self, passage: Passage) -> ParsedTriples:
        return parse_triples(self.extraction(passage).completion, passage)

    def _line(self, passage_id: str) -> bytes | None:
        if self._connection is None and not self.file.exists():
            return None
        with self._errors():
            query = self._connect().execute("SELECT line FROM extractions WHERE passage_id = ?", (passage_id,))
            row = query.fetchone()
        return row[0] if row else None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(create_private(self.file), timeout=LOCK_SECONDS, check_same_thread=False)
            connection.execute(
                "CREATE TABLE IF NOT EXISTS extractions (passage_id TEXT PRIMARY KEY, line BLOB) WITHOUT ROWID"
            )
            self._connection = connection
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StorageError(f"{self.file}: {error}; {REMEDY}") from error
        except sqlite3.DatabaseError as error:
            raise DataError(f"{self.file}: damaged ({error}); delete {self.folder} and build it again") from error


def extraction_line(extraction: Extraction) -> bytes:
    # backslashreplace writes a lone surrogate as \udcXX, which is JSON's own escape for it
    return json.dumps(asdict(extraction), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def read_extractions(file: Path) -> Iterator[Extraction]:
    """Yield the extractions of a file with one line each. Raises DataError: a line is damaged."""
    with explain_storage_errors(file, REMEDY), file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            yield _parse_line(line, f"{file}:{number}", "remove the line and build again")


def _parse_line(line: bytes, where: str, remedy: str) -> Extraction:
    try:
        extraction: Extraction = check_json(Extraction, decode_json(line), f"{where}: not an extraction", remedy)
    except JsonError as error:
        raise DataError(f"{where}: not an extraction ({error}); {remedy}") from None
    return extraction

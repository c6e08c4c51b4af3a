"""Extracted triples on disk: what a model wrote about each passage, parsed when asked for.

A folder holds `extractions.jsonl` (one line per passage), `manifest.json` (what it was built with) and
`statistics.json`. Several processes may add at once, and any of them may be killed at any moment.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from kgqa.errors import DataError, StorageError
from kgqa.kg.parsing import Extraction, ParsedTriples, parse_triples
from kgqa.types import Json, Passage, Triple


def store_folder(root: Path, dataset: str, built_with: Mapping[str, Json]) -> Path:
    """Where the triples built with these settings belong: `root/dataset/<12 hex digits>`."""
    canonical = json.dumps(built_with, sort_keys=True, ensure_ascii=False)
    return root / dataset / hashlib.sha256(canonical.encode()).hexdigest()[:12]


class TripleStore:
    """Nothing is read or written before the first use."""

    def __init__(self, folder: Path, built_with: Mapping[str, Json]) -> None:
        self.folder = folder
        self.built_with = dict(built_with)
        self._extractions: dict[str, Extraction] = {}
        self._parsed: dict[str, ParsedTriples] = {}
        self._bytes_read = 0
        self._lines_read = 0
        self._manifest_checked = False

    @property
    def file(self) -> Path:
        return self.folder / "extractions.jsonl"

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Empty where extraction failed or found nothing.

        Raises:
            DataError: the passage was never extracted, or the folder is broken.
        """
        return self.parsed(passage).triples

    def parsed(self, passage: Passage) -> ParsedTriples:
        """As `triples`, with the count of what could not be parsed."""
        if passage.id not in self._parsed:
            self._parsed[passage.id] = parse_triples(self.extraction(passage).completion, passage)
        return self._parsed[passage.id]

    def extraction(self, passage: Passage) -> Extraction:
        """The first one on disk; see `triples` for errors."""
        if passage.id not in self._extractions:
            self._read_new_lines()
        if passage.id not in self._extractions:
            command = f"kgqa kg build dataset={self.folder.parent.name}"
            raise DataError(f"no triples for passage {passage.id} in {self.folder}; run: {command}")
        return self._extractions[passage.id]

    def missing(self, passages: Iterable[Passage]) -> list[Passage]:
        """Passages without an entry, each once, in the given order; a failed one has an entry."""
        self._read_new_lines()
        distinct = {passage.id: passage for passage in passages}
        return [passage for passage in distinct.values() if passage.id not in self._extractions]

    def add(self, extraction: Extraction) -> None:
        """Keep one extraction, at once and for good.

        Raises:
            StorageError: the disk is full or refuses.
        """
        # backslashreplace writes a lone surrogate as \udcXX, which is JSON's own escape for it
        line = json.dumps(asdict(extraction), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        with _storage(self.file):
            self._write_manifest()
            descriptor = os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # released by the system if we are killed
                _cut_unfinished_line(descriptor)
                if os.write(descriptor, line) < len(line):
                    raise StorageError(f"{self.file}: the disk is full; make room and run the same command again")
            finally:
                os.close(descriptor)

    def counts(self, passages: Sequence[Passage]) -> dict[str, int]:
        """Sums over the passages, each once: passages, failed, empty, triples, malformed, flags and tokens."""
        distinct = list({passage.id: passage for passage in passages}.values())
        extractions = [self.extraction(passage) for passage in distinct]
        parsed = [self.parsed(passage) for passage in distinct]
        flags = sorted({flag for extraction in extractions for flag in extraction.flags})
        return {
            "passages": len(distinct),
            "failed": sum(extraction.error is not None for extraction in extractions),
            "empty": sum(not one.triples for one in parsed),
            "triples": sum(len(one.triples) for one in parsed),
            "malformed": sum(one.malformed for one in parsed),
            "prompt_tokens": sum(extraction.prompt_tokens for extraction in extractions),
            "output_tokens": sum(extraction.output_tokens for extraction in extractions),
        } | {flag: sum(extraction.flags.get(flag, 0) for extraction in extractions) for flag in flags}

    def write_statistics(self, statistics: Mapping[str, Json]) -> Path:
        """Replace `statistics.json`; returns its path."""
        path = self.folder / "statistics.json"
        with _storage(path):
            self._write_manifest()
            _replace_json(path, statistics)
        return path

    def export(self, passages: Iterable[Passage], path: Path) -> None:
        """Parsed triples as JSONL: `{"passage_id", "title", "text", "triples": [[head, relation, tail], …]}`."""
        with _storage(path), path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for passage in {passage.id: passage for passage in passages}.values():
                triples = [[triple.head, triple.relation, triple.tail] for triple in self.triples(passage)]
                record = {"passage_id": passage.id, "title": passage.title, "text": passage.text, "triples": triples}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def _read_new_lines(self) -> None:
        """Read what was added since the last time; an unfinished last line is left for later."""
        self._check_manifest()
        if not self.file.exists():
            return
        with _storage(self.file), self.file.open("rb") as file:
            file.seek(self._bytes_read)
            added = file.read()
        for line in added.split(b"\n")[:-1]:
            extraction = _parse_line(line, f"{self.file}:{self._lines_read + 1}")
            self._extractions.setdefault(extraction.passage_id, extraction)
            self._bytes_read += len(line) + 1
            self._lines_read += 1

    def _check_manifest(self) -> None:
        path = self.folder / "manifest.json"
        if self._manifest_checked or not path.exists():
            return
        try:
            with _storage(path):
                found = json.loads(path.read_bytes())
        except ValueError as error:
            raise DataError(f"{path}: not JSON ({error}); delete {self.folder} and build it again") from None
        wanted = json.loads(json.dumps(self.built_with))
        if found != wanted:
            keys = sorted(found.keys() ^ wanted.keys() | {k for k in wanted if found.get(k) != wanted[k]})
            raise DataError(f"{path}: built with other settings ({', '.join(keys)}); use another folder")
        self._manifest_checked = True

    def _write_manifest(self) -> None:
        self._check_manifest()
        if not self._manifest_checked:
            self.folder.mkdir(parents=True, exist_ok=True)
            _replace_json(self.folder / "manifest.json", self.built_with)
            self._manifest_checked = True


def _parse_line(line: bytes, where: str) -> Extraction:
    try:
        return Extraction(**json.loads(line))
    except (ValueError, TypeError) as error:  # not JSON or not UTF-8; or other keys than ours
        raise DataError(f"{where}: not an extraction ({error}); remove the line and build again") from None


def _cut_unfinished_line(descriptor: int) -> None:
    """Drop what a killed process left after the last line end, so that the next line starts on its own."""
    size = end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - 65536)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)


def _replace_json(path: Path, value: Mapping[str, Json]) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}; make room or choose another folder") from error

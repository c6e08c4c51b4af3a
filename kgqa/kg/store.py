"""Extracted triples on disk: what a model wrote about each passage, parsed when asked for.

A folder holds `extractions.jsonl` (one line per passage), `manifest.json` (what it was built with) and
`statistics.json`. Several processes may add at once, and any of them may be killed at any moment. In memory are only
the places of the lines, about 200 bytes a passage, since a corpus can have millions.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from weakref import finalize
from zlib import crc32

from kgqa.artefacts.form import checked
from kgqa.errors import DataError, StorageError
from kgqa.json_values import NotJson, decoded, read_value
from kgqa.kg.parsing import Extraction, ParsedTriples, parse_triples
from kgqa.storage import begun, digest, filled, json_text, locked, replace_file, replacing, storing
from kgqa.types import Json, Passage, Triple

PARSED = 8192  # passages whose triples stay in memory, the last ones: those of the questions in work, and more
CHECKSUM = "checksum"
REMOVE = "remove the line and build again"
ELSEWHERE = "make room or choose another folder"  # where the disk refuses
DOUBTS = ("replaced_heads", "other_heads", "absent_tails")  # of triples, see `ParsedTriples`
SUMS = ("passages", "failed", "empty", "triples", "malformed", *DOUBTS, "prompt_tokens", "output_tokens")


def store_folder(root: Path, dataset: str, built_with: Mapping[str, Json]) -> Path:
    """Where the triples built with these settings belong: `root/dataset/<12 hex digits>`."""
    return root / dataset / digest(dict(built_with), 12, ensure_ascii=False)


class TripleStore:
    """Nothing is read or written before the first use."""

    def __init__(self, folder: Path, built_with: Mapping[str, Json]) -> None:
        self.folder = folder
        self.built_with = dict(built_with)
        self._places: dict[str, int] = {}  # where each passage's first line begins
        self._parsed: dict[str, ParsedTriples] = {}
        self._held = _Held()  # the file they are of, which `arrange` replaces
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
            if len(self._parsed) >= PARSED:
                del self._parsed[next(iter(self._parsed))]
            self._parsed[passage.id] = parse_triples(self.extraction(passage).completion, passage)
        return self._parsed[passage.id]

    def extraction(self, passage: Passage) -> Extraction:
        """The first one on disk; see `triples` for errors."""
        if passage.id not in self._places:
            self._read_new_lines()
        while passage.id in self._places:
            with storing(self.file, ELSEWHERE), self.file.open("rb") as file:
                if self._held.is_file(file.fileno()):
                    file.seek(self._places[passage.id])
                    return _parse_line(file.readline(), f"{self.file}: {passage.id}")
            self._read_new_lines()
        command = f"kgqa kg build dataset={self.folder.parent.name}"
        raise DataError(f"no triples for passage {passage.id} in {self.folder}; run: {command}")

    def missing(self, passages: Iterable[Passage]) -> list[Passage]:
        """Passages without an entry, each once, in the given order; a failed one has an entry."""
        return list({passage.id: passage for passage in self.stream_missing(passages)}.values())

    def stream_missing(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """As `missing`, for passages that are distinct and too many for a list."""
        self._read_new_lines()
        return (passage for passage in passages if passage.id not in self._places)

    def add(self, extraction: Extraction) -> None:
        """As `add_all`, of one."""
        self.add_all([extraction])

    def add_all(self, extractions: Iterable[Extraction]) -> None:
        """Keep extractions, each at once and for good; other processes that add wait meanwhile.

        A passage that has one already keeps it, whoever added that.

        Raises:
            StorageError: the disk is full or refuses.
        """
        with storing(self.file, ELSEWHERE):
            self._write_manifest()
            with self._locked(), begun(self.file).open("ab", buffering=0) as file:
                _cut_unfinished_line(self.file)
                for extraction in extractions:
                    self._read_new_lines()
                    if extraction.passage_id not in self._places:
                        _write(file.fileno(), extraction_line(extraction), self.file)

    def arrange(self) -> None:
        """Put the file in its final order, by passage id, each passage once: equal contents are then equal bytes.

        The order does not depend on what else was extracted, or when. Costs one copy of the file.
        """
        if not self.file.exists():
            return
        with storing(self.file, ELSEWHERE), self._locked():
            _cut_unfinished_line(self.file)
            self._read_new_lines()
            places = [place for _, place in sorted(self._places.items())]
            if places == sorted(places) and self._lines_read == len(places):
                return
            with self.file.open("rb") as source, replacing(self.file, ELSEWHERE) as fresh, fresh.open("wb") as target:
                for place in places:
                    source.seek(place)
                    target.write(source.readline())

    def counts(self, passages: Iterable[Passage]) -> dict[str, int]:
        """Sums over the passages, which must be distinct: `SUMS` and flags."""
        sums, flags = Counter[str](), Counter[str]()
        for passage in passages:
            extraction = self.extraction(passage)
            parsed = parse_triples(extraction.completion, passage)  # not `parsed`: millions are not to be kept
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
        """Replace `statistics.json`; returns its path."""
        self._write_manifest()
        return replace_file(self.folder / "statistics.json", json_text(dict(statistics)), ELSEWHERE)

    def _locked(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile; the lock is not the file itself, which `arrange` replaces."""
        return locked(self.folder / ".lock", remedy=ELSEWHERE)

    def _read_new_lines(self) -> None:
        """Read what was added since the last time; an unfinished last line is left for later."""
        self._check_manifest()
        if not self.file.exists():
            return
        with storing(self.file, ELSEWHERE), self.file.open("rb") as file:
            if not self._held.is_file(file.fileno()):
                self._held = _Held(file.fileno())
                self._bytes_read, self._lines_read = 0, 0
                self._places.clear()
            file.seek(self._bytes_read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                extraction = _parse_line(line, f"{self.file}:{self._lines_read + 1}")
                self._places.setdefault(extraction.passage_id, self._bytes_read)
                self._bytes_read += len(line)
                self._lines_read += 1

    def _check_manifest(self) -> None:
        path = self.folder / "manifest.json"
        if self._manifest_checked or not filled(path):
            return
        again = f"delete {self.folder} and build it again"
        with storing(path, ELSEWHERE):
            recorded = read_value(path.read_bytes(), str(path), again)
        if not isinstance(recorded, dict):
            raise DataError(f"{path}: not an object; {again}")
        wanted = json.loads(json.dumps(self.built_with))
        if recorded != wanted:
            keys = sorted(recorded.keys() ^ wanted.keys() | {k for k in wanted if recorded.get(k) != wanted[k]})
            raise DataError(f"{path}: built with other settings ({', '.join(keys)}); use another folder")
        self._manifest_checked = True

    def _write_manifest(self) -> None:
        self._check_manifest()
        if not self._manifest_checked:
            replace_file(self.folder / "manifest.json", json_text(self.built_with), ELSEWHERE)
            self._manifest_checked = True


class _Held:
    """A file that is kept open, so that the disk gives its number to no other one."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._kept = None if descriptor is None else os.dup(descriptor)
        if self._kept is not None:
            finalize(self, os.close, self._kept)

    def is_file(self, descriptor: int) -> bool:
        return self._kept is not None and os.path.sameopenfile(self._kept, descriptor)


def extraction_line(extraction: Extraction) -> bytes:
    """Its last key is the CRC-32 of the line without it."""
    values = asdict(extraction)
    return _json_line({**values, CHECKSUM: crc32(_json_line(values))})


def _json_line(values: Mapping[str, Json]) -> bytes:
    # backslashreplace writes a lone surrogate as \udcXX, which is JSON's own escape for it
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def read_extractions(file: Path) -> Iterator[Extraction]:
    """Those of a file that has a finished line for each.

    Raises:
        DataError: a line is none of ours.
    """
    with storing(file, ELSEWHERE), file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            yield _parse_line(line, f"{file}:{number}")


def _parse_line(line: bytes, where: str) -> Extraction:
    """Those of kgqa 0.2 have no checksum."""
    try:
        values = decoded(line)
    except NotJson as error:
        raise DataError(f"{where}: not an extraction ({error}); {REMOVE}") from None
    kept = values.pop(CHECKSUM, None) if isinstance(values, dict) else None
    extraction = checked(Extraction, values, f"{where}: not an extraction", REMOVE)
    if kept is not None and kept != crc32(_json_line(asdict(extraction))):
        raise DataError(f"{where}: damaged, it is not what was written; {REMOVE}")
    return extraction


def _write(descriptor: int, line: bytes, file: Path) -> None:
    """In one call of the system, so that a kill leaves no half of it; a disk that fills up may take a part."""
    if os.write(descriptor, line) < len(line):
        raise StorageError(f"{file}: the disk is full; make room and run the same command again")


def _cut_unfinished_line(path: Path) -> None:
    """Drop what a killed process left after the last line end, so that the next line starts on its own."""
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)

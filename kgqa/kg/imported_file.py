"""The file of triples that others made: a passage a line, `{"title": …, "text": …, "triples": [[…, …, …], …]}`.

In memory are only the places of its lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.artefacts.form import checked
from kgqa.errors import ConfigError, DataError
from kgqa.json_values import read_value
from kgqa.kg.imported import TripledPassage, cleaned, passage_keys
from kgqa.storage import remembered_sha256, storing
from kgqa.types import Json, Passage, Triple

REMEDY = "import it: kgqa kg import FILE --format hipporag|openie|jsonl|tsv"


@dataclass(frozen=True, slots=True)
class _Line:
    title: str
    text: str
    triples: tuple[Json, ...]


@dataclass(frozen=True)
class ImportedFile:
    """`path`: as `kg.path` has it. Read through when it is first asked; it must not change meanwhile."""

    path: str | None

    @property
    def file(self) -> Path:
        """Raises ConfigError: none is named, or there is none."""
        if not self.path:
            raise ConfigError(f"kg.path=null: name the file of triples; {REMEDY}")
        if not Path(self.path).is_file():
            raise ConfigError(f"kg.path={self.path}: no such file; {REMEDY}")
        return Path(self.path)

    @property
    def sha256(self) -> str:
        """It stands for the triples in a run's identity."""
        file = self.file
        with storing(file, "name another file"):
            return remembered_sha256(file)

    def triples(self, passage: Passage) -> tuple[Triple, ...]:
        """Empty where the file has the passage with none, or has no such passage: see `lacking`.

        Raises:
            DataError: a line is none of ours.
        """
        at = self._place(passage)
        if at is None:
            return ()
        with storing(self.file, "name another file"), self.file.open("rb") as lines:
            lines.seek(at)
            read = read_line(lines.readline(), f"{self.file}, at byte {at}")
        return tuple(Triple(head, relation, tail, passage.id) for head, relation, tail in read.triples)

    def lacking(self, passages: Iterable[Passage]) -> list[Passage]:
        """Those that the file does not have."""
        return [passage for passage in passages if self._place(passage) is None]

    def counts(self, passages: Iterable[Passage]) -> dict[str, int]:
        """Sums over the passages, which must be distinct. `unmatched`: not in the file; `empty`: without triples."""
        sums = Counter[str]()
        for passage in passages:
            triples = self.triples(passage)
            sums["passages"] += 1
            sums["unmatched"] += self._place(passage) is None
            sums["empty"] += not triples
            sums["triples"] += len(triples)
        return {name: sums[name] for name in ("passages", "unmatched", "empty", "triples")}

    def _place(self, passage: Passage) -> int | None:
        whole, text = passage_keys(passage)
        return self._titled.get(whole, self._untitled.get(whole, self._untitled.get(text)))

    @property
    def _titled(self) -> dict[bytes, int]:
        return self._places[0]

    @property
    def _untitled(self) -> dict[bytes, int]:
        return self._places[1]

    @cached_property
    def _places(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        """Where each passage's line begins, of those with a title and of those without."""
        titled, untitled, at = dict[bytes, int](), dict[bytes, int](), 0
        with storing(self.file, "name another file"), self.file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                place = f"{self.file}:{number}"
                read = read_line(line, place)
                places = titled if read.title else untitled
                if not read.key:
                    raise DataError(f"{place}: neither title nor text has a letter; remove the line")
                if read.key in places:
                    raise DataError(
                        f"{place}: the passage {read.title or read.text[:40]!r} stands above already; "
                        f"kgqa kg import {self.file} --format jsonl joins them"
                    )
                places[read.key] = at
                at += len(line)
        return titled, untitled


def read_line(line: bytes, place: str) -> TripledPassage:
    """Raises DataError: not a line as `kgqa kg import` writes them."""
    told = checked(_Line, read_value(line, place, REMEDY), place, REMEDY)
    triples, malformed = cleaned(told.triples)
    if malformed:
        raise DataError(
            f"{place}: triples: {malformed} are not three texts; kgqa kg import --format jsonl leaves them out"
        )
    return TripledPassage(told.title, told.text, triples)

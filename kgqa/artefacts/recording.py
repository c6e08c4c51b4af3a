"""`demos/recorded.json`: what the calls that ship with kgqa were made with, and what they answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.form import as_json, read
from kgqa.artefacts.manifest import Identity
from kgqa.storage import package
from kgqa.types import Json

RECORDING = package() / "demos" / "recorded.json"
CALLS = package() / "demos" / "recorded.jsonl.zst"  # as `kgqa cache export` writes it
RENEW = "in a checkout, python scripts/record_demo.py makes it anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """`model`, `ranker`: what they said of themselves, so that neither is needed to know which calls were theirs."""

    made: str  # the day, as 2026-11-23
    kgqa: str
    commit: str
    platform: str
    cores: int
    remark: str  # what else is to be known of the machine
    model: Identity
    ranker: Identity
    answers: Mapping[str, Mapping[str, str]]  # by method and question

    @classmethod
    def read(cls, file: Path = RECORDING) -> Recording:
        """Raises DataError: it is missing or damaged."""
        return read(Recording, file, missing=f"no such file; {RENEW}", remedy=RENEW)

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written

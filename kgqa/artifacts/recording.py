"""`demos/recorded.json`: what the calls that ship with kgqa were made with, and what they answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kgqa.artifacts.manifest import Identity
from kgqa.artifacts.schema import Artifact, read
from kgqa.util.fs import package_folder

RECORDING = package_folder() / "demos" / "recorded.json"
CALLS = package_folder() / "demos" / "recorded.jsonl.zst"  # as `kgqa cache export` writes it
RENEW = "in a checkout, python scripts/record_demo.py makes it anew"


class Recording(Artifact):
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
        """Read the recording. Raises DataError if it is missing or damaged."""
        return read(Recording, file, missing=f"no such file; {RENEW}", remedy=RENEW)

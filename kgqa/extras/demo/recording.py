"""The recorded demo: the calls that ship with kgqa, and the machine that made them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kgqa.artifacts.manifest import Identity
from kgqa.artifacts.schema import Artifact, Count, read
from kgqa.util.places import package_folder

RECORDING = package_folder() / "demos" / "recorded.json"
# as `kgqa cache export` writes it
CALLS = package_folder() / "demos" / "recorded.jsonl.zst"
RENEW = "Create it in a checkout: python scripts/record_demo.py"


class Recording(Artifact):
    """The recorded demo. `model`, `ranker`: their identities, which are in the keys of the calls."""

    made: str  # the day, such as 2026-11-23
    kgqa: str
    commit: str
    platform: str
    cores: Count
    remark: str  # about the machine
    model: Identity
    ranker: Identity
    answers: Mapping[str, Mapping[str, str]]  # by method and question

    @classmethod
    def read(cls, file: Path = RECORDING) -> Recording:
        """Read the recording. Raises DataError if it is missing or damaged."""
        return read(Recording, file, missing=f"no such file. {RENEW}", remedy=RENEW)

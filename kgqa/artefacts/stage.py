"""`manifest.json` of a stage: what a folder of verdicts or examples was made from, what lies in it, what it came to.

Written last, so that a folder with one is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kgqa.artefacts.form import as_json, checked, read
from kgqa.artefacts.manifest import MANIFEST, Code, Identity
from kgqa.errors import DataError
from kgqa.storage import sha256
from kgqa.types import Json

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which command made it, with what."""

    command: tuple[str, ...]
    kgqa: Code
    python: str
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageManifest:
    """`identity`: all that can change what is in it; `outcome`: the stage's own figures, of a type that it knows."""

    stage: str  # as in "verify"
    origin: Origin
    identity: Identity
    files: Mapping[str, str]  # sha256 of each, by its name in the folder
    outcome: Identity

    @classmethod
    def read(cls, folder: Path, stage: str) -> StageManifest:
        """Raises DataError: no folder of that stage, one that has not ended, or a damaged file; the key is named."""
        missing = f"no such file, so no kgqa {stage} has ended here; give the folder that it printed"
        manifest = read(cls, folder / MANIFEST, missing=missing)
        if manifest.stage != stage:
            raise DataError(f"{folder}: made by kgqa {manifest.stage}, not by kgqa {stage}")
        return manifest

    def came_to(self, kind: type[T], folder: Path) -> T:
        """The outcome. Raises DataError: it is not of this kind; the key is named."""
        return checked(kind, self.outcome, f"{folder / MANIFEST}: outcome")

    def file(self, folder: Path, name: str) -> Path:
        """One of the stage's files, as it was written. Raises DataError: it is gone, or was changed since."""
        file = folder / name
        if not file.is_file() or sha256(file) != self.files.get(name):
            state = "changed since it was written" if file.is_file() else "no such file"
            raise DataError(f"{file}: {state}; run the command again that made it: {' '.join(self.origin.command)}")
        return file

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written

"""`manifest.json` of a stage: the source, files and outcome of a folder of verdicts or examples.

It is written last, so that a folder with a manifest is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from kgqa.artifacts.manifest import MANIFEST, Code, Identity
from kgqa.artifacts.schema import Artifact, check_json, read
from kgqa.errors import DataError
from kgqa.util.fs import sha256

T = TypeVar("T")


class Origin(Artifact):
    """The command and the versions that produced a folder."""

    command: tuple[str, ...]
    kgqa: Code
    python: str
    packages: Mapping[str, str]


class StageManifest(Artifact):
    """The manifest. `identity`: all that can change the files. `outcome`: figures in the stage's own type."""

    stage: str  # as in "verify"
    origin: Origin
    identity: Identity
    files: Mapping[str, str]  # sha256 of each, by its name in the folder
    outcome: Identity

    @classmethod
    def read(cls, folder: Path, stage: str) -> StageManifest:
        """Read the manifest. Raises DataError: another stage, not finished, or damaged; the message names the key."""
        missing = f"no such file, so no kgqa {_command(stage)} has finished here; give the folder that it printed"
        manifest = read(cls, folder / MANIFEST, missing=missing)
        if manifest.stage != stage:
            raise DataError(f"{folder}: made by kgqa {_command(manifest.stage)}, not by kgqa {_command(stage)}")
        return manifest

    def read_outcome(self, kind: type[T], folder: Path) -> T:
        """Return the outcome. Raises DataError if it is not of this kind."""
        return check_json(kind, self.outcome, f"{folder / MANIFEST}: outcome")

    def file(self, folder: Path, name: str) -> Path:
        """Return the path of one of the files. Raises DataError if it is missing or was changed."""
        file = folder / name
        if not file.is_file() or sha256(file) != self.files.get(name):
            state = "changed since it was written" if file.is_file() else "no such file"
            raise DataError(f"{file}: {state}; run the command again that made it: {' '.join(self.origin.command)}")
        return file


def _command(stage: str) -> str:
    """Return the command of a stage, which has the stage's name unless it is grouped."""
    return "data verify" if stage == "verify" else stage

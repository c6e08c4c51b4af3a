"""The folder of a stage that is not a run: `kgqa data verify`, `kgqa collect`, `kgqa bootstrap`.

    stage = ArtifactDir.for_identity("verify", outputs() / "verified" / "musique", identity)
    if (counts := stage.outcome(Counts)) is None:       # not finished, or a file is missing or changed
        with stage.lock():                               # against other processes, and for this identity
            stage.write("verdicts.jsonl", lines)         # each file as a whole
            stage.finish(counts, origin)                 # the manifest, with the hash of each file

A stage that was killed has no manifest. The same command repeats it, and the call cache gives every reply it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.stage import Origin, StageManifest
from kgqa.errors import ConfigError, DataError
from kgqa.runtime.folder import claim_folder, run_name
from kgqa.types import Json
from kgqa.util.fs import (
    OUT_ELSEWHERE,
    explain_storage_errors,
    json_text,
    lock_file,
    replace_file,
    replace_file_parts,
    sha256,
)

T = TypeVar("T")


@dataclass(frozen=True)
class ArtifactDir:
    """One folder. `lock` creates it.

    stage: the command without `kgqa`, such as "collect safe". identity: all that can change the folder's files.
    """

    stage: str
    path: Path
    identity: Mapping[str, Json]
    _hashes: dict[str, str] = field(default_factory=dict)  # sha256 by name

    @classmethod
    def for_identity(cls, stage: str, parent: Path, identity: Mapping[str, Json]) -> ArtifactDir:
        """Return the folder in `parent` with the identity's hash as its name."""
        return cls(stage, parent / run_name(identity), identity)

    def outcome(self, kind: type[T]) -> T | None:
        """Return the outcome if the stage finished with this identity and its files are unchanged."""
        try:
            manifest = StageManifest.read(self.path, self.stage)
            if manifest.identity != as_json(self.identity):
                return None
            for name in manifest.files:
                manifest.file(self.path, name)
            return manifest.read_outcome(kind, self.path)
        except DataError:
            return None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder and remove an earlier manifest.

        Raises:
            ConfigError: the folder belongs to another identity, or another process is writing it.
            StorageError: it cannot be created or written.
        """
        with lock_file(self.path / ".lock", self._refuse, OUT_ELSEWHERE):
            claim_folder(self.path, as_json(self.identity))
            with explain_storage_errors(self.path, OUT_ELSEWHERE):
                (self.path / MANIFEST).unlink(missing_ok=True)
            self._hashes.clear()
            yield

    def write(self, name: str, parts: Iterable[str]) -> Path:
        """Write a file, as a whole or not at all. `parts` are written as they come."""
        file = replace_file_parts(self.path / name, parts)
        self._hashes[name] = sha256(file)
        return file

    def finish(self, outcome: object, origin: Origin) -> Path:
        """Write the manifest, with which the stage is finished."""
        manifest = StageManifest(
            stage=self.stage, origin=origin, identity=self.identity, files=self._hashes, outcome=as_json(outcome)
        )
        return replace_file(self.path / MANIFEST, json_text(manifest.json()))

    def _refuse(self) -> None:
        raise ConfigError(f"{self.path}: another kgqa process is writing this; wait for it or give out=")

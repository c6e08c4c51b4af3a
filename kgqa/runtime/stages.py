"""The folder of a stage that is no run: `kgqa verify`, `kgqa collect` and what follows them.

    stage = StageFolder.named("verify", outputs() / "verified" / "musique", identity)
    if (counts := stage.outcome(Counts)) is None:       # nothing ended here, or a file of it is gone or changed
        with stage.claimed():                            # against other processes, and for this identity
            stage.write("verdicts.jsonl", lines)         # as a whole, each file
            stage.finish(counts, origin)                 # the manifest: last, with the hash of each file written

A stage that was killed has no manifest. The same command does it again, and the call cache gives every reply that it
had; so nothing else is kept of half a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kgqa.artefacts.form import as_json
from kgqa.artefacts.manifest import MANIFEST
from kgqa.artefacts.stage import Origin, StageManifest
from kgqa.errors import ConfigError, DataError
from kgqa.runtime.folder import claim_for, run_name
from kgqa.storage import OUT_ELSEWHERE, json_text, locked, replace_file, replace_with_parts, sha256, storing
from kgqa.types import Json

T = TypeVar("T")


@dataclass(frozen=True)
class StageFolder:
    """Nothing is on disk before `claimed`."""

    stage: str  # the command without `kgqa`, as in "collect safe"
    path: Path
    identity: Mapping[str, Json]  # all that can change what comes into the folder
    _written: dict[str, str] = field(default_factory=dict)  # sha256 by name

    @classmethod
    def named(cls, stage: str, parent: Path, identity: Mapping[str, Json]) -> StageFolder:
        """The folder in `parent` that bears the identity's hash."""
        return cls(stage, parent / run_name(identity), identity)

    def outcome(self, kind: type[T]) -> T | None:
        """What the stage came to, where it has ended with this identity and all its files are as they were written."""
        try:
            manifest = StageManifest.read(self.path, self.stage)
            if manifest.identity != as_json(self.identity):
                return None
            for name in manifest.files:
                manifest.file(self.path, name)
            return manifest.came_to(kind, self.path)
        except DataError:
            return None

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Nobody else writes here meanwhile; what ended here before has not ended any more.

        Raises:
            ConfigError: the folder belongs to another identity, or another process is writing it.
            StorageError: it cannot be created or written.
        """
        with locked(self.path / ".lock", self._refuse, OUT_ELSEWHERE):
            claim_for(self.path, as_json(self.identity))
            with storing(self.path, OUT_ELSEWHERE):
                (self.path / MANIFEST).unlink(missing_ok=True)
            self._written.clear()
            yield

    def write(self, name: str, parts: Iterable[str]) -> Path:
        """A file of the folder, as a whole or not at all; `parts` are written as they come."""
        file = replace_with_parts(self.path / name, parts)
        self._written[name] = sha256(file)
        return file

    def finish(self, outcome: object, origin: Origin) -> Path:
        """The manifest, after which the stage is done; `outcome` is a frozen dataclass of figures."""
        manifest = StageManifest(
            stage=self.stage, origin=origin, identity=self.identity, files=self._written, outcome=as_json(outcome)
        )
        return replace_file(self.path / MANIFEST, json_text(manifest.json()))

    def _refuse(self) -> None:
        raise ConfigError(f"{self.path}: another kgqa process is writing this; wait for it or give out=")

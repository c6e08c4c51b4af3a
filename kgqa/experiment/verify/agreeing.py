"""How far a verification agrees with the others of the same data: other models, other settings, the authors' list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kgqa.artefacts.metrics import Agreement
from kgqa.artefacts.stage import StageManifest
from kgqa.artefacts.verification import STAGE, VERDICTS, VerificationOutcome, read_verdicts
from kgqa.errors import DataError
from kgqa.scoring.agreement import agreement

Labels = Mapping[str, str | None]  # by question; None: nothing was decided


def labels_of(file: Path) -> Labels:
    return {line.id: line.label for line in read_verdicts(file)}


def agreements(folder: Path, sha256: str, parent: Path) -> dict[str, Agreement]:
    """Over the questions that both have, by whom a folder is compared with: each other verification in `parent`.

    sha256: of the data set. What is damaged or has not ended is left out.
    """
    mine = labels_of(folder / VERDICTS)
    found = {}
    for name, theirs in _others(folder, sha256, parent):
        shared = [id_ for id_ in mine if id_ in theirs]
        if shared:
            found[name] = agreement([mine[id_] for id_ in shared], [theirs[id_] for id_ in shared])
    return found


def _others(folder: Path, sha256: str, parent: Path) -> Iterator[tuple[str, Labels]]:
    for other in sorted(parent.iterdir()) if parent.is_dir() else ():
        if other.resolve() == folder.resolve():
            continue
        try:
            manifest = StageManifest.read(other, STAGE)
            outcome = manifest.came_to(VerificationOutcome, other)
            if manifest.identity["dataset"]["sha256"] == sha256:
                yield f"{outcome.name} ({other.name})", labels_of(manifest.file(other, VERDICTS))
        except DataError:
            continue

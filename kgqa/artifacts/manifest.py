"""`manifest.json`: where a run's figures come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from kgqa.artifacts.schema import AGAIN, Artifact, Count, omit_none, read
from kgqa.errors import DataError
from kgqa.types import Json
from kgqa.util.fs import sha256 as hash_file

MANIFEST = "manifest.json"
# the settings of a part that can change its replies
Identity = Mapping[str, Json]


class Code(Artifact):
    version: str
    commit: str | None = omit_none()  # of a checkout
    dirty: bool | None = omit_none()  # whether the checkout had changes


class AskedDataset(Artifact):
    name: str
    file: str
    sha256: str
    questions: Count
    documents: str | None = omit_none()  # how collections were made
    sampled: tuple[str, ...] | None = omit_none()  # the ids of `sample=`


class Own(Artifact):
    """The user's parts: choices with their YAML files, and the sha256 of modules and templates."""

    choices: Mapping[str, str]
    files: Mapping[str, str]


class Manifest(Artifact):
    command: tuple[str, ...]
    kgqa: Code
    # hash of the code that decides answers and scores
    code: str | None = omit_none()
    python: str
    platform: str
    cores: Count | None  # that this process can use
    packages: Mapping[str, str]
    dataset: AskedDataset
    demonstrations: str | None = omit_none()  # the few-shot examples
    prompts: Mapping[str, str]  # their hashes
    own: Own | None = omit_none()
    models: Mapping[str, Identity]  # by role
    ranker: Identity | None = None
    demonstrations_ranker: Identity | None = omit_none()
    reranker: Identity | None = None
    index: Identity | None = None
    width: Count | None
    # sha256 of a finished run's metrics, settings, predictions and trace
    files: Mapping[str, str] | None = omit_none()

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a run. Raises DataError if it is missing or damaged."""
        return read(Manifest, folder / MANIFEST)


class _Hashes(Artifact):
    files: Mapping[str, str] | None = None


def check_hash(folder: Path, name: str) -> None:
    """Check that a file is the one that the finished run wrote. Runs of older versions have no hashes.

    Raises DataError: the file was changed, is from another run, or cannot be read, or the folder has no manifest.
    """
    wanted = (read(_Hashes, folder / MANIFEST).files or {}).get(name)
    try:
        is_changed = wanted is not None and hash_file(folder / name) != wanted
    except OSError as error:
        raise DataError(f"{folder / name}: not readable ({error.strerror}). {AGAIN}") from error
    if is_changed:
        raise DataError(
            f"{folder / name}: not the file that its run wrote, see {MANIFEST}. Run its command again. "
            "To score other answers: kgqa evaluate --predictions FILE"
        )


T = TypeVar("T")


class Provenance(Artifact):
    """The command and the versions that produced a folder."""

    command: tuple[str, ...]
    kgqa: Code
    python: str
    packages: Mapping[str, str]

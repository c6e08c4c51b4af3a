"""`manifest.json`: where a run's figures come from. Nothing in it is secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kgqa.artifacts.schema import Artifact, omit_none, read
from kgqa.types import Json

MANIFEST = "manifest.json"
Identity = Mapping[str, Json]  # what a part says that can change its replies


class Code(Artifact):
    """`commit`, `dirty`: of a checkout; an installed package has none."""

    version: str
    commit: str | None = omit_none()
    dirty: bool | None = omit_none()  # whether it had changes


class AskedDataset(Artifact):
    name: str
    file: str
    sha256: str
    questions: int
    documents: str | None = omit_none()  # of collections: how they were made
    sampled: tuple[str, ...] | None = omit_none()  # the ids of `sample=` that are asked


class Own(Artifact):
    """Parts outside kgqa: choices with their YAML files, and the sha256 of modules and of all templates."""

    choices: Mapping[str, str]
    files: Mapping[str, str]


class Manifest(Artifact):
    command: tuple[str, ...]
    kgqa: Code
    code: str | None = omit_none()  # hash of what decides answers and scores
    python: str
    platform: str
    cores: int | None  # that this process may use
    packages: Mapping[str, str]
    dataset: AskedDataset
    demonstrations: str | None = omit_none()  # which questions of a pool the method shows
    prompts: Mapping[str, str]  # their hashes
    own: Own | None = omit_none()
    models: Mapping[str, Identity]  # by role
    ranker: Identity | None = None
    demonstrations_ranker: Identity | None = omit_none()
    reranker: Identity | None = None
    index: Identity | None = None
    width: int | None

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a run. Raises DataError if it is missing or damaged; the message names the key."""
        return read(Manifest, folder / MANIFEST)

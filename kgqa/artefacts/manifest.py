"""`manifest.json`: where a run's figures come from. Nothing in it is secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import LEFT_OUT, as_json, read
from kgqa.types import Json

MANIFEST = "manifest.json"
Identity = Mapping[str, Json]  # what a part says that can change its replies


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """`commit`, `dirty`: of a checkout; an installed package has none."""

    version: str
    commit: str | None = field(default=None, metadata=LEFT_OUT)
    dirty: bool | None = field(default=None, metadata=LEFT_OUT)  # whether it had changes


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDataset:
    name: str
    file: str
    sha256: str
    questions: int
    documents: str | None = field(default=None, metadata=LEFT_OUT)  # of collections: how they were made
    sampled: tuple[str, ...] | None = field(default=None, metadata=LEFT_OUT)  # the ids of `sample=` that are asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What is not of kgqa: choices and the YAML each was read from; the sha256 of modules and of all templates."""

    choices: Mapping[str, str]
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    command: tuple[str, ...]
    kgqa: Code
    code: str | None = field(default=None, metadata=LEFT_OUT)  # hash of what decides answers and scores
    python: str
    platform: str
    cores: int | None  # that this process may use
    packages: Mapping[str, str]
    dataset: AskedDataset
    demonstrations: str | None = field(default=None, metadata=LEFT_OUT)  # which questions of a pool the method shows
    prompts: Mapping[str, str]  # their hashes
    own: Own | None = field(default=None, metadata=LEFT_OUT)
    models: Mapping[str, Identity]  # by role
    ranker: Identity | None = None
    demonstrations_ranker: Identity | None = field(default=None, metadata=LEFT_OUT)
    reranker: Identity | None = None
    index: Identity | None = None
    width: int | None

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Raises DataError: the run has not begun, or its file is damaged; the key is named."""
        return read(Manifest, folder / MANIFEST)

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written

"""Which questions something was trained on, as hashes: an artefact's manifest says so without holding the questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import LEFT_OUT, checked, read_json
from kgqa.artefacts.manifest import MANIFEST
from kgqa.storage import text_digest
from kgqa.types import Json

DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionHashes:
    """Sorted. ids: of the data set's name with the question's id; texts: of its words, case and blanks apart.

    by_id: the words' hash of each id; None: not known.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    by_id: Mapping[str, str] | None = field(default=None, metadata=LEFT_OUT)

    @classmethod
    def of(cls, questions: Iterable[tuple[str, str, str]]) -> QuestionHashes:
        """Of data set, id and words of each."""
        hashed = {id_hash(dataset, question_id): text_hash(text) for dataset, question_id, text in questions}
        by_id = dict(sorted(hashed.items()))
        return cls(ids=tuple(by_id), texts=tuple(sorted({*by_id.values()})), by_id=by_id)

    def texts_of(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Of these questions alone; of all where it is not known which are whose."""
        if self.by_id is None:
            return self.texts
        return tuple(sorted({self.by_id[id_] for id_ in ids if id_ in self.by_id}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examples:
    question_hashes: tuple[str, ...]
    text_hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Templates:
    templates: Mapping[str, str] = field(default_factory=dict)


def trained_on(folder: Path) -> QuestionHashes | None:
    """What an artefact's manifest says, in its folder or beside the adapter or encoder; None: it is none of ours.

    Raises:
        DataError: the manifest is damaged.
    """
    file, told = _told(folder)
    if told is None:
        return None
    known = checked(_Examples, told, f"{file}: examples", "train it again")
    return QuestionHashes(ids=known.question_hashes, texts=known.text_hashes)


def trained_with(folder: Path) -> Mapping[str, str]:
    """The hash of each template that its examples were asked with, likewise; empty where it says of none."""
    file, told = _told(folder)
    return checked(_Templates, told or {}, f"{file}: examples", "train it again").templates


def _told(folder: Path) -> tuple[Path, Mapping[str, Json] | None]:
    """The manifest, and what it says of its examples."""
    for place in (folder, folder.parent):
        file = place / MANIFEST
        told = read_json(file, remedy="train it again") if file.is_file() else None
        if isinstance(told, dict) and isinstance(told.get("examples"), dict):
            return file, told["examples"]
    return folder / MANIFEST, None


def id_hash(dataset: str, question_id: str) -> str:
    return text_digest(f"{dataset}\n{question_id}", DIGITS)


def text_hash(text: str) -> str:
    """Benchmarks take questions over from each other under other ids: the words are what is the same."""
    return text_digest(" ".join(text.casefold().split()), DIGITS)

"""Which questions something was trained on, as hashes: an artefact's manifest says so without holding the questions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.form import checked, read_json
from kgqa.artefacts.manifest import MANIFEST
from kgqa.storage import text_digest

DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionHashes:
    """Sorted. ids: of the data set's name with the question's id; texts: of its words, case and blanks apart."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, questions: Iterable[tuple[str, str, str]]) -> QuestionHashes:
        """Of data set, id and words of each."""
        listed = list(questions)
        ids = {id_hash(dataset, question_id) for dataset, question_id, _ in listed}
        return cls(ids=tuple(sorted(ids)), texts=tuple(sorted({text_hash(text) for _, _, text in listed})))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examples:
    question_hashes: tuple[str, ...]
    text_hashes: tuple[str, ...]


def trained_on(folder: Path) -> QuestionHashes | None:
    """What an artefact's manifest says, in its folder or beside the adapter or encoder; None: it is none of ours.

    Raises:
        DataError: the manifest is damaged.
    """
    for place in (folder, folder.parent):
        file = place / MANIFEST
        told = read_json(file, remedy="train it again") if file.is_file() else None
        if isinstance(told, dict) and isinstance(told.get("examples"), dict):
            known = checked(_Examples, told["examples"], f"{file}: examples", "train it again")
            return QuestionHashes(ids=known.question_hashes, texts=known.text_hashes)
    return None


def id_hash(dataset: str, question_id: str) -> str:
    return text_digest(f"{dataset}\n{question_id}", DIGITS)


def text_hash(text: str) -> str:
    """Benchmarks take questions over from each other under other ids: the words are what is the same."""
    return text_digest(" ".join(text.casefold().split()), DIGITS)

"""The questions that something was trained on, as hashes in its manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.schema import Artifact, check_json, omit_none, read_json
from kgqa.types import Json
from kgqa.util.fs import text_digest

DIGITS = 16
_REMEDY = "train it again"


class QuestionHashes(Artifact):
    """Sorted hashes. ids: of dataset and question id. texts: of the questions' words without case and spaces.

    by_id: the hash of the words for each id; None: unknown.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    by_id: Mapping[str, str] | None = omit_none()

    @classmethod
    def of(cls, questions: Iterable[tuple[str, str, str]]) -> QuestionHashes:
        """Hash questions, each given as dataset, id and text."""
        hashes = {id_hash(dataset, question_id): text_hash(text) for dataset, question_id, text in questions}
        by_id = dict(sorted(hashes.items()))
        return cls(ids=tuple(by_id), texts=tuple(sorted({*by_id.values()})), by_id=by_id)

    def texts_of(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the hashes of these questions' texts, or of all texts if the pairs are unknown."""
        if self.by_id is None:
            return self.texts
        return tuple(sorted({self.by_id[id_] for id_ in ids if id_ in self.by_id}))


class _Examples(Artifact):
    question_hashes: tuple[str, ...]
    text_hashes: tuple[str, ...]


class _Templates(Artifact):
    templates: Mapping[str, str] = {}


def training_questions(folder: Path) -> QuestionHashes | None:
    """Read the hashes from the manifest in a folder of an adapter or encoder, or next to it.

    Returns:
        None for an artifact that kgqa did not train.

    Raises:
        DataError: the manifest is damaged.
    """
    file, examples = _read_examples(folder)
    if examples is None:
        return None
    hashes = check_json(_Examples, examples, f"{file}: examples", _REMEDY)
    return QuestionHashes(ids=hashes.question_hashes, texts=hashes.text_hashes)


def training_templates(folder: Path) -> Mapping[str, str]:
    """Read the hash of each template that the training examples used; empty if unknown."""
    file, examples = _read_examples(folder)
    return check_json(_Templates, examples or {}, f"{file}: examples", _REMEDY).templates


def _read_examples(folder: Path) -> tuple[Path, Mapping[str, Json] | None]:
    for place in (folder, folder.parent):
        file = place / MANIFEST
        manifest = read_json(file, remedy=_REMEDY) if file.is_file() else None
        if isinstance(manifest, dict) and isinstance(manifest.get("examples"), dict):
            return file, manifest["examples"]
    return folder / MANIFEST, None


def id_hash(dataset: str, question_id: str) -> str:
    """Hash a question's id within its dataset."""
    return text_digest(f"{dataset}\n{question_id}", DIGITS)


def text_hash(text: str) -> str:
    """Hash the words of a question: benchmarks reuse questions of each other under other ids."""
    return text_digest(" ".join(text.casefold().split()), DIGITS)

"""Questions in memory, for `kgqa.ask` and `kgqa ask`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from kgqa.errors import ConfigError, DataError
from kgqa.types import JsonObject, Passage, Question
from kgqa.util.fs import digest, text_digest


class Searchable(Protocol):
    """Passages to search that are no file of a dataset, such as a user's documents."""

    def passages(self) -> Iterator[Passage]: ...

    def identity(self) -> JsonObject: ...


@dataclass(frozen=True)
class InMemoryDataset:
    """Questions in memory. The corpus is their own passages, or `documents`."""

    members: tuple[Question, ...]
    documents: Searchable | None = None

    @classmethod
    def of(cls, question: str, passages: Iterable[tuple[str, str]]) -> InMemoryDataset:
        """Return one question with titled texts, and no gold answer; raise a ConfigError if either is empty."""
        texts = dict.fromkeys(Passage.of(title.strip(), text.strip()) for title, text in passages if text.strip())
        if not question.strip() or not texts:
            raise ConfigError(f"question={question!r}, {len(texts)} passages: expected a question and a passage")
        return cls((Question("asked", question.strip(), (), tuple(texts)),))

    @property
    def file(self) -> Path:
        raise DataError("these questions are in memory and in no file")

    @property
    def sha256(self) -> str:
        """Return the sha256 of the questions and what is searched."""
        if self.documents is None:
            return text_digest(json.dumps([asdict(question) for question in self.members], default=sorted))
        members = [[each.id, each.text, [passage.id for passage in each.passages]] for each in self.members]
        return digest([members, self.corpus_identity()])

    def questions(self) -> Iterator[Question]:
        return iter(self.members)

    def passages(self) -> Iterator[Passage]:
        if self.documents is not None:
            return self.documents.passages()
        return iter(dict.fromkeys(passage for question in self.members for passage in question.passages))

    def corpus_identity(self) -> JsonObject:
        return {"files": [self.sha256]} if self.documents is None else self.documents.identity()

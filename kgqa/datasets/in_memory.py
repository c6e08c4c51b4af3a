"""Questions that are in memory and in no file: for `kgqa.ask` and `kgqa ask`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kgqa.datasets.documents import Documents
from kgqa.errors import ConfigError, DataError
from kgqa.types import Json, Passage, Question
from kgqa.util.fs import digest, text_digest


@dataclass(frozen=True)
class Given:
    """Their own passages are the corpus."""

    given: tuple[Question, ...]

    @classmethod
    def of(cls, question: str, passages: Iterable[tuple[str, str]]) -> Given:
        """Return one question with titled texts, and no gold answer.

        Raises:
            ConfigError: the question or every passage is empty.
        """
        kept = tuple(Passage.of(title.strip(), text.strip()) for title, text in passages if text.strip())
        if not question.strip() or not kept:
            raise ConfigError(f"question={question!r}, {len(kept)} passages: a question and one passage are the least")
        return cls((Question("asked", question.strip(), (), tuple(dict.fromkeys(kept))),))

    @property
    def file(self) -> Path:
        """Raise DataError: they are in none."""
        raise DataError("these questions are in memory and in no file")

    @property
    def sha256(self) -> str:
        """Return the sha256 of the questions and their passages."""
        return text_digest(json.dumps([asdict(question) for question in self.given], default=sorted))

    def questions(self) -> Iterator[Question]:
        return iter(self.given)

    def passages(self) -> Iterator[Passage]:
        return iter(dict.fromkeys(passage for question in self.given for passage in question.passages))

    def corpus_identity(self) -> Mapping[str, Json]:
        return {"files": [self.sha256]}


@dataclass(frozen=True)
class PutToDocuments(Given):
    """Questions put to documents, which are the corpus."""

    documents: Documents

    @property
    def sha256(self) -> str:
        """Return the sha256 of the questions and the documents."""
        asked = [[question.id, question.text, [passage.id for passage in question.passages]] for question in self.given]
        return digest([asked, self.corpus_identity()])

    def passages(self) -> Iterator[Passage]:
        return self.documents.passages()

    def corpus_identity(self) -> Mapping[str, Json]:
        return self.documents.identity()

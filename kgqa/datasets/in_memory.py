"""Questions in memory, for `kgqa.ask` and `kgqa ask`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from kgqa.datasets.questions import read_question
from kgqa.errors import ConfigError
from kgqa.types import Json, JsonObject, Passage, Question
from kgqa.util.digests import digest, text_digest


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
        pairs: list[Any] = list(passages)
        if any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
            raise ConfigError("passages: expected pairs of title and text: [(title, text), …]")
        texts = dict.fromkeys(
            Passage.of(title.strip(), text.strip()) for title, text in pairs if text.strip()
        )
        if not question.strip() or not texts:
            raise ConfigError(
                f"question={question!r}, {len(texts)} passages: expected a question and a passage"
            )
        return cls((Question("asked", question.strip(), (), tuple(texts)),))

    @classmethod
    def of_records(cls, records: Iterable[Mapping[str, Json]]) -> InMemoryDataset:
        """Return questions of records of `datasets.questions`. The id is the number of the record if there is none.

        Raises DataError: a record has another form.
        """
        return cls(
            tuple(
                read_question(record, f"dataset: record {number}", str(number))
                for number, record in enumerate(records, start=1)
            )
        )

    @property
    def file(self) -> Path:
        """Return a name for the questions, which are in no file."""
        return Path("memory")

    @property
    def sha256(self) -> str:
        """Return the sha256 of the questions and what is searched."""
        if self.documents is None:
            return text_digest(
                json.dumps([asdict(question) for question in self.members], default=sorted)
            )
        members = [
            [each.id, each.text, [passage.id for passage in each.passages]] for each in self.members
        ]
        return digest([members, self.corpus_identity()])

    def questions(self) -> Iterator[Question]:
        return iter(self.members)

    def passages(self) -> Iterator[Passage]:
        if self.documents is not None:
            return self.documents.passages()
        return iter(
            dict.fromkeys(passage for question in self.members for passage in question.passages)
        )

    def corpus_identity(self) -> JsonObject:
        return {"files": [self.sha256]} if self.documents is None else self.documents.identity()

"""The answer to one question about a user's documents, as `kgqa ask` prints it and saves it beside its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.schema import as_json, check_json, read_json
from kgqa.types import Json
from kgqa.util.fs import outputs

FOLDER = "asked"  # below outputs/
SUFFIX = ".json"
_REMEDY = "ask the question again to rewrite it"


@dataclass(frozen=True, slots=True)
class Quotation:
    """A sentence that supports an answer, its place, and the triple that was extracted from it."""

    triple: tuple[str, ...] | None  # head, relation, tail; None if the method extracts none
    sentence: str  # the one that shares most words with the triple, or with question and answer
    file: str | None  # None: the passage is not from a document
    page: str | None  # "page 3", only for PDFs
    line: int | None  # from 1, only for text files
    title: str
    passage: str  # its id
    where: str  # file with page or line as one text, or the title


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    question: str
    answer: str | None
    error: str | None
    supported: bool  # one of the quoted sentences contains the answer
    steps: tuple[Quotation, ...]
    method: str
    model: str
    engine: str
    left_out: Mapping[str, str]  # files that cannot be read, each with the reason
    seconds: float
    page: str

    def json(self) -> dict[str, Json]:
        saved: dict[str, Json] = as_json(self)
        return saved

    @classmethod
    def read(cls, file: Path) -> SavedAnswer:
        """Read a saved answer. Raises DataError: the file is missing or damaged."""
        answer: SavedAnswer = check_json(cls, read_json(file, remedy=_REMEDY), str(file), _REMEDY)
        return answer


def answers_folder() -> Path:
    return outputs() / FOLDER

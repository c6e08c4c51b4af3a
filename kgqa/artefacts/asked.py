"""A question that somebody put to their documents, as `kgqa ask` keeps it beside its page: NAME.json, NAME.html."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.form import as_json, checked, read_json
from kgqa.artefacts.trace import TracedQuestion, traced_of_json
from kgqa.storage import outputs
from kgqa.types import Json

FOLDER = "asked"  # of the outputs
KIND = ".json"
_REMEDY = "ask the question again to rewrite it"


@dataclass(frozen=True, slots=True)
class Step:
    """What an answer rests on: a sentence of a document, with its place, and the triple that was made of it."""

    triple: tuple[str, ...] | None  # head, relation, tail; None where the method makes none
    sentence: str  # of the passage: the one that shares most words with the triple, else with question and answer
    file: str | None  # None: the passage is from elsewhere
    page: str | None  # "page 3", of PDFs alone
    line: int | None  # from 1, of texts alone
    title: str
    passage: str  # its id
    where: str  # file with page or line in one text, for people; else the title


@dataclass(frozen=True)
class Asked:
    """What became of one question. `about`: names and values of what answered it, for people."""

    traced: TracedQuestion
    steps: tuple[Step, ...]
    says_so: bool  # whether one of the quoted sentences says the answer
    about: tuple[tuple[str, str], ...]

    def json(self) -> dict[str, Json]:
        """As it is kept."""
        said = {"steps": as_json(self.steps), "says_so": self.says_so, "about": as_json(self.about)}
        return {"trace": self.traced.json(), **said}

    @classmethod
    def read(cls, file: Path) -> Asked:
        """Raises DataError: there is no such file, or it is damaged."""
        missing = "no such question; ask it again, or see what else was asked"
        kept = checked(_Kept, read_json(file, missing=missing, remedy=_REMEDY), str(file), _REMEDY)
        return cls(traced_of_json(kept.trace, str(file)), kept.steps, kept.says_so, kept.about)


@dataclass(frozen=True, slots=True)
class _Kept:
    trace: Mapping[str, Json]
    steps: tuple[Step, ...]
    says_so: bool
    about: tuple[tuple[str, str], ...]


def asked_folder() -> Path:
    return outputs() / FOLDER

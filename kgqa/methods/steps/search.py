"""Search for one question: the scope of its searches, and the transcript of an agent with their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from string import Formatter
from typing import Annotated, Literal

from kgqa.calls import Search
from kgqa.protocols import Need
from kgqa.types import Json, Passage, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Validator

SHORT = 4  # steps that are all shown
FIELDS = {"number", "title", "text"}


def _has_known_fields(form: str) -> bool:
    return {name for _, name, _, _ in Formatter().parse(form) if name is not None} <= FIELDS


PassageForm = Annotated[
    str, Validator("fields are {number}, {title} and {text}", _has_known_fields)
]
SearchScope = Literal["corpus", "own"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of the searches for one question: the corpus, pages of it by title, or a few passages."""

    titles: tuple[str, ...] | None = None
    pool: tuple[Passage, ...] | None = None

    async def search(self, query: str, k: int, longest: int | None = None) -> tuple[Passage, ...]:
        """Return the best `k` passages, best first, without those with more than `longest` words."""
        passages = await Search(query, k, self.titles, self.pool)
        return tuple(
            passage
            for passage in passages
            if longest is None or len(passage.text.split()) <= longest
        )

    @property
    def notes(self) -> dict[str, Json]:
        """Return the titles of the searched pages for `Answer.notes`, if they are limited."""
        return {"pages": self.titles} if self.titles else {}


@dataclass(frozen=True)
class ScopedMethod:
    """A method that searches the corpus (scope=corpus) or the question's own passages (scope=own)."""

    scope: Annotated[
        SearchScope,
        Setting("What is searched: corpus | own, the question's own passages.", ours="our choice"),
    ] = "corpus"

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset({"model", "search" if self.scope == "corpus" else "pool"})

    def scope_of(self, question: Question) -> Scope:
        return Scope(pool=question.passages) if self.scope == "own" else Scope()


@dataclass(frozen=True)
class Found:
    """The result of a search. `finding`: what the model read from the passages, shown instead of them."""

    query: str
    passages: tuple[Passage, ...]
    finding: str | None = None


@dataclass(slots=True)
class Transcript:
    """The texts and results so far, in order."""

    parts: list[str | Found] = field(default_factory=list)

    def write(self, *parts: str | Found) -> None:
        self.parts += parts

    @property
    def searches(self) -> list[Found]:
        return [part for part in self.parts if isinstance(part, Found)]

    @property
    def queries(self) -> list[str]:
        return [search.query for search in self.searches]

    @property
    def passages(self) -> list[Passage]:
        """Return all passages, those of the first search first."""
        return [passage for search in self.searches for passage in search.passages]

    def show(self, show_result: Callable[[Found], str]) -> str:
        """Return the transcript, with each result as `show_result` shows it."""
        return "".join(part if isinstance(part, str) else show_result(part) for part in self.parts)


def number_steps(transcript: str, keep: tuple[str, ...]) -> str:
    """Return the lines of a transcript as numbered steps: the first, the last three, and those with a text of `keep`.

    Others are "...". Search-o1 shows the reasoning so far in this form to the model that reads passages.
    """
    lines = transcript.replace("\n\n", "\n").split("\n")
    last = len(lines) - 3 if len(lines) > SHORT else 0
    steps: list[str] = []
    for number, line in enumerate(lines):
        if number == 0 or number >= last or any(text in line for text in keep):
            steps.append(f"Step {number + 1}: {line}")
        elif steps[-1] != "...":
            steps.append("...")
    return "\n\n".join(steps).strip("\n")

"""Search the corpus, pages of it, or a few passages for one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kgqa.calls import Search
from kgqa.protocols import Need
from kgqa.types import Passage, Question

SearchScope = Literal["corpus", "own"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of the searches for one question: the corpus, pages of it by title, or a few passages."""

    titles: tuple[str, ...] | None = None
    pool: tuple[Passage, ...] | None = None

    async def search(self, query: str, k: int, longest: int | None = None) -> tuple[Passage, ...]:
        """Return the best `k` passages, best first, without those with more than `longest` words."""
        passages = await Search(query, k, self.titles, self.pool)
        return tuple(passage for passage in passages if longest is None or len(passage.text.split()) <= longest)


@dataclass(frozen=True)
class ScopedMethod:
    """A method that searches the corpus (scope=corpus) or the question's own passages (scope=own)."""

    scope: SearchScope

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset({"model", "search" if self.scope == "corpus" else "pool"})

    def scope_of(self, question: Question) -> Scope:
        return Scope(pool=question.passages) if self.scope == "own" else Scope()

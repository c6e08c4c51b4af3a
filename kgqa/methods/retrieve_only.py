"""One-step retrieval without a reader (IRCoT's OneR retriever, §4.1): for figures of retrieval, asks no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kgqa.calls import Rank, Search
from kgqa.constraints import Count
from kgqa.errors import ConfigError
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question

QUESTION_WORDS = frozenset(["who", "what", "when", "where", "why", "which", "how", "does", "is"])
Searched = Literal["corpus", "own"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where the searches for one question look: the corpus, pages of it by title, or a few passages."""

    titles: tuple[str, ...] | None = None
    pool: tuple[Passage, ...] | None = None

    @classmethod
    def of(cls, searched: Searched, question: Question) -> Scope:
        return cls(pool=question.passages) if searched == "own" else cls()

    async def search(self, query: str, k: int, longest: int | None = None) -> tuple[Passage, ...]:
        """The best `k`, best first, without those of more than `longest` words."""
        found = await Search(query, k, self.titles, self.pool)
        return tuple(passage for passage in found if longest is None or len(passage.text.split()) <= longest)


@dataclass(frozen=True)
class RetrieveOnly:
    """Fields as in conf/method/retrieve_only.yaml, which cites the source of each value."""

    scope: Searched
    passages: Count
    strip_question_words: bool
    max_passage_words: Count | None
    reranker: bool
    candidates: Count

    def __post_init__(self) -> None:
        if self.reranker and self.scope == "corpus" and self.candidates < self.passages:
            raise ConfigError(f"method.candidates={self.candidates}: fewer than method.passages={self.passages}")

    @property
    def uses(self) -> frozenset[Need]:
        """Reranking a question's own passages needs no search: all of them are candidates."""
        searches: Need = "search" if self.scope == "corpus" else "pool"
        needs: dict[Need, bool] = {
            searches: self.scope == "corpus" or not self.reranker,
            "reranker": self.reranker,
        }
        return frozenset(need for need, needed in needs.items() if needed)

    async def answer(self, question: Question) -> Answer:
        """No answer; evidence: the passages, best first. Flag `empty_retrieval`."""
        passages = await self.retrieve(question, Scope.of(self.scope, question))
        return Answer("", tuple(passage.id for passage in passages), flags={} if passages else {"empty_retrieval": 1})

    async def retrieve(self, question: Question, scope: Scope) -> tuple[Passage, ...]:
        """The `passages` best of the scope for the question, best first."""
        query = without_question_words(question.text) if self.strip_question_words else question.text
        if not self.reranker:
            return await scope.search(query, self.passages, self.max_passage_words)
        if scope.pool is None:
            candidates = await scope.search(query, self.candidates, self.max_passage_words)
        else:
            candidates = scope.pool
        return (await reranked(question.text, candidates))[: self.passages]


async def reranked(query: str, passages: tuple[Passage, ...]) -> tuple[Passage, ...]:
    """Best first, equal scores in the given order; repeated passages once."""
    distinct = tuple({passage.id: passage for passage in passages}.values())
    if not distinct:
        return ()
    scores = await Rank(query, tuple(f"{p.title}: {p.text}" for p in distinct), scorer="reranker")
    order = sorted(range(len(distinct)), key=lambda place: -scores[place])
    return tuple(distinct[place] for place in order)


def without_question_words(question: str) -> str:
    """What BM25 is given for a question: "who", "is" and the like match everything and nothing.

    IRCoT's released program does so; the paper does not say it. A capital within the question marks a part of a name
    ("How To Avoid Everything"), which is kept. The question itself where no other word is left.
    """
    words = question.split()
    bare = [word.strip("\"'“”‘’,.:;?!()") for word in words]
    asking = [word.lower() in QUESTION_WORDS and (not place or word.islower()) for place, word in enumerate(bare)]
    kept = [word for word, is_asking in zip(words, asking, strict=True) if not is_asking]
    return " ".join(kept) if any(any(map(str.isalnum, word)) for word in kept) else question

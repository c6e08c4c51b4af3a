"""One-step retrieval (IRCoT's OneR, §4.1; KnowTrace's RA-CoT; TRACE's rankings of given passages), with and without a
reader.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal

from kgqa.calls import Rank, Search
from kgqa.errors import ConfigError
from kgqa.methods.steps.examples import FewShotKeys
from kgqa.methods.steps.few_shot import FewShot, predict_pages
from kgqa.methods.steps.reader import Reader, read_passages
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question
from kgqa.util.validators import Count, Natural

QUESTION_WORDS = frozenset(["who", "what", "when", "where", "why", "which", "how", "does", "is"])
SearchScope = Literal["corpus", "own"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of the searches for one question: the corpus, pages of it by title, or a few passages."""

    titles: tuple[str, ...] | None = None
    pool: tuple[Passage, ...] | None = None

    @classmethod
    def of(cls, searched: SearchScope, question: Question) -> Scope:
        return cls(pool=question.passages) if searched == "own" else cls()

    async def search(self, query: str, k: int, longest: int | None = None) -> tuple[Passage, ...]:
        """Return the best `k` passages, best first, without those with more than `longest` words."""
        passages = await Search(query, k, self.titles, self.pool)
        return tuple(passage for passage in passages if longest is None or len(passage.text.split()) <= longest)


@dataclass(frozen=True)
class RetrieveOnly:
    """Retrieval without a reader or model calls. Fields as in conf/method/retrieve_only.yaml."""

    scope: SearchScope
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
        """Return the needs. Reranking the own passages of a question needs no search, because all are candidates."""
        needs: set[Need] = {"reranker"} if self.reranker else set()
        if self.scope == "corpus" or not self.reranker:
            needs.add("search" if self.scope == "corpus" else "pool")
        return frozenset(needs)

    async def answer(self, question: Question) -> Answer:
        """Return the passages as evidence, best first, without an answer. Flag `empty_retrieval`."""
        passages = await self.retrieve(question, Scope.of(self.scope, question))
        return Answer("", tuple(passage.id for passage in passages), flags={} if passages else {"empty_retrieval": 1})

    async def retrieve(self, question: Question, scope: Scope) -> tuple[Passage, ...]:
        """Return the best passages of the scope for the question, best first."""
        query = remove_question_words(question.text) if self.strip_question_words else question.text
        if not self.reranker:
            return await scope.search(query, self.passages, self.max_passage_words)
        if scope.pool is None:
            candidates = await scope.search(query, self.candidates, self.max_passage_words)
        else:
            candidates = scope.pool
        return (await rerank(question.text, candidates))[: self.passages]


@dataclass(frozen=True)
class RetrieveRead(FewShotKeys):
    """Retrieve once, then read. Fields as in conf/method/retrieve_read.yaml. `scope=none`: no retrieval (NoR)."""

    scope: Literal["corpus", "own", "none"]
    passages: Count
    strip_question_words: bool
    max_passage_words: Count | None
    reranker: bool
    candidates: Count
    titles: Natural
    reader: Reader
    max_answer_tokens: Count
    few_shot: FewShot

    def __post_init__(self) -> None:
        if self.scope == "none" and self.reader in ("zero_shot", "short"):
            raise ConfigError(f"method.scope=none: method.reader={self.reader} then is method=no_context")
        _ = self.retriever

    @property
    def shows(self) -> str:
        return "" if self.reader in ("zero_shot", "short") else f"{self.few_shot_path}: {self.few_shot.description}"

    @cached_property
    def retriever(self) -> RetrieveOnly | None:
        """Return the retriever, None for scope=none."""
        if self.scope == "none":
            return None
        return RetrieveOnly(*(getattr(self, field.name) for field in fields(RetrieveOnly)))

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset({"model", *(self.retriever.uses if self.retriever else ())})

    async def answer(self, question: Question) -> Answer:
        """Retrieve and read.

        Evidence: the retrieved passages, best first. Notes: the searched pages, if the model named some.
        """
        few_shot, passages, pages, flags = self.few_shot, tuple[Passage, ...](), None, Counter[str]()
        if self.retriever is None:
            few_shot = replace(few_shot, distractors=None)
        else:
            scope = Scope.of(self.retriever.scope, question)
            if self.scope == "corpus":
                pages, flags = await predict_pages(question, few_shot, self.titles)
                scope = Scope(titles=pages)
            passages = await self.retriever.retrieve(question, scope)
        answer = await read_passages(question, passages, self.reader, few_shot, self.max_answer_tokens)
        flags += Counter(answer.flags)
        if self.retriever is None:
            del flags["empty_retrieval"]  # there was no search
        return replace(answer, flags=flags, notes={**answer.notes, **({"pages": pages} if pages else {})})


async def rerank(query: str, passages: tuple[Passage, ...]) -> tuple[Passage, ...]:
    """Return the distinct passages, best first, ties in the given order."""
    distinct = tuple({passage.id: passage for passage in passages}.values())
    if not distinct:
        return ()
    scores = await Rank(query, tuple(f"{p.title}: {p.text}" for p in distinct), scorer="reranker")
    order = sorted(range(len(distinct)), key=lambda index: -scores[index])
    return tuple(distinct[index] for index in order)


def remove_question_words(question: str) -> str:
    """Remove "who", "is" and similar words from a query for BM25, as IRCoT's released program does.

    Words with a capital inside the question are parts of a name ("How To Avoid Everything") and stay. A question
    without other words is returned unchanged.
    """
    words = question.split()
    bare = [word.strip("\"'“”‘’,.:;?!()") for word in words]
    removable = [word.lower() in QUESTION_WORDS and (not index or word.islower()) for index, word in enumerate(bare)]
    rest = [word for word, remove in zip(words, removable, strict=True) if not remove]
    return " ".join(rest) if any(any(map(str.isalnum, word)) for word in rest) else question

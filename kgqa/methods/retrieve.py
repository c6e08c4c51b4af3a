"""One-step retrieval: IRCoT's OneR (§4.1), KnowTrace's RA-CoT and TRACE's rankings, with and without a reader."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from kgqa.calls import rank
from kgqa.errors import ConfigError
from kgqa.methods.steps.examples import SAMPLE, FewShotKeys
from kgqa.methods.steps.few_shot import FewShot, choose_pages
from kgqa.methods.steps.reader import Reader, evidence_of, read_passages
from kgqa.methods.steps.search import Scope, ScopedMethod
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural

# the other readers show no examples, but IIRC's pages are named with them
SHOWS_EXAMPLES = "reader=direct|cot or scope=corpus"
QUESTION_WORDS = frozenset(["who", "what", "when", "where", "why", "which", "how", "does", "is"])


@dataclass(frozen=True)
class RetrieveOnly(ScopedMethod):
    """Retrieval without a reader or model calls."""

    passages: Annotated[
        Count,
        Setting(
            "Number of passages to retrieve. OneR's K is tuned in {5, 7, 9, 11, 13, 15}.",
            paper="§4.1: the budget of every retriever",
        ),
    ] = 15
    strip_question_words: Annotated[
        bool,
        Setting(
            'Remove question words such as "who" and "is" from the query. Released: true.',
            ours="our choice",
        ),
    ] = False
    max_passage_words: Annotated[
        Count | None,
        Setting("Skip longer passages of the search. Released: 600.", ours="our choice"),
    ] = None
    reranker: Annotated[
        bool,
        Setting(
            "Rerank the found passages with the cross-encoder of reranker=.", ours="our choice"
        ),
    ] = False
    candidates: Annotated[
        Count,
        Setting(
            "Passages that the reranker orders. With scope=own: all.",
            ours="our choice",
            only_if="reranker=true",
        ),
    ] = 100

    def __post_init__(self) -> None:
        if self.reranker and self.scope == "corpus" and self.candidates < self.passages:
            raise ConfigError(
                f"method.candidates={self.candidates}: fewer than method.passages={self.passages}"
            )

    @property
    def uses(self) -> frozenset[Need]:
        """Return the needs. Reranking the own passages of a question needs no search, because all are candidates."""
        needs: set[Need] = {"reranker"} if self.reranker else set()
        if self.scope == "corpus" or not self.reranker:
            needs.add("search" if self.scope == "corpus" else "pool")
        return frozenset(needs)

    async def answer(self, question: Question) -> Answer:
        """Return the passages as evidence, best first, without an answer. Flag `empty_retrieval`."""
        passages = await self.retrieve(question, self.scope_of(question))
        return Answer("", evidence_of(passages), flags={"empty_retrieval": not passages})

    async def retrieve(self, question: Question, scope: Scope) -> tuple[Passage, ...]:
        """Return the best passages of the scope for the question, best first."""
        query = remove_question_words(question.text) if self.strip_question_words else question.text
        if not self.reranker:
            return await scope.search(query, self.passages, self.max_passage_words)
        candidates = scope.pool
        if candidates is None:
            candidates = await scope.search(query, self.candidates, self.max_passage_words)
        distinct = [*{passage.id: passage for passage in candidates}.values()]
        ranked = await rank(
            question.text, distinct, lambda passage: f"{passage.title}: {passage.text}", "reranker"
        )
        return tuple(passage for _, passage in ranked[: self.passages])


@dataclass(frozen=True)
class RetrieveRead(RetrieveOnly, FewShotKeys):
    """Retrieve once, then read. `scope=none`: no retrieval (NoR)."""

    scope: Annotated[
        Literal["corpus", "own", "none"],
        Setting(
            "What is searched: corpus | own, the question's own passages (TRACE §C.2) | none, no passages (NoR).",
            paper="§4.1",
        ),
    ] = "corpus"  # type: ignore[assignment] # one value more than the base class
    titles: Annotated[
        Natural,
        Setting(
            "Number of pages that the model names, if a question has a pinned passage (IIRC). 0: none.",
            paper="appendix B",
        ),
    ] = 3
    reader: Annotated[
        Reader,
        Setting(
            "Prompt of the answer: direct (best for Flan-T5) | cot (best for GPT-3) | zero_shot, TRACE's (§3.4) | "
            "short, KGP's (8.9).",
            paper="§3.2",
        ),
    ] = "direct"
    max_answer_tokens: Annotated[
        Count, Setting("Maximum tokens of the answer.", ours="our choice")
    ] = 200
    demonstration_set: Annotated[Count, replace(SAMPLE, only_if=SHOWS_EXAMPLES)] = 1
    few_shot: Annotated[
        FewShot, Setting("Few-shot examples, as in method=ircot.", only_if=SHOWS_EXAMPLES)
    ] = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.scope == "none" and self.reader in ("zero_shot", "short"):
            raise ConfigError(
                f"method.scope=none: method.reader={self.reader} then is method=no_context"
            )
        super().__post_init__()

    @property
    def shows(self) -> str:
        return (
            ""
            if self.reader in ("zero_shot", "short")
            else f"{self.few_shot_path}: {self.few_shot.description}"
        )

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset({"model", *(() if self.scope == "none" else super().uses)})

    async def answer(self, question: Question) -> Answer:
        """Retrieve and read.

        Evidence: the retrieved passages, best first. Notes: the searched pages, if the model named some.
        """
        if self.scope == "none":
            few_shot = replace(self.few_shot, distractors=None)
            return await read_passages(
                question, None, self.reader, few_shot, self.max_answer_tokens
            )
        scope, flags = await choose_pages(
            self.scope_of(question), question, self.few_shot, self.titles
        )
        passages = await self.retrieve(question, scope)
        answer = await read_passages(
            question, passages, self.reader, self.few_shot, self.max_answer_tokens
        )
        return replace(
            answer, flags=flags + Counter(answer.flags), notes={**answer.notes, **scope.notes}
        )


def remove_question_words(question: str) -> str:
    """Remove "who", "is" and similar words from a query for BM25, as IRCoT's released program does.

    Words with a capital inside the question are parts of a name ("How To Avoid Everything") and stay. A question
    without other words is returned unchanged.
    """
    words = question.split()
    bare = [word.strip("\"'“”‘’,.:;?!()") for word in words]
    removable = [
        word.lower() in QUESTION_WORDS and (not index or word.islower())
        for index, word in enumerate(bare)
    ]
    rest = [word for word, remove in zip(words, removable, strict=True) if not remove]
    return " ".join(rest) if any(any(map(str.isalnum, word)) for word in rest) else question

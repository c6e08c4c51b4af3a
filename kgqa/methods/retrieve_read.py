"""Retrieve once, then read: IRCoT's OneR and NoR QA (§4.1), KnowTrace's RA-CoT, TRACE's rankings of given passages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from kgqa.errors import ConfigError
from kgqa.methods.retrieve_only import RetrieveOnly, Scope
from kgqa.methods.steps.examples import FewShotKeys
from kgqa.methods.steps.few_shot import FewShot
from kgqa.methods.steps.page_titles import predict_pages
from kgqa.methods.steps.reader import Reader, read_passages
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question
from kgqa.util.validators import Count, Natural


@dataclass(frozen=True)
class RetrieveRead(FewShotKeys):
    """The method, with the fields of conf/method/retrieve_read.yaml."""

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
        return RetrieveOnly(
            self.scope,
            self.passages,
            self.strip_question_words,
            self.max_passage_words,
            self.reranker,
            self.candidates,
        )

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

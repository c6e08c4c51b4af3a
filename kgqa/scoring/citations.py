"""Compare what an answer cites with the gold facts of its question, without a model: passages and sentences."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kgqa.artifacts.trace import Notes, TracedQuestion
from kgqa.scoring.normalization import normalize
from kgqa.types import Passage, Question

# notes of methods that cite
_CITING = ("chains", "cited")
_END = re.compile(r"(?<=[.!?])\s+(?=[\"'“(]?[A-Z0-9])")


@dataclass(frozen=True)
class CitationScores:
    """Precision and recall, from 0 to 1. None: nothing is cited, or the gold facts are unknown."""

    precision: float | None = None
    recall: float | None = None

    @classmethod
    def of(cls, cited: Collection[object], gold: Collection[object]) -> CitationScores:
        """Compare sets. If nothing is cited, the precision is not defined and the recall is 0."""
        if not gold:
            return cls()
        hits = len(set(cited) & set(gold))
        return cls(hits / len(set(cited)) if cited else None, hits / len(set(gold)))


def cite_passages(traced: TracedQuestion) -> CitationScores:
    """Score the passages of the chains, or the evidence of a method without chains. A failed question has no scores."""
    if traced.prediction.error is not None:
        return CitationScores()
    chains = Notes.of(traced).chains
    cited = (
        {triple[-1] for chain in chains for triple in chain.triples}
        if chains
        else traced.prediction.evidence
    )
    return CitationScores.of(set(cited or ()), traced.question.support)


def cite_sentences(traced: TracedQuestion) -> CitationScores:
    """Score the sentences that the triples of the chains, or the cited texts, come from.

    Undefined for a method without chains and citations, or without gold sentences. An answer of such a method that
    cites nothing has the recall 0.
    """
    notes = Notes.of(traced)
    gold = {(id_, normalize(sentence)) for id_, sentence in traced.question.facts}
    if traced.notes.keys().isdisjoint(_CITING) or not gold:
        return CitationScores()
    passages = {passage.id: passage for passage in traced.question.passages}
    sentences = {
        id_: split_sentences(passage, traced.question) for id_, passage in passages.items()
    }
    cited = {
        (id_, find_sentence(parts, sentences[id_]))
        for *parts, id_ in (
            *(triple for chain in notes.chains for triple in chain.triples),
            *notes.cited,
        )
        if sentences.get(id_)
    }
    return CitationScores.of(cited, gold)


def split_sentences(passage: Passage, question: Question) -> list[str]:
    """Return the sentences of a passage. The dataset's own gold sentences stay whole."""
    pieces = [passage.text]
    for id_, fact in question.facts:
        if id_ == passage.id:
            pieces = [part for piece in pieces for part in _around(piece, fact)]
    facts = {fact for _, fact in question.facts}
    split = (piece if piece in facts else _END.split(piece) for piece in pieces)
    return [
        each
        for part in split
        for each in ([part] if isinstance(part, str) else part)
        if each.strip()
    ]


def _around(text: str, part: str) -> list[str]:
    before, match, after = text.partition(part)
    return [before, match, after] if match else [text]


def find_sentence(parts: Sequence[str], sentences: Sequence[str]) -> str:
    """Return the normalized sentence that shares most words with a triple, the first of equal ones."""
    words = set(normalize(" ".join(parts)).split())
    return normalize(
        max(sentences, key=lambda sentence: len(words & set(normalize(sentence).split())))
    )

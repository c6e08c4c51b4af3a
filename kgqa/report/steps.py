"""Quote the sentences of a user's documents that support an answer, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kgqa.artifacts.predictions import Quotation
from kgqa.artifacts.trace import TracedQuestion
from kgqa.datasets.documents import Documents
from kgqa.types import Passage
from kgqa.util.sentences import sentences

MAX_PASSAGES = 5  # quoted for a method without chains
WORD = re.compile(r"\w+")
NEEDS_NO_TEXT = ("yes", "no")  # answers that do not have to be in a text


def quote_steps(traced: TracedQuestion, documents: Documents) -> tuple[Quotation, ...]:
    """Return a quotation per unit of the likeliest chain that contains the answer, or of the likeliest chain.

    Chains are in the notes of the method; empty ones are ignored. If no quoted sentence contains the answer, the
    sentence of the evidence that does is added. A method without chains gives a quotation per passage of its evidence.
    """
    passages = {passage.id: passage for passage in (*documents.collection, *traced.question.passages)}
    answer = traced.prediction.answer or ""
    chains = [chain["triples"] for chain in traced.notes.get("chains", ()) if chain["triples"]]
    if not chains:
        words = _weigh_words((traced.question.text, 1.0), (answer, 2.0))
        evidence = [passages[id_] for id_ in traced.prediction.evidence or () if id_ in passages]
        return tuple(_quote_best((), words, passage, documents) for passage in evidence[:MAX_PASSAGES])
    chosen: list[list[str]] = next((chain for chain in chains if _contains(_all_words(chain), answer)), chains[0])
    steps = tuple(_quote_unit(unit, passages[unit[-1]], documents) for unit in chosen)
    if is_quoted(answer, steps):
        return steps
    evidence = [passages[id_] for id_ in traced.prediction.evidence or () if id_ in passages]
    return (*steps, *_sentence_with_answer(answer, traced.question.text, evidence, documents))


def _sentence_with_answer(
    answer: str, question: str, evidence: Iterable[Passage], documents: Documents
) -> tuple[Quotation, ...]:
    """Return the sentence with the answer that shares most words with the question, if there is one."""
    words = _words(question)
    candidates = [
        (part, passage) for passage in evidence for part in _split_passage(passage) if _contains(part, answer)
    ]
    if not candidates:
        return ()
    sentence, passage = max(candidates, key=lambda each: len(words & _words(each[0])))
    return (_quote_sentence((), sentence, passage, documents),)


def is_quoted(answer: str, steps: Iterable[Quotation]) -> bool:
    """Return whether a sentence contains the answer, ignoring case and punctuation. "Yes" and "no" always count."""
    return _normalize(answer) in NEEDS_NO_TEXT or any(_contains(step.sentence, answer) for step in steps)


def best_sentence(passage: Passage, words: Mapping[str, float]) -> str:
    """Return the sentence (or row of a table) with the largest sum of word weights; ties go to the first one."""
    return max(
        _split_passage(passage),
        key=lambda part: sum(words.get(word, 0.0) for word in _words(part)),
        default=passage.text,
    )


def _split_passage(passage: Passage) -> list[str]:
    if passage.place.startswith("table"):
        return passage.text.splitlines()
    return [part for block in re.split(r"\n\s*\n", passage.text) for part in sentences(block)]


def _quote_unit(unit: list[str], passage: Passage, documents: Documents) -> Quotation:
    """Quote the sentence for a unit of a chain: a triple, a sentence or a document, and the id of its passage."""
    *parts, _ = unit
    triple = tuple(parts) if len(parts) == 3 else ()
    # the tail is new, the head is often known from the step before, and the relation is in the words of the model
    weights = (1.0, 0.5, 2.0) if triple else (1.0,)
    return _quote_best(triple, _weigh_words(*zip(parts, weights, strict=True)), passage, documents)


def _quote_best(
    triple: tuple[str, ...], words: Mapping[str, float], passage: Passage, documents: Documents
) -> Quotation:
    return _quote_sentence(triple, best_sentence(passage, words), passage, documents)


def _quote_sentence(triple: tuple[str, ...], sentence: str, passage: Passage, documents: Documents) -> Quotation:
    where = documents.where(passage, sentence)
    return Quotation(
        triple=triple or None,
        sentence=sentence,
        file=str(where.file) if where else None,
        page=(where.page or None) if where else None,
        line=where.line if where else None,
        title=passage.title,
        passage=passage.id,
        where=str(where) if where else passage.title,
    )


def _weigh_words(*weighed: tuple[str, float]) -> Mapping[str, float]:
    """Return the weight of each word: the weight of a text is shared equally by its words."""
    weights: dict[str, float] = {}
    for text, weight in weighed:
        words = _words(text)
        for word in words:
            weights[word] = weights.get(word, 0.0) + weight / len(words)
    return weights


def _all_words(chain: Iterable[list[str]]) -> str:
    return " ".join(part for unit in chain for part in unit[:-1])


def _contains(text: str, answer: str) -> bool:
    normalized = _normalize(answer)
    return bool(normalized) and f" {normalized} " in f" {_normalize(text)} "


def _normalize(text: str) -> str:
    return " ".join(WORD.findall(text.casefold()))


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.casefold()))

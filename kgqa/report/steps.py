"""Quote the sentences of a user's documents that support an answer, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kgqa.artifacts.predictions import Quotation
from kgqa.artifacts.trace import TracedQuestion
from kgqa.datasets.documents import Documents
from kgqa.types import Passage
from kgqa.util.sentences import sentences

MAX_PASSAGES = 5  # quoted for a method without chains
WORD = re.compile(r"\w+")
NEEDS_NO_TEXT = (["yes"], ["no"])  # answers that do not have to be in a text


def quote_steps(traced: TracedQuestion, documents: Documents) -> tuple[Quotation, ...]:
    """Return a quotation per unit of the `leading_chain`.

    If no quoted sentence contains the answer, the sentence of the evidence with the answer that shares most words with
    the question is added. Without chains, passages of the evidence are quoted.
    """
    passages = {passage.id: passage for passage in (*documents.collection, *traced.question.passages)}
    question, answer = traced.question.text, traced.prediction.answer or ""
    evidence = [passages[id_] for id_ in traced.prediction.evidence or () if id_ in passages]
    chain = leading_chain(traced)
    if not chain:
        words = _weigh_words((question, 1.0), (answer, 2.0))
        shown = evidence[:MAX_PASSAGES]
        return tuple(_quote(None, best_sentence(passage, words), passage, documents) for passage in shown)
    steps = tuple(_quote_unit(unit, passages[unit[-1]], documents) for unit in chain)
    parts = [(part, passage) for passage in evidence for part in _split_passage(passage) if _contains(part, answer)]
    if is_quoted(answer, steps) or not parts:
        return steps
    sentence, passage = max(parts, key=lambda each: len({*_words(question)} & {*_words(each[0])}))
    return (*steps, _quote(None, sentence, passage, documents))


def leading_chain(traced: TracedQuestion) -> Sequence[Sequence[str]]:
    """Return the units of the likeliest chain with the answer, or of the likeliest chain; () without chains.

    Chains are in the notes of the method. A unit is a triple, a sentence or a document, and the id of its passage.
    """
    chains = [chain["triples"] for chain in traced.notes.get("chains", ()) if chain["triples"]]
    texts = (" ".join(part for unit in chain for part in unit[:-1]) for chain in chains)
    answer = traced.prediction.answer or ""
    holding = (chain for chain, text in zip(chains, texts, strict=True) if _contains(text, answer))
    return next(holding, chains[0] if chains else ())


def is_quoted(answer: str, steps: Iterable[Quotation]) -> bool:
    """Return whether a sentence contains the answer, ignoring case and punctuation. "Yes" and "no" always count."""
    return _words(answer) in NEEDS_NO_TEXT or any(_contains(step.sentence, answer) for step in steps)


def best_sentence(passage: Passage, words: Mapping[str, float]) -> str:
    """Return the sentence (or row of a table) with the largest sum of word weights, the first of equals."""
    return max(
        _split_passage(passage),
        key=lambda part: sum(words.get(word, 0.0) for word in {*_words(part)}),
        default=passage.text,
    )


def _split_passage(passage: Passage) -> list[str]:
    if passage.place.startswith("table"):
        return passage.text.splitlines()
    return [part for block in re.split(r"\n\s*\n", passage.text) for part in sentences(block)]


def _quote_unit(unit: Sequence[str], passage: Passage, documents: Documents) -> Quotation:
    """Quote the sentence for a unit of a chain."""
    *parts, _ = unit
    # the tail is new, the head is often known from the step before, and the relation is in the words of the model
    weights = (1.0, 0.5, 2.0) if len(parts) == 3 else (1.0,)
    sentence = best_sentence(passage, _weigh_words(*zip(parts, weights, strict=True)))
    return _quote(tuple(parts) if len(parts) == 3 else None, sentence, passage, documents)


def _quote(triple: tuple[str, ...] | None, sentence: str, passage: Passage, documents: Documents) -> Quotation:
    where = documents.where(passage, sentence)
    return Quotation(
        triple=triple,
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
        words = {*_words(text)}
        for word in words:
            weights[word] = weights.get(word, 0.0) + weight / len(words)
    return weights


def _contains(text: str, answer: str) -> bool:
    wanted = " ".join(_words(answer))
    return bool(wanted) and f" {wanted} " in f" {' '.join(_words(text))} "


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())

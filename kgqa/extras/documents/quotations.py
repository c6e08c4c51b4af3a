"""Quote the sentences of a user's documents that support an answer, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kgqa.artifacts.trace import TracedQuestion, leading_chain
from kgqa.extras.documents.documents import Documents
from kgqa.report.explorer import Quotation
from kgqa.types import Passage
from kgqa.util.sentences import sentences
from kgqa.util.text import contains_words, find_words

# quoted for a method without chains
MAX_PASSAGES = 5
# between blocks: an empty line, or the line of a Markdown heading, which is a block
BLOCKS = re.compile(r"\n\s*\n|^(#{1,6} .*)\n", re.MULTILINE)
# answers that do not have to be in a text
NEEDS_NO_TEXT = (["yes"], ["no"])


def quote_steps(traced: TracedQuestion, documents: Documents) -> tuple[Quotation, ...]:
    """Return a quotation per unit of the `leading_chain`.

    If no quoted sentence contains the answer, the sentence of the evidence with the answer that shares most words with
    the question is added. Without chains, passages of the evidence are quoted.
    """
    passages = {
        passage.id: passage for passage in (*documents.collection, *traced.question.passages)
    }
    question, answer = traced.question.text, traced.prediction.answer or ""
    evidence = [passages[id_] for id_ in traced.prediction.evidence or () if id_ in passages]
    chain = leading_chain(traced)
    if not chain:
        words = _weighfind_words((question, 1.0), (answer, 2.0))
        cited = evidence[:MAX_PASSAGES]
        return tuple(
            _quote(None, best_sentence(passage, words), passage, documents) for passage in cited
        )
    steps = tuple(_quote_unit(unit, passages[unit[-1]], documents) for unit in chain)
    parts = [
        (part, passage)
        for passage in evidence
        for part in _split_passage(passage)
        if contains_words(part, answer)
    ]
    if is_quoted(answer, steps) or not parts:
        return steps
    sentence, passage = max(
        parts, key=lambda each: len({*find_words(question)} & {*find_words(each[0])})
    )
    return (*steps, _quote(None, sentence, passage, documents))


def is_quoted(answer: str, steps: Iterable[Quotation]) -> bool:
    """Return whether a sentence contains the answer, ignoring case and punctuation. "Yes" and "no" always count."""
    return find_words(answer) in NEEDS_NO_TEXT or any(
        contains_words(step.sentence, answer) for step in steps
    )


def best_sentence(passage: Passage, words: Mapping[str, float]) -> str:
    """Return the sentence (or row of a table) with the largest sum of word weights, the first of equals."""
    return max(
        _split_passage(passage),
        key=lambda part: sum(words.get(word, 0.0) for word in {*find_words(part)}),
        default=passage.text,
    )


def _split_passage(passage: Passage) -> list[str]:
    if passage.place.startswith("table"):
        return passage.text.splitlines()
    blocks = filter(None, BLOCKS.split(passage.text))
    return [part for block in blocks for part in sentences(block)]


def _quote_unit(unit: Sequence[str], passage: Passage, documents: Documents) -> Quotation:
    """Quote the sentence for a unit of a chain."""
    *parts, _ = unit
    # the tail is new, the head is often known from the step before, and the relation is in the words of the model
    weights = (1.0, 0.5, 2.0) if len(parts) == 3 else (1.0,)
    sentence = best_sentence(passage, _weighfind_words(*zip(parts, weights, strict=True)))
    return _quote(tuple(parts) if len(parts) == 3 else None, sentence, passage, documents)


def _quote(
    triple: tuple[str, ...] | None, sentence: str, passage: Passage, documents: Documents
) -> Quotation:
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


def _weighfind_words(*weighed: tuple[str, float]) -> Mapping[str, float]:
    """Return the weight of each word: the weight of a text is shared equally by its words."""
    weights: dict[str, float] = {}
    for text, weight in weighed:
        words = {*find_words(text)}
        for word in words:
            weights[word] = weights.get(word, 0.0) + weight / len(words)
    return weights

"""The steps that led to an answer, each with the sentence of a document that says it and the place of that sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kgqa.artefacts.asked import Step
from kgqa.artefacts.trace import TracedQuestion
from kgqa.datasets.documents import Documents
from kgqa.methods.steps.sentences import sentences
from kgqa.types import Passage

MOST = 5  # passages quoted of a method that makes no chains
WORD = re.compile(r"\w+")
SAID_BY_ITSELF = ("yes", "no")  # answers that need not stand in a text


def steps_of(traced: TracedQuestion, documents: Documents) -> tuple[Step, ...]:
    """Of the likeliest chain that holds the answer, else of the likeliest; of the best passages where there is none.

    A chain is the notes' of a method that makes them; only chains that hold a triple or a sentence count. Where none of
    its sentences says the answer, the sentence of a passage of the evidence that does is the last step.
    """
    passages = {passage.id: passage for passage in (*documents.collection, *traced.question.passages)}
    answer = traced.prediction.answer or ""
    chains = [chain["triples"] for chain in traced.notes.get("chains", ()) if chain["triples"]]
    if not chains:
        words = _weights((traced.question.text, 1.0), (answer, 2.0))
        evidence = [passages[id_] for id_ in traced.prediction.evidence or () if id_ in passages]
        return tuple(_step((), words, passage, documents) for passage in evidence[:MOST])
    chosen: list[list[str]] = next((chain for chain in chains if _holds(_all_words(chain), answer)), chains[0])
    steps = tuple(_link(unit, passages[unit[-1]], documents) for unit in chosen)
    if stands_in(answer, steps):
        return steps
    evidence = [passages[id_] for id_ in traced.prediction.evidence or () if id_ in passages]
    return (*steps, *_saying(answer, traced.question.text, evidence, documents))


def _saying(answer: str, question: str, evidence: Iterable[Passage], documents: Documents) -> tuple[Step, ...]:
    """The sentence that holds the answer, and of several the one that shares most words with the question, if any."""
    words = _words(question)
    holding = [(part, passage) for passage in evidence for part in _parts(passage) if _holds(part, answer)]
    if not holding:
        return ()
    sentence, passage = max(holding, key=lambda each: len(words & _words(each[0])))
    return (_quoting((), sentence, passage, documents),)


def stands_in(answer: str, steps: Iterable[Step]) -> bool:
    """Whether a quoted sentence says the answer, word for word but for case and punctuation; yes and no always do."""
    return _folded(answer) in SAID_BY_ITSELF or any(_holds(step.sentence, answer) for step in steps)


def quoted(passage: Passage, words: Mapping[str, float]) -> str:
    """The sentence, or the row of a table, whose words weigh most; the first of equals, a blank line ends one too."""
    return max(
        _parts(passage), key=lambda part: sum(words.get(word, 0.0) for word in _words(part)), default=passage.text
    )


def _parts(passage: Passage) -> list[str]:
    if passage.place.startswith("table"):
        return passage.text.splitlines()
    return [part for block in re.split(r"\n\s*\n", passage.text) for part in sentences(block)]


def _link(unit: list[str], passage: Passage, documents: Documents) -> Step:
    """Of a chain: a triple and where it is from, or a sentence or document and where it is from."""
    *parts, _ = unit
    triple = tuple(parts) if len(parts) == 3 else ()
    # the tail is what is new, the head is often known from before, and the relation is in the model's own words
    weights = (1.0, 0.5, 2.0) if triple else (1.0,)
    return _step(triple, _weights(*zip(parts, weights, strict=True)), passage, documents)


def _step(triple: tuple[str, ...], words: Mapping[str, float], passage: Passage, documents: Documents) -> Step:
    return _quoting(triple, quoted(passage, words), passage, documents)


def _quoting(triple: tuple[str, ...], sentence: str, passage: Passage, documents: Documents) -> Step:
    where = documents.where(passage, sentence)
    return Step(
        triple=triple or None,
        sentence=sentence,
        file=str(where.file) if where else None,
        page=(where.page or None) if where else None,
        line=where.line if where else None,
        title=passage.title,
        passage=passage.id,
        where=str(where) if where else passage.title,
    )


def _weights(*weighed: tuple[str, float]) -> Mapping[str, float]:
    """Each text's weight, shared out among its words."""
    weights: dict[str, float] = {}
    for text, weight in weighed:
        words = _words(text)
        for word in words:
            weights[word] = weights.get(word, 0.0) + weight / len(words)
    return weights


def _all_words(chain: Iterable[list[str]]) -> str:
    return " ".join(part for unit in chain for part in unit[:-1])


def _holds(text: str, answer: str) -> bool:
    folded = _folded(answer)
    return bool(folded) and f" {folded} " in f" {_folded(text)} "


def _folded(text: str) -> str:
    return " ".join(WORD.findall(text.casefold()))


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.casefold()))

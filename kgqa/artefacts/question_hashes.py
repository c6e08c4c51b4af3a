"""Which questions something was trained on, as hashes: an artefact's manifest says so without holding the questions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kgqa.storage import text_digest
from kgqa.types import Question

DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionHashes:
    """Sorted. ids: of the data set's name with the question's id; texts: of its words, case and blanks apart."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, questions: Iterable[tuple[str, Question]]) -> QuestionHashes:
        """Of questions, each with the name of its data set."""
        listed = list(questions)
        ids = {id_hash(dataset, question.id) for dataset, question in listed}
        return cls(ids=tuple(sorted(ids)), texts=tuple(sorted({text_hash(question.text) for _, question in listed})))


def id_hash(dataset: str, question_id: str) -> str:
    return text_digest(f"{dataset}\n{question_id}", DIGITS)


def text_hash(text: str) -> str:
    """Benchmarks take questions over from each other under other ids: the words are what is the same."""
    return text_digest(" ".join(text.casefold().split()), DIGITS)

"""Change the evidence of questions, to see whether an answer follows it or the model's own knowledge."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kgqa.errors import ConfigError, DataError, nearest
from kgqa.scoring.normalization import normalize
from kgqa.types import Passage, Question
from kgqa.util.digests import text_digest

KINDS = ("remove_gold", "distractors", "swap_answer", "other_answer", "shuffle")
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DATE = re.compile(rf"\b({_MONTHS})\b.*\d|\d.*\b({_MONTHS})\b", re.IGNORECASE)
_WH = re.compile(r"\b(who|whom|whose|where|when|which|what|how)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Perturbation:
    """A change of a question, or of the passages that come with it.

    kind: remove_gold leaves only the passages that are not gold. distractors adds `count` passages of other questions
    at random places. swap_answer replaces the gold answer in all passages by the answer of another question, which then
    is the gold answer. other_answer only replaces the gold answer, by that of the next question with another one, so
    that the passages do not support it. shuffle changes the order.
    """

    kind: str
    count: int = 0

    @classmethod
    def of(cls, text: object) -> Perturbation:
        """Read the value of `dataset.perturb`. Raises ConfigError if it is no perturbation."""
        kind, _, count = str(text).partition(":")
        if kind not in KINDS:
            raise ConfigError(
                f"dataset.perturb={text}: no such perturbation. {nearest(kind, KINDS)}"
            )
        if (kind == "distractors") != bool(count) or (
            count and (not count.isdecimal() or int(count) < 1)
        ):
            form = "distractors:K with the number of passages, such as distractors:10"
            raise ConfigError(
                f"dataset.perturb={text}: expected {form if kind == 'distractors' else kind}"
            )
        return cls(kind, int(count or 0))

    def apply(
        self, questions: Sequence[Question], pool: Sequence[Question], seed: int
    ) -> list[Question]:
        """Return the changed questions. swap_answer skips those without a swappable answer.

        pool: the questions that passages and answers are taken from.

        Raises DataError: no question can be changed.
        """
        changes: dict[str, Callable[[Question], Question | None]] = {
            "remove_gold": _remove_gold,
            "distractors": partial(
                _add_distractors, pool=_passages(pool), count=self.count, seed=seed
            ),
            "swap_answer": partial(_swap_answer, pool=pool, seed=seed),
            "other_answer": partial(
                _use_other_answer, pool=pool, places={each.id: n for n, each in enumerate(pool)}
            ),
            "shuffle": partial(_shuffle, seed=seed),
        }
        changed = [
            new for question in questions if (new := changes[self.kind](question)) is not None
        ]
        if not changed:
            raise DataError(
                f"dataset.perturb={self.kind}: no question has passages or answers that it can change"
            )
        return changed


def _passages(questions: Iterable[Question]) -> list[Passage]:
    return list(dict.fromkeys(passage for question in questions for passage in question.passages))


def _order(seed: int, question: Question, id_: str) -> str:
    return text_digest(f"{seed} {question.id} {id_}")


def _remove_gold(question: Question) -> Question | None:
    passages = tuple(each for each in question.passages if each.id not in question.support)
    return replace(question, passages=passages) if question.passages else None


def _shuffle(question: Question, *, seed: int) -> Question | None:
    ordered = sorted(question.passages, key=lambda passage: _order(seed, question, passage.id))
    return replace(question, passages=tuple(ordered)) if question.passages else None


def _add_distractors(
    question: Question, *, pool: Sequence[Passage], count: int, seed: int
) -> Question | None:
    """Add passages with other titles, in which no gold answer occurs."""
    titles = {passage.title for passage in question.passages}
    golds = [f" {gold} " for gold in map(normalize, question.answers) if gold]
    others = (
        passage
        for passage in sorted(pool, key=lambda passage: _order(seed, question, passage.id))
        if passage.title not in titles
        and not any(gold in f" {normalize(passage.text)} " for gold in golds)
    )
    added = [passage for passage, _ in zip(others, range(count), strict=False)]
    return _shuffle(replace(question, passages=(*question.passages, *added)), seed=seed)


def _swap_answer(question: Question, *, pool: Sequence[Question], seed: int) -> Question | None:
    """Replace the gold answer in all passages. None: it is yes, no or in no gold passage, or there is no other one."""
    answer = question.answers[0] if question.answers else ""
    pattern = _pattern(question.answers)
    gold = [passage for passage in question.passages if passage.id in question.support]
    if pattern is None or not any(
        pattern.search(f"{passage.title}\n{passage.text}") for passage in gold
    ):
        return None
    text = normalize(" ".join(f"{passage.title} {passage.text}" for passage in question.passages))
    kind = _kind(question)
    others = (other for other in pool if other.answers and _kind(other) == kind)
    answers = (
        other.answers[0]
        for other in sorted(others, key=lambda other: _order(seed, question, other.id))
    )
    new = next((other for other in answers if f" {normalize(other)} " not in f" {text} "), None)
    if new is None or normalize(new) == normalize(answer):
        return None
    changed = {passage.id: _replace(passage, pattern, new) for passage in question.passages}
    ids = {id_: passage.id for id_, passage in changed.items()}
    return replace(
        question,
        answers=(new,),
        passages=tuple(changed[passage.id] for passage in question.passages),
        support=frozenset(ids.get(id_, id_) for id_ in question.support),
        decomposition=(),
        facts=tuple(
            (ids.get(id_, id_), pattern.sub(lambda _: new, fact)) for id_, fact in question.facts
        ),
    )


def _use_other_answer(
    question: Question, *, pool: Sequence[Question], places: Mapping[str, int]
) -> Question | None:
    """Use the first gold answer of the next question with another one. The last question continues with the first."""
    own, place = {normalize(answer) for answer in question.answers}, places[question.id]
    others = (pool[index % len(pool)].answers for index in range(place + 1, place + len(pool)))
    other = next(
        (answers[0] for answers in others if answers and normalize(answers[0]) not in own), None
    )
    return None if other is None else replace(question, answers=(other,))


def _pattern(answers: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern for the answer and its aliases, longest first. None: yes, no, or nothing to search."""
    texts = sorted(
        {answer for answer in answers if len(normalize(answer)) > 1}, key=len, reverse=True
    )
    if not texts or normalize(answers[0]) in ("yes", "no"):
        return None
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, texts))})(?!\w)", re.IGNORECASE)


def _replace(passage: Passage, pattern: re.Pattern[str], new: str) -> Passage:
    title, text = (pattern.sub(lambda _: new, part) for part in (passage.title, passage.text))
    if (title, text) == (passage.title, passage.text):
        return passage
    return Passage.of(
        title,
        text,
        tuple(pattern.sub(lambda _: new, each) for each in passage.sentences),
        passage.place,
    )


def _kind(question: Question) -> tuple[str, str]:
    """Return the form of the answer and the first wh-word of the question: answers of equal kind can be swapped."""
    answer = question.answers[0]
    if normalize(answer) in ("yes", "no"):
        form = "yes or no"
    elif re.fullmatch(r"\d{4}", answer.strip()):
        form = "year"
    elif _DATE.search(answer):
        form = "date"
    elif any(letter.isdigit() for letter in answer):
        form = "number"
    else:
        form = "name" if answer[:1].isupper() else "text"
    match = _WH.search(question.text)
    word = match[0].lower() if match else ""
    return form, {"whom": "who", "whose": "who"}.get(word, word) if form in ("name", "text") else ""

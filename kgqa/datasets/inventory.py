"""Counts what is in a data set's files, and what is odd about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kgqa.datasets.hotpotqa import MISSING
from kgqa.types import Passage, Question


@dataclass
class GoldPassages:
    """The gold passages of the questions, to be looked up in the corpus."""

    ids: set[str] = field(default_factory=set)
    titles: set[str] = field(default_factory=set)


def count_questions(questions: Iterable[Question | None]) -> tuple[Mapping[str, int], GoldPassages]:
    """Return counts by what is counted, in the order they are to be shown; odd things appear only where there are any.

    None stands for a question that was left out.
    """
    always: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    gold = GoldPassages()
    for question in questions:
        if question is None:
            odd["left out, having no answer"] += 1
            continue
        always["questions"] += 1
        always["gold answers, aliases included"] += len(question.answers)
        always["questions with aliases"] += len(question.answers) > 1
        always["passages given"] += len(question.passages)
        always["passages pinned"] += len(question.pinned)
        always["gold passages"] += len(question.support) or len(question.support_titles)
        always["gold passages among those given"] += len(question.support & {p.id for p in question.passages})
        kinds[f"questions of {question.hops} hops" if question.hops else "questions of unknown hops"] += 1
        kinds[f"questions of type {question.type}" if question.type else "questions of no type"] += 1
        odd.update(_odd(question))
        gold.ids |= question.support
        gold.titles |= {_plain(title) for title in question.support_titles}
    return {**always, **dict(sorted(kinds.items())), **odd}, gold


def count_passages(passages: Iterable[Passage], gold: GoldPassages) -> Mapping[str, int]:
    """Of the corpus as it lies in its files, repeated passages included."""
    always: Counter[str] = Counter({"passages in the corpus": 0, "of them distinct": 0, "distinct titles": 0})
    odd: Counter[str] = Counter()
    ids: set[int] = set()
    titles: set[int] = set()
    for passage in passages:
        always["passages in the corpus"] += 1
        number, title = int(passage.id, 16), hash(_plain(passage.title))
        if number in ids:
            odd["repeated passages, kept once"] += 1
            continue
        ids.add(number)
        titles.add(title)
        odd["passages without text"] += not passage.text.strip()
        odd["passages without title"] += not passage.title.strip()
    always["of them distinct"], always["distinct titles"] = len(ids), len(titles)
    wanted = {gold_id for gold_id in gold.ids if not gold_id.startswith(MISSING)}
    always["gold passages of the questions"] = len(gold.ids)
    always["of them in the corpus"] = sum(int(gold_id, 16) in ids for gold_id in wanted)
    always["gold titles of the questions"] = len(gold.titles)
    always["of these titles in the corpus"] = sum(hash(title) in titles for title in gold.titles)
    return {**always, **{name: count for name, count in odd.items() if count}}


def _odd(question: Question) -> Counter[str]:
    ids = Counter(passage.id for passage in question.passages)
    titles = Counter(passage.title for passage in question.passages)
    return +Counter(
        {
            "questions without passages": not question.passages,
            "questions without gold passages": not (question.support or question.support_titles),
            "gold passages that are not given": sum(gold_id.startswith(MISSING) for gold_id in question.support),
            "passages given twice to a question": sum(count - 1 for count in ids.values()),
            "further passages of a title given to a question": sum(count - 1 for count in titles.values()),
            "passages given without text": sum(not passage.text.strip() for passage in question.passages),
            "passages given without title": sum(not passage.title.strip() for passage in question.passages),
        }
    )


def _plain(title: str) -> str:
    return " ".join(title.casefold().split())

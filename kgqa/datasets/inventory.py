"""Count the contents of a dataset's files, and unusual ones, for `kgqa data check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kgqa.datasets.hotpotqa import MISSING
from kgqa.types import Passage, Question


class GoldPassages(NamedTuple):
    """Ids and titles of the questions' gold passages, to look for in the corpus."""

    ids: set[str]
    titles: set[str]


def count_questions(questions: Iterable[Question | None]) -> tuple[Mapping[str, int], GoldPassages]:
    """Return counts by their names, in the order to show them, and the gold passages. None: a skipped question."""
    always: Counter[str] = Counter()
    unusual: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    gold = GoldPassages(set(), set())
    for question in questions:
        if question is None:
            unusual["skipped: no answer"] += 1
            continue
        ids = {passage.id for passage in question.passages}
        always["questions"] += 1
        always["gold answers, aliases included"] += len(question.answers)
        always["questions with aliases"] += len(question.answers) > 1
        always["passages given"] += len(question.passages)
        always["passages pinned"] += len(question.pinned)
        always["gold passages"] += len(question.support) or len(question.support_titles)
        always["gold passages among those given"] += len(question.support & ids)
        kinds[
            f"questions of {question.hops} hops" if question.hops else "questions of unknown hops"
        ] += 1
        kinds[
            f"questions of type {question.type}" if question.type else "questions of no type"
        ] += 1
        unusual["questions without passages"] += not question.passages
        unusual["questions without gold passages"] += not (
            question.support or question.support_titles
        )
        unusual["gold passages that are not given"] += sum(
            id_.startswith(MISSING) for id_ in question.support
        )
        unusual["passages given twice to a question"] += len(question.passages) - len(ids)
        unusual["passages given without text"] += sum(
            not passage.text.strip() for passage in question.passages
        )
        gold.ids.update(question.support)
        gold.titles.update(map(_plain, question.support_titles))
    return {**always, **dict(sorted(kinds.items())), **+unusual}, gold


def count_passages(passages: Iterable[Passage], gold: GoldPassages) -> Mapping[str, int]:
    """Return counts of the corpus with its repeated passages."""
    count = textless = 0
    # hashes, because a corpus has millions
    ids: set[int] = set()
    titles: set[int] = set()
    for count, passage in enumerate(passages, start=1):  # noqa: B007 - the last number is the count
        number = hash(passage.id)
        if number not in ids:
            ids.add(number)
            titles.add(hash(_plain(passage.title)))
            textless += not passage.text.strip()
    unusual = Counter(
        {"repeated passages (stored once)": count - len(ids), "passages without text": textless}
    )
    return {
        "passages in the corpus": count,
        "of them distinct": len(ids),
        "distinct titles": len(titles),
        "gold passages of the questions": len(gold.ids),
        "of them in the corpus": sum(hash(id_) in ids for id_ in gold.ids),
        "gold titles of the questions": len(gold.titles),
        "of these titles in the corpus": sum(hash(title) in titles for title in gold.titles),
        **+unusual,
    }


def _plain(title: str) -> str:
    return " ".join(title.casefold().split())

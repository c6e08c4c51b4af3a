"""Measure the retrieval of gold passages: recall within k, all-gold rate, reciprocal rank.

Gold passages are matched by id. If the corpus does not contain the id (another dump of Wikipedia, other whitespace, a
quotation), the paragraph with the same title that shares the most words is the gold one, as in IRCoT's released program
for IIRC. If a file has only titles, any passage with the title counts, for one gold passage.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from kgqa.artifacts.metrics import Estimate, Retrieval
from kgqa.scoring.intervals import estimate, mean, percent
from kgqa.scoring.summary import group_scores
from kgqa.types import Passage, Question

# the passages of the corpus with a title
Page = Callable[[str], Sequence[Passage]]
BUDGETS = (2, 5, 10, 15)
# passages: IRCoT §4.1, "fixed-budget optimal recall"
BUDGET = 15
# [ours] questions with the same passages in the same order
ALARM_SHARE, ALARM_COUNT = 0.2, 5


@dataclass(frozen=True, slots=True)
class GoldPassage:
    """A gold passage: one of these ids, or without ids any passage with the title."""

    ids: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class RetrievedPassages:
    """The passages retrieved for a question in order, and the ranks of gold passages."""

    ids: tuple[str, ...]
    # of each gold passage, from 1; None: not retrieved
    gold_ranks: tuple[int | None, ...]
    # of the first passage of each gold page
    page_ranks: tuple[int | None, ...]
    hops: int | None
    type: str
    # of each gold passage among these and the passages under retrieved summaries; None: there are no summaries
    leaf_ranks: tuple[int | None, ...] | None = None
    # None: the retriever does not start from entities
    has_entities: bool | None = None


def gold_passages(question: Question, page: Page) -> tuple[GoldPassage, ...]:
    """Return the gold passages to retrieve, without pinned ones and duplicates in the corpus."""
    pinned = {passage.id for passage in question.pinned}
    pinned_titles = {normalize_title(passage.title) for passage in question.pinned}
    support = [passage for passage in question.passages if passage.id in question.support - pinned]
    quoted = [
        passage
        for passage in question.quoted
        if normalize_title(passage.title) not in pinned_titles
    ]
    gold: dict[str, GoldPassage] = {}
    for passage in (*support, *quoted):
        match = find_in_page(passage, page(passage.title))
        gold.setdefault(match.id, GoldPassage((passage.id, match.id), passage.title))
    titles = pinned_titles | {normalize_title(passage.title) for passage in gold.values()}
    further = sorted(
        title for title in question.support_titles if normalize_title(title) not in titles
    )
    return (*gold.values(), *(GoldPassage((), title) for title in further))


def find_in_page(passage: Passage, paragraphs: Sequence[Passage]) -> Passage:
    """Return the first paragraph of the page that shares the most words with the passage.

    Return the passage itself if the page contains its id or has no paragraphs.
    """
    if not paragraphs or any(paragraph.id == passage.id for paragraph in paragraphs):
        return passage
    wanted = _words(passage)

    def overlap(paragraph: Passage) -> tuple[bool, int]:
        words = _words(paragraph)
        return " ".join(wanted) in " ".join(words), (Counter(wanted) & Counter(words)).total()

    return max(paragraphs, key=overlap)


def gold_pages(gold: Iterable[GoldPassage]) -> tuple[GoldPassage, ...]:
    """Return the distinct pages of gold passages. Any passage of a page counts as the page."""
    return tuple(
        GoldPassage((), title)
        for title in {normalize_title(each.title): each.title for each in gold}.values()
    )


def gold_ranks(
    gold: Sequence[GoldPassage], ids: Sequence[str], titles: Sequence[str]
) -> tuple[int | None, ...]:
    """Return the rank of each gold passage among the retrieved passages, from 1, or None if it is missing.

    Ids are matched first. A gold passage without ids then takes the first remaining passage with its title.
    """
    first = {id_: rank for rank, id_ in reversed(list(enumerate(ids, start=1)))}
    ranks = [
        min((first[id_] for id_ in wanted.ids if id_ in first), default=None) for wanted in gold
    ]
    free = {
        rank: normalize_title(title)
        for rank, title in enumerate(titles, start=1)
        if rank not in ranks
    }
    for number, wanted in enumerate(gold):
        if not wanted.ids:
            title = normalize_title(wanted.title)
            ranks[number] = next((rank for rank, other in free.items() if other == title), None)
            free.pop(ranks[number] or 0, None)
    return tuple(ranks)


def recall(ranks: Sequence[int | None], budget: int) -> float | None:
    """Return the share of gold passages in the first `budget` passages (IRCoT §4.1), or None without gold passages."""
    return sum(_within(ranks, budget)) / len(ranks) if ranks else None


def all_gold(ranks: Sequence[int | None], budget: int) -> float | None:
    """Return 1 if the first `budget` passages contain all gold passages, else 0, or None without gold passages."""
    return float(all(_within(ranks, budget))) if ranks else None


def reciprocal_rank(ranks: Sequence[int | None]) -> float | None:
    """Return 1 / rank of the first gold passage, 0 if none was retrieved, or None without gold passages."""
    return max((1 / rank for rank in ranks if rank), default=0.0) if ranks else None


def summarise_retrieval(rows: Sequence[RetrievedPassages], *, ranked: bool) -> Retrieval:
    """Return means in percent over the `n` questions with known gold passages. No passages count as 0.

    rows: of the questions that did not fail.
    ranked: whether the passages are ordered by relevance. Those of several searches are not: only their recall within
    the fixed budget has a clear meaning.

    Raises ValueError: no rows.
    """
    if not rows:
        raise ValueError("no questions to summarize")
    leaves = [row.leaf_ranks for row in rows if row.leaf_ranks is not None]
    known = [row.has_entities for row in rows]
    ranks, pages = [row.gold_ranks for row in rows], [row.page_ranks for row in rows]
    return Retrieval(
        n=sum(map(bool, ranks)),
        ranked=ranked,
        recall=_recalls(ranks),
        page_recall=_recalls(pages) if pages != ranks else None,
        all_gold={
            str(budget): percent(all_gold(each, budget) for each in ranks) for budget in BUDGETS
        },
        leaf_recall=percent(recall(each, sys.maxsize) for each in leaves) if leaves else None,
        without_entities=None if None in known else known.count(False),
        fixed_budget_recall=percent(recall(each, BUDGET) for each in ranks),
        mrr=percent(map(reciprocal_rank, ranks)) if ranked else None,
        passages_per_question=mean(len(row.ids) for row in rows),
        most_passages=max(len(row.ids) for row in rows),
        without_passages=sum(not row.ids for row in rows),
        by_hops=group_scores(rows, lambda row: row.hops, _RECALLS, percent),
        by_type=group_scores(rows, lambda row: row.type, _RECALLS, percent),
        alarm=same_passages_alarm(rows),
    )


def same_passages_alarm(rows: Sequence[RetrievedPassages]) -> str | None:
    """Return a warning if many questions have the same passages, otherwise None."""
    alike = Counter(row.ids for row in rows if row.ids).most_common(1)
    count = alike[0][1] if alike else 0
    if count <= ALARM_COUNT or count <= ALARM_SHARE * len(rows):
        return None
    return (
        f"{count} of {len(rows)} questions got the same passages in the same order. "
        "Check that the query reaches the retriever"
    )


def normalize_title(title: str) -> str:
    """Return a title in lower case with single spaces in place of underscores and whitespace."""
    return " ".join(title.replace("_", " ").split()).casefold()


def _words(passage: Passage) -> list[str]:
    return re.findall(r"\w+", passage.text.casefold())


def _recalls(ranks: Sequence[Sequence[int | None]]) -> dict[str, Estimate]:
    return {str(budget): estimate(recall(each, budget) for each in ranks) for budget in BUDGETS}


def _recall_of(budget: int, row: RetrievedPassages) -> float | None:
    return recall(row.gold_ranks, budget)


_RECALLS = {str(budget): partial(_recall_of, budget) for budget in BUDGETS}


def _within(ranks: Sequence[int | None], budget: int) -> list[bool]:
    return [rank is not None and rank <= budget for rank in ranks]

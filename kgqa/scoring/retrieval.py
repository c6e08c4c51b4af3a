"""Measure the retrieval of gold passages: recall within k, all-gold rate, reciprocal rank.

A gold passage is found by its id. Where the corpus searched does not hold that id — another dump of Wikipedia, other
blanks, a file that quotes its gold passages — the paragraph of the same title that says most of it is the gold one, as
IRCoT's released program decides for IIRC: another paragraph of the right page never counts. Only of a file that gives
titles alone any passage of the title finds the gold one, and one passage finds one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kgqa.artifacts.metrics import Estimate, Retrieval
from kgqa.scoring.intervals import estimate, mean, percent
from kgqa.scoring.summary import group_rows
from kgqa.types import Passage, Question

Page = Callable[[str], Sequence[Passage]]  # the passages of a title in the corpus searched, if there is one
BUDGETS = (2, 5, 10, 15)
BUDGET = 15  # passages every retriever may return: IRCoT §4.1, "fixed-budget optimal recall"
ALARM_SHARE, ALARM_COUNT = 0.2, 5  # more questions than both with the same passages in the same order: not in a paper


@dataclass(frozen=True, slots=True)
class GoldPassage:
    """A gold passage: one of these ids, or without ids any passage with the title."""

    ids: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class RetrievedPassages:
    """The passages retrieved for one question, best or first first, and the places of the gold passages."""

    ids: tuple[str, ...]
    gold_places: tuple[int | None, ...]  # of each gold passage, from 1; None: not retrieved
    page_places: tuple[int | None, ...]  # of the first passage of each gold page
    hops: int | None
    type: str


def gold_passages(question: Question, page: Page) -> tuple[GoldPassage, ...]:
    """Return the question's support; pinned passages are given, so they are none. Two that are one in the corpus are
    one.
    """
    pinned = {passage.id for passage in question.pinned}
    given = {plain(passage.title) for passage in question.pinned}
    support = [passage for passage in question.passages if passage.id in question.support - pinned]
    quoted = [passage for passage in question.quoted if plain(passage.title) not in given]
    gold: dict[str, GoldPassage] = {}
    for passage in (*support, *quoted):
        held = passage_held(passage, page(passage.title))
        gold.setdefault(held.id, GoldPassage((passage.id, held.id), passage.title))
    known = given | {plain(passage.title) for passage in gold.values()}
    further = sorted(title for title in question.support_titles if plain(title) not in known)
    return (*gold.values(), *(GoldPassage((), title) for title in further))


def passage_held(passage: Passage, paragraphs: Sequence[Passage]) -> Passage:
    """Return the passage, where it is one of its page's paragraphs; else the one that says most of its words, the
    first of
    equals; itself where the page has none."""
    if not paragraphs or any(paragraph.id == passage.id for paragraph in paragraphs):
        return passage
    wanted = _words(passage)

    def said(paragraph: Passage) -> tuple[bool, int]:
        words = _words(paragraph)
        return " ".join(wanted) in " ".join(words), (Counter(wanted) & Counter(words)).total()

    return max(paragraphs, key=said)


def gold_pages(gold: Iterable[GoldPassage]) -> tuple[GoldPassage, ...]:
    """Return their pages, each once: any passage of it finds a page."""
    return tuple(GoldPassage((), title) for title in {plain(each.title): each.title for each in gold}.values())


def gold_places(gold: Sequence[GoldPassage], ids: Sequence[str], titles: Sequence[str]) -> tuple[int | None, ...]:
    """Return where each gold passage is among those retrieved, from 1; `titles` are theirs. None: nowhere.

    Ids are matched first; then each gold passage without takes the first free passage of its title.
    """
    first = {id_: place for place, id_ in reversed(list(enumerate(ids, start=1)))}
    places = [min((first[id_] for id_ in wanted.ids if id_ in first), default=None) for wanted in gold]
    free = {place: plain(title) for place, title in enumerate(titles, start=1) if place not in places}
    for number, wanted in enumerate(gold):
        if not wanted.ids:
            places[number] = next((place for place, title in free.items() if title == plain(wanted.title)), None)
            free.pop(places[number] or 0, None)
    return tuple(places)


def recall(places: Sequence[int | None], budget: int) -> float | None:
    """Return share of the gold passages among the first `budget` passages (IRCoT §4.1); None without gold passages."""
    return sum(_within(places, budget)) / len(places) if places else None


def all_gold(places: Sequence[int | None], budget: int) -> float | None:
    """Return 1 where every gold passage is among the first `budget` passages, else 0; None without gold passages."""
    return float(all(_within(places, budget))) if places else None


def reciprocal_rank(places: Sequence[int | None]) -> float | None:
    """Return 1 / place of the first gold passage, 0 where none was retrieved; None without gold passages."""
    return max((1 / place for place in places if place), default=0.0) if places else None


def summarise_retrieval(rows: Sequence[RetrievedPassages], *, ranked: bool, seed: int) -> Retrieval:
    """Return means in percent over the questions with known gold passages (`n`).

    A question for which nothing was retrieved counts 0. `ranked`: whether the passages are in an order of relevance;
    what several searches collected has none, so that only its recall within the fixed budget has a clear meaning.

    Raises:
        ValueError: no rows.
    """
    if not rows:
        raise ValueError("no questions to summarise")
    places, pages = [row.gold_places for row in rows], [row.page_places for row in rows]
    return Retrieval(
        n=sum(map(bool, places)),
        ranked=ranked,
        recall=_recalls(places, seed),
        page_recall=_recalls(pages, seed) if pages != places else None,
        all_gold={str(budget): percent([all_gold(ranks, budget) for ranks in places]) for budget in BUDGETS},
        fixed_budget_recall=percent([recall(ranks, BUDGET) for ranks in places]),
        mrr=percent([reciprocal_rank(ranks) for ranks in places]) if ranked else None,
        passages_per_question=mean([len(row.ids) for row in rows]),
        without_passages=sum(not row.ids for row in rows),
        by_hops=_breakdown(rows, lambda row: "" if row.hops is None else str(row.hops)),
        by_type=_breakdown(rows, lambda row: row.type),
        alarm=same_passages_alarm(rows),
    )


def same_passages_alarm(rows: Sequence[RetrievedPassages]) -> str | None:
    """Return a line for whoever reads the report, where suspiciously many questions got the same passages; else
    None.
    """
    alike = Counter(row.ids for row in rows if row.ids).most_common(1)
    count = alike[0][1] if alike else 0
    if count <= ALARM_COUNT or count <= ALARM_SHARE * len(rows):
        return None
    return f"{count} of {len(rows)} questions got the same passages in the same order: is the query lost on the way?"


def plain(title: str) -> str:
    """Return equal for titles that differ in case, underscores or blanks only."""
    return " ".join(title.replace("_", " ").split()).casefold()


def _words(passage: Passage) -> list[str]:
    return re.findall(r"\w+", passage.text.casefold())


def _recalls(places: Sequence[Sequence[int | None]], seed: int) -> dict[str, Estimate]:
    return {str(budget): estimate([recall(ranks, budget) for ranks in places], seed) for budget in BUDGETS}


def _within(places: Sequence[int | None], budget: int) -> list[bool]:
    return [place is not None and place <= budget for place in places]


def _breakdown(
    rows: Sequence[RetrievedPassages], group_of: Callable[[RetrievedPassages], str]
) -> dict[str, dict[str, float | None]]:
    recalls = {}
    for name, grouped in group_rows(rows, group_of).items():
        by_budget = {str(budget): percent([recall(row.gold_places, budget) for row in grouped]) for budget in BUDGETS}
        recalls[name] = {"n": len(grouped), **by_budget}
    return recalls

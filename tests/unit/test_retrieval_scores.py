"""Retrieval figures, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgqa.scoring.retrieval import (
    GoldPassage,
    Page,
    RetrievedPassages,
    all_gold,
    gold_pages,
    gold_passages,
    gold_ranks,
    normalise_title,
    recall,
    reciprocal_rank,
    same_passages_alarm,
    summarise_retrieval,
)
from kgqa.types import Passage, Question

ALDER, BIRCH = Passage.of("Alder", "Alder is a tree."), Passage.of("Birch", "Birch is white.")
OTHER_ALDER = Passage.of("Alder", "Alder is also a town.")  # MuSiQue: two paragraphs with one title
QUESTION = Question(
    "q", "?", ("a",), (ALDER, OTHER_ALDER, BIRCH), support=frozenset({ALDER.id, BIRCH.id}),
    support_titles=frozenset({"Alder", "Birch"}),
)  # fmt: skip
MORE_ALDER = Passage.of("alder", "The Alder is a tree of wet places.")


def corpus(*passages: Passage) -> Page:
    return lambda title: [passage for passage in passages if normalise_title(passage.title) == normalise_title(title)]


def row(*ids: str, places: tuple[int | None, ...] = (None,), hops: int | None = None) -> RetrievedPassages:
    return RetrievedPassages(ids, places, places, hops, "")


def test_gold_passages_of_a_corpus_that_holds_them_are_found_by_id_alone() -> None:
    gold = gold_passages(QUESTION, corpus(OTHER_ALDER, ALDER, BIRCH))
    assert gold_ranks(gold, (OTHER_ALDER.id, BIRCH.id), ("Alder", "Birch")) == (None, 2)


def test_without_a_corpus_the_gold_passages_are_the_questions_own() -> None:
    gold = gold_passages(QUESTION, corpus())
    assert gold_ranks(gold, (OTHER_ALDER.id, BIRCH.id), ("Alder", "Birch")) == (None, 2)


def test_in_another_dump_the_paragraph_that_says_most_of_it_is_the_gold_one() -> None:
    gold = gold_passages(QUESTION, corpus(OTHER_ALDER, MORE_ALDER, BIRCH))
    assert gold_ranks(gold, (OTHER_ALDER.id, BIRCH.id), ("Alder", "Birch")) == (None, 2)
    assert gold_ranks(gold, (OTHER_ALDER.id, MORE_ALDER.id), ("Alder", "alder")) == (2, None)


def test_two_gold_passages_that_are_one_in_the_corpus_are_one() -> None:
    both = replace(QUESTION, support=frozenset({ALDER.id, OTHER_ALDER.id}), support_titles=frozenset({"Alder"}))
    assert gold_ranks(gold_passages(both, corpus(MORE_ALDER)), (MORE_ALDER.id,), ("alder",)) == (1,)


def test_a_quoted_gold_passage_is_the_paragraph_that_holds_the_words() -> None:
    """IIRC's official files: some words of a page, which has many paragraphs."""
    quoted = (Passage.of("alder", "also a  Town"), Passage.of("Birch", "is white"), Passage.of("Fir", "is not here"))
    question = Question("q", "?", ("a",), support_titles=frozenset({"alder", "Birch", "Fir"}), quoted=quoted)
    page = corpus(ALDER, OTHER_ALDER, MORE_ALDER, BIRCH)
    ids, titles = (ALDER.id, MORE_ALDER.id, BIRCH.id, OTHER_ALDER.id), ("Alder", "alder", "Birch", "Alder")
    gold = gold_passages(question, page)
    assert gold_ranks(gold, ids, titles) == (4, 3, None)
    assert gold_ranks(gold_pages(gold), ids, titles) == (1, 3, None)


def test_a_quote_of_a_pinned_page_needs_no_finding() -> None:
    question = Question("q", "?", ("a",), quoted=(Passage.of("Alder", "a tree"),), pinned=(ALDER,))
    assert gold_passages(question, corpus(ALDER)) == ()


def test_without_contexts_the_titles_are_all_there_is() -> None:
    bare = Question("q", "?", ("a",), support_titles=frozenset({"Birch", "Alder"}))
    gold = gold_passages(bare, corpus())
    assert [each.title for each in gold] == ["Alder", "Birch"]
    assert gold_ranks(gold, ("x", "y", "z"), ("Cedar", "birch", "Alder")) == (3, 2)


def test_a_gold_title_without_its_passage_counts_beside_the_passages_that_are_there() -> None:
    """HotpotQA fullwiki: some gold paragraphs are not among the contexts."""
    partly = replace(QUESTION, passages=(ALDER,), support=frozenset({ALDER.id, "missing:Birch"}))
    gold = gold_passages(partly, corpus())
    assert gold_ranks(gold, (ALDER.id,), ("Alder",)) == (1, None)
    assert gold_ranks(gold, (ALDER.id, "x"), ("Alder", "Birch")) == (1, 2)


def test_a_pinned_passage_needs_no_finding() -> None:
    pinned = replace(QUESTION, pinned=(ALDER,))
    assert [each.title for each in gold_passages(pinned, corpus())] == ["Birch"]


def test_one_passage_finds_one_of_two_gold_passages_known_by_title() -> None:
    twins = (GoldPassage((), "Alder"), GoldPassage((), "Alder"))
    assert gold_ranks(twins, ("x",), ("Alder",)) == (1, None)
    assert gold_ranks(twins, ("x", "y"), ("Alder", "Alder")) == (1, 2)
    assert gold_ranks((GoldPassage(("y",), "Alder"), twins[0]), ("y", "x"), ("Alder", "Alder")) == (1, 2)  # ids first


def test_the_recall_of_pages_is_told_where_it_differs() -> None:
    same, other = row("a", places=(None, 1)), RetrievedPassages(("a",), (None, 1), (1,), None, "")
    assert summarise_retrieval([same], ranked=True, seed=0).page_recall is None
    measured = summarise_retrieval([same, other], ranked=True, seed=0)
    assert measured.recall["2"].mean == 50
    assert measured.page_recall is not None
    assert measured.page_recall["2"].mean == 75


def test_recall_is_the_share_of_gold_passages_within_the_budget() -> None:
    places = (1, 6, None)
    assert recall(places, 2) == pytest.approx(1 / 3)
    assert recall(places, 6) == pytest.approx(2 / 3)
    assert recall(places, 99) == pytest.approx(2 / 3)
    assert recall((), 5) is None


def test_all_gold_asks_for_every_one() -> None:
    assert [all_gold((2, 5), budget) for budget in (2, 4, 5)] == [0, 0, 1]
    assert all_gold((1, None), 15) == 0
    assert all_gold((), 15) is None


def test_the_reciprocal_rank_is_that_of_the_first_gold_passage() -> None:
    assert reciprocal_rank((4, 2, None)) == 0.5
    assert reciprocal_rank((None, None)) == 0
    assert reciprocal_rank(()) is None


def test_a_summary_is_the_mean_over_questions_with_gold() -> None:
    rows = [
        row("a", "b", places=(1, 2), hops=2),  # recall@2 100, all gold, rank 1
        row("c", "d", "e", places=(3, None), hops=2),  # @2 0, @5 50, rank 3
        row(places=(None,), hops=3),  # nothing retrieved
        row("f", places=()),  # no gold known
    ]
    measured = summarise_retrieval(rows, ranked=True, seed=0)
    assert measured.n == 3
    assert [measured.recall[str(budget)].mean for budget in (2, 5, 10, 15)] == pytest.approx([100 / 3, 50, 50, 50])
    assert measured.all_gold["15"] == pytest.approx(100 / 3)
    assert measured.fixed_budget_recall == pytest.approx(50)
    assert measured.mrr == pytest.approx(100 * (1 + 1 / 3 + 0) / 3)
    assert measured.passages_per_question == pytest.approx(6 / 4)
    assert measured.without_passages == 1
    assert measured.by_hops["2"] == {"n": 2, "2": 50, "5": 75, "10": 75, "15": 75}
    assert list(measured.by_hops) == ["2", "3", "unknown"]
    assert measured.by_type == {}
    assert measured.alarm is None


def test_what_several_searches_collected_has_no_reciprocal_rank() -> None:
    assert summarise_retrieval([row("a", places=(1,))], ranked=False, seed=0).mrr is None


def test_without_questions_nothing_can_be_summarised() -> None:
    with pytest.raises(ValueError, match="no questions"):
        summarise_retrieval([], ranked=True, seed=0)


@pytest.mark.parametrize(
    ("alike", "different", "alarmed"),
    [(6, 0, True), (5, 0, False), (6, 23, True), (6, 24, False), (21, 79, True), (20, 80, False)],
)
def test_an_alarm_needs_more_than_five_questions_and_more_than_a_fifth(
    alike: int, different: int, alarmed: bool
) -> None:
    rows = [row("a", "b")] * alike + [row(str(number)) for number in range(different)]
    alarm = same_passages_alarm(rows)
    assert (alarm is not None) == alarmed
    if alarm:
        assert alarm.startswith(f"{alike} of {alike + different} questions got the same passages in the same order")


def test_another_order_is_not_the_same_and_nothing_is_no_passage() -> None:
    assert same_passages_alarm([row("a", "b"), row("b", "a")] * 5) is None
    assert same_passages_alarm([row()] * 50) is None

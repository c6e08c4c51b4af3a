"""Retrieval figures, computed by hand."""

from __future__ import annotations

import pytest

from kgqa.scoring.retrieval import (
    GoldPassage,
    RetrievedPassages,
    all_gold,
    gold_passages,
    gold_places,
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
ANY_TEXT = (GoldPassage("a", "Alder", by_title=True), GoldPassage("b", "Birch", by_title=True))


def row(*ids: str, places: tuple[int | None, ...] = (None,), hops: int | None = None) -> RetrievedPassages:
    return RetrievedPassages(ids, places, hops, "")


def test_gold_passages_of_a_corpus_that_holds_them_are_found_by_id_alone() -> None:
    gold = gold_passages(QUESTION, lambda _: True)
    assert gold == (GoldPassage(ALDER.id, "Alder", by_title=False), GoldPassage(BIRCH.id, "Birch", by_title=False))
    assert gold_places(gold, (OTHER_ALDER.id, BIRCH.id), ("Alder", "Birch")) == (None, 2)


def test_gold_passages_of_another_dump_are_found_by_title() -> None:
    gold = gold_passages(QUESTION, lambda passage: passage.id != ALDER.id)
    assert gold_places(gold, ("x", "y"), ("ALDER ", "Birch")) == (1, None)


def test_without_contexts_the_titles_are_all_there_is() -> None:
    bare = Question("q", "?", ("a",), support_titles=frozenset({"Birch", "Alder"}))
    gold = gold_passages(bare, lambda _: True)
    assert [each.title for each in gold] == ["Alder", "Birch"]
    assert gold_places(gold, ("x", "y", "z"), ("Cedar", "birch", "Alder")) == (3, 2)


def test_a_gold_title_without_its_passage_counts_beside_the_passages_that_are_there() -> None:
    """HotpotQA fullwiki: some gold paragraphs are not among the contexts."""
    partly = Question(
        "q", "?", ("a",), (ALDER,), support=frozenset({ALDER.id, "missing:Birch"}),
        support_titles=frozenset({"Alder", "Birch"}),
    )  # fmt: skip
    assert gold_places(gold_passages(partly, lambda _: True), (ALDER.id,), ("Alder",)) == (1, None)


def test_a_pinned_passage_needs_no_finding() -> None:
    pinned = Question(
        "q", "?", ("a",), (ALDER, BIRCH), pinned=(ALDER,), support=frozenset({ALDER.id, BIRCH.id}),
        support_titles=frozenset({"Alder", "Birch"}),
    )  # fmt: skip
    assert [each.title for each in gold_passages(pinned, lambda _: True)] == ["Birch"]


def test_one_passage_finds_one_of_two_gold_passages_with_one_title() -> None:
    twins = (GoldPassage("a", "Alder", by_title=True), GoldPassage("b", "Alder", by_title=True))
    assert gold_places(twins, ("x",), ("Alder",)) == (1, None)
    assert gold_places(twins, ("x", "y"), ("Alder", "Alder")) == (1, 2)
    assert gold_places(twins, ("b", "x"), ("Alder", "Alder")) == (2, 1)  # ids first


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

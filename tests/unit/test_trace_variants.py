"""TRACE-Doc, the ablations of Tables 2, 6 and 9 and Figs. 8 to 11, and the demonstrations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Choose, Rank, Triples
from kgqa.errors import ConfigError, DataError
from kgqa.types import Triple
from tests.trace_world import (
    ALDER,
    BIRCH,
    CEDAR,
    DEMONSTRATION,
    GRAPH,
    HOME,
    METHOD,
    QUESTION,
    STOP,
    TOWN,
    WROTE,
    YEAR,
    World,
    chains_of,
    even,
    follow_the_book,
    shown,
    weights,
)


def test_the_candidates_are_the_rankers_best_in_its_order() -> None:
    world = World(even)
    world.relevance = {WROTE: 1.0, HOME: 2.0, YEAR: 3.0, TOWN: 2.0}
    world.answer(candidates=3, max_length=1)
    [call] = world.of(Choose)
    assert shown(call)[1] == [STOP, YEAR, HOME, TOWN]


def test_the_ranker_is_asked_with_the_question_and_then_the_chain() -> None:
    world = World(follow_the_book)
    world.answer()
    queries = [call.query for call in world.of(Rank)]
    assert queries == [QUESTION.text, f"{QUESTION.text} {WROTE}", f"{QUESTION.text} {WROTE} {YEAR}"]


def test_the_released_query_order_puts_the_chain_first() -> None:
    world = World(follow_the_book)
    world.answer(query_order="triples_first")
    assert world.of(Rank)[1].query == f"{WROTE} {QUESTION.text}"


def test_the_released_query_names_its_parts() -> None:
    world = World(follow_the_book)
    world.answer(query_order="triples_first", query_labels=True)
    queries = [call.query for call in world.of(Rank)[:2]]
    assert queries == [
        f"knowledge triples: \nquestion: {QUESTION.text}",
        f"knowledge triples: {WROTE}\nquestion: {QUESTION.text}",
    ]


def test_without_the_ranker_the_whole_graph_is_offered_in_its_order() -> None:
    world = World(follow_the_book)
    world.answer(ranker=False, candidates=1)
    assert not world.of(Rank)
    assert shown(world.of(Choose)[0])[1] == [STOP, WROTE, HOME, YEAR, TOWN]


def test_without_the_ranker_more_triples_than_labels_are_refused() -> None:
    graph = {**GRAPH, CEDAR.id: tuple(Triple(f"h{i}", "r", "t", CEDAR.id) for i in range(725))}
    with pytest.raises(DataError, match=r"method.ranker=false: 728 candidates, 727 can be labelled"):
        World(even, graph).answer(ranker=False)


def test_without_the_selector_the_rankers_best_are_followed() -> None:
    world = World(even)
    answer = world.answer(selector=False, max_length=2, branch=2, beam=2, chains=2)
    assert not world.of(Choose)
    assert chains_of(answer) == [([WROTE, HOME], False), ([HOME, WROTE], False)]
    total = sum(math.exp(score) for score in world.relevance.values())
    rest = total - math.exp(4.0)
    assert math.exp(answer.notes["chains"][0]["score"]) == pytest.approx(math.exp(4 + 3) / total / rest)


def test_the_top_triples_can_be_read_without_building_chains() -> None:
    world = World(even)
    answer = world.answer(top=3, candidates=1)
    assert not world.of(Choose)
    assert world.context() == f"{WROTE}\n{HOME}\n{YEAR}"
    assert answer.evidence == (ALDER.id, BIRCH.id)


def test_fixed_length_chains_are_not_offered_the_option_to_stop() -> None:
    world = World(even)
    answer = world.answer(adaptive_termination=False, max_length=3, demonstrations="fixed")
    assert {len(units) for units, _ in chains_of(answer)} == {3}
    for call in world.of(Choose):
        demonstrations, selection = (message.content for message in call.prompt.messages)
        assert STOP not in demonstrations + selection
        assert "A. <" in demonstrations
        assert "A. <" in selection


def test_documents_are_ordered_by_votes_and_then_by_first_appearance() -> None:
    select = weights(at0={TOWN: 0.5, YEAR: 0.3, WROTE: 0.2}, at1={HOME: 0.6, STOP: 0.4}, at2={STOP: 1.0})
    world = World(select)
    answer = world.answer(context="documents", max_length=2, beam=3, chains=3)
    # TOWN HOME .3, TOWN .2, YEAR HOME .18: CEDAR and ALDER have two votes each, CEDAR is seen first
    assert answer.evidence == (CEDAR.id, ALDER.id, BIRCH.id)
    titles = [line for line in world.context().splitlines() if line.startswith("Title: ")]
    assert titles == ["Title: Cedar", "Title: Alder", "Title: Birch"]


def test_documents_without_votes_are_left_out() -> None:
    world = World(follow_the_book)
    world.answer(context="documents")
    assert "Title: Birch\nBirch appeared in 1901." in world.context()
    assert "Cedar is a town" not in world.context()


def test_sentences_come_from_the_data_set_or_from_splitting() -> None:
    world = World(even)
    answer = world.answer(units="sentences", max_length=1)
    assert not world.of(Triples)
    assert shown(world.of(Choose)[0])[1] == [
        "no further sentence is needed",
        "Alder wrote Birch.",
        "Alder lived in Cedar.",
        "Birch appeared in 1901.",
        "It was praised by Dogwood.",
        "Cedar is a town.",
    ]
    assert [chain["triples"] for chain in answer.notes["chains"]][1] == [["Alder wrote Birch.", ALDER.id]]


def test_documents_can_be_the_units_of_chains() -> None:
    world = World(even)
    world.answer(units="documents", max_length=1)
    assert shown(world.of(Choose)[0])[1][1] == "Alder: Alder wrote Birch. Alder lived in Cedar."


def test_only_what_a_variant_asks_is_needed() -> None:
    assert METHOD.uses == {"model", "triples", "ranker"}
    assert replace(METHOD, demonstrations="adaptive").uses == METHOD.uses | {"demonstrations_ranker"}
    assert replace(METHOD, demonstrations="adaptive", top=10).uses == METHOD.uses
    assert replace(METHOD, demonstrations="adaptive", selector=False).uses == METHOD.uses
    assert replace(METHOD, units="sentences").uses == {"model", "ranker"}
    assert replace(METHOD, ranker=False, demonstrations="fixed").uses == {"model", "triples"}


def test_demonstrations_are_chosen_once_for_a_question() -> None:
    world = World(follow_the_book)
    world.answer(demonstrations="adaptive")
    demonstration_queries = [call for call in world.of(Rank) if call.texts == (DEMONSTRATION.question,)]
    assert [(call.query, call.scorer) for call in demonstration_queries] == [(QUESTION.text, "demonstrations_ranker")]
    assert {call.scorer for call in world.of(Rank) if call not in demonstration_queries} == {"ranker"}


def test_a_demonstration_shows_the_same_step_or_its_last_one() -> None:
    world = World(follow_the_book)
    world.answer(demonstrations="fixed")
    first, second, third = (call.prompt.messages[0].content.split("\n\n")[1] for call in world.of(Choose))
    assert "Chain so far: empty" in first
    assert first.endswith("Next: B")
    assert "Chain so far: <Elm; painter; Fir>" in second
    assert second.endswith("Next: A")
    assert third == second


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chains": 6}, r"method.chains=6: cannot exceed method.beam=5"),
        ({"ranker": False, "selector": False}, r"method.ranker=false"),
        ({"ranker": False, "top": 10}, r"method.ranker=false"),
        ({"demonstrations": "fixed", "demonstration_count": 2}, r"method.demonstration_count=2: .* only 1 chains"),
    ],
)
def test_values_that_do_not_go_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(METHOD, **changes)

"""TRACE's beam search step by step, with a scripted ranker, selector and reader."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Call, Choose, Generate, Rank
from kgqa.errors import EngineError
from kgqa.testing import drive
from kgqa.types import Triple
from tests.trace_world import (
    ALDER,
    BIRCH,
    CEDAR,
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


def test_the_reader_is_given_the_chain_the_selector_builds() -> None:
    world = World(follow_the_book)
    answer = world.answer()
    assert answer.text == "1901"
    assert chains_of(answer) == [([WROTE, YEAR], True)]
    assert world.context() == f"{WROTE}\n{YEAR}"
    assert answer.evidence == (ALDER.id, BIRCH.id)
    assert answer.context_tokens == len(f"{WROTE} {YEAR}".split())
    assert not answer.flags


def test_a_chain_scores_the_sum_of_its_choices_log_probabilities() -> None:
    select = weights(at0={WROTE: 0.65, HOME: 0.35}, at1={YEAR: 0.5, TOWN: 0.3, STOP: 0.2}, at2={STOP: 0.8, HOME: 0.2})
    answer = World(select).answer(max_length=3, beam=4, chains=4)
    # step 1: WROTE .65, HOME .35
    # step 2: WROTE YEAR .325, WROTE TOWN .195, HOME YEAR .175, WROTE stop .13; dropped: HOME TOWN .105, HOME stop .07
    # step 3: stop .26, stop .156, stop .175 (HOME is used, so stopping is certain), the ended one .13;
    #         dropped: WROTE YEAR HOME .065, WROTE TOWN HOME .039
    assert chains_of(answer) == [([WROTE, YEAR], True), ([HOME, YEAR], True), ([WROTE, TOWN], True), ([WROTE], True)]
    scores = [math.exp(chain["score"]) for chain in answer.notes["chains"]]
    assert scores == pytest.approx([0.26, 0.175, 0.156, 0.13])


def test_only_the_likeliest_branches_of_a_chain_are_followed() -> None:
    select = weights(at0={WROTE: 0.4, HOME: 0.3, YEAR: 0.2, TOWN: 0.1})
    answer = World(select).answer(max_length=1, branch=2)
    assert chains_of(answer) == [([WROTE], False), ([HOME], False)]


def test_an_ended_chain_stays_in_the_beam_and_is_never_prompted_again() -> None:
    select = weights(at0={WROTE: 0.5, STOP: 0.5}, at1={YEAR: 0.6, STOP: 0.4}, at2={STOP: 1.0})
    world = World(select)
    answer = world.answer()
    assert chains_of(answer)[0] == ([], True)
    assert math.exp(answer.notes["chains"][0]["score"]) == pytest.approx(0.5)
    assert [len(shown(call)[0]) for call in world.of(Choose)] == [0, 1, 2]


def test_choices_below_the_least_probability_are_dropped() -> None:
    select = weights(at0={WROTE: 0.99985, HOME: 0.00009, YEAR: 0.00006}, at1={STOP: 1.0})
    assert chains_of(World(select).answer()) == [([WROTE], True)]
    kept = World(select).answer(min_probability=0.0, max_length=1)
    assert [units for units, _ in chains_of(kept)] == [[WROTE], [HOME], [YEAR], [], [TOWN]]


def test_a_chain_whose_choices_are_all_too_unlikely_ends() -> None:
    assert chains_of(World(even).answer(min_probability=0.9)) == [([], True)]


def test_used_triples_are_not_offered_again() -> None:
    world = World(even)
    world.answer()
    for call in world.of(Choose):
        so_far, options = shown(call)
        assert not set(so_far) & set(options)
        assert len(so_far) + len(options) == 5


def test_a_chain_ends_when_nothing_is_left_to_add() -> None:
    select = weights(at0={WROTE: 1.0}, at1={HOME: 1.0}, at2={YEAR: 1.0}, at3={TOWN: 1.0})
    world = World(select)
    answer = world.answer(max_length=9)
    assert chains_of(answer) == [([WROTE, HOME, YEAR, TOWN], True)]
    assert len(world.of(Choose)) == 4


def test_only_the_best_chains_are_read() -> None:
    select = weights(at0={WROTE: 0.5, HOME: 0.3, YEAR: 0.2})
    world = World(select)
    answer = world.answer(max_length=1, chains=2)
    assert world.context() == f"{WROTE}\n{HOME}"
    assert answer.evidence == (ALDER.id,)


def test_a_triple_of_two_chains_is_shown_once() -> None:
    select = weights(at0={WROTE: 0.6, YEAR: 0.4}, at1={WROTE: 0.5, YEAR: 0.5}, at2={STOP: 1.0})
    world = World(select)
    world.answer()
    assert world.context() == f"{WROTE}\n{YEAR}"


@pytest.mark.parametrize("context", ["triples", "documents"])
def test_an_empty_graph_leaves_the_reader_without_context_and_is_flagged(context: str) -> None:
    world = World(even, dict.fromkeys(GRAPH, ()))
    answer = world.answer(context=context)
    assert not world.of(Choose)
    assert not world.of(Rank)
    assert "Context" not in world.of(Generate)[0].prompt.messages[0].content
    assert (answer.flags, answer.evidence, answer.context_tokens) == ({"no_chain": 1}, (), 0)


def test_a_selector_that_stops_at_once_leaves_the_reader_without_context() -> None:
    answer = World(weights(at0={STOP: 1.0})).answer()
    assert chains_of(answer) == [([], True)]
    assert answer.flags == {"no_chain": 1}


def test_a_question_without_passages_is_answered_without_context() -> None:
    assert World(even).answer(replace(QUESTION, passages=())).flags == {"no_chain": 1}


def test_equal_chains_through_two_passages_are_merged() -> None:
    twin = Triple("Birch", "year", "1901", CEDAR.id)
    select = weights(at0={YEAR: 0.5}, at1={WROTE: 1.0}, at2={STOP: 1.0})
    answer = World(select, {**GRAPH, CEDAR.id: (twin,)}).answer(max_length=2)
    assert chains_of(answer) == [([YEAR, WROTE], False)]
    assert answer.evidence == (BIRCH.id, ALDER.id)


def test_a_selector_that_fails_fails_the_question() -> None:
    def fail(call: Call[Any]) -> Any:
        return EngineError("the model is gone") if isinstance(call, Choose) else world(call)

    world = World(even)
    with pytest.raises(EngineError, match="the model is gone"):
        drive(METHOD.answer(QUESTION), fail)

"""Backtracing (KnowTrace §3.3): which triplets carry the answer, and when two entities are one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.methods.steps.knowtrace_graph import (
    Fact,
    Pair,
    casefold_entity,
    find_initial_entities,
    find_target_entities,
    normalize_entity,
    support,
)
from kgqa.methods.steps.knowtrace_replies import read_exploration


@given(st.lists(st.tuples(*(st.sampled_from("abcdef") for _ in range(3)))), st.sets(st.sampled_from("abcdef")))
def test_support_is_a_part_of_the_graph_on_the_way_to_initial_entities(
    triples: list[tuple[str, str, str]], targets: set[str]
) -> None:
    graph = [Fact(*triple) for triple in dict.fromkeys(triples)]
    kept = support(graph, {"a"}, targets)
    assert set(kept) <= set(graph)
    if kept:
        assert any("a" in (fact.subject, fact.object) for fact in kept)
    assert not support(graph, set(), targets)


def test_the_papers_example_is_traced_back_as_in_its_appendix() -> None:
    """Appendix D: from the university over the man to the rioting; where the town lies supports nothing."""
    riots, town, man = "the rioting being a dividing factor in Birmingham", "Birmingham", "James Watt"
    first = [
        Fact(man, "wrote", riots),
        Fact(man, "is", "an industrialist"),
        Fact(riots, "refers to", "Priestley Riots"),
        Fact(town, "is located in", "the West Midlands region of England"),
    ]
    second = [Fact(man, "was educated at", "University of Glasgow")]
    rounds = [([Pair(riots, "who"), Pair(town, "where")], first), ([Pair(man, "school")], second)]
    thought = f"{man} wrote about {riots}. He was educated at the University of Glasgow.\nUniversity of Glasgow"
    graph = [*first, *second]
    initial = find_initial_entities(rounds)
    assert initial == {normalize_entity(riots), normalize_entity(town)}
    assert support(graph, initial, find_target_entities(graph, thought)) == [first[0], second[0]]


def test_an_entity_counts_as_mentioned_only_as_whole_words() -> None:
    graph = [Fact("Ada", "knew", "Holmes")]
    assert find_target_entities(graph, "Ada's friend was Holm.") == {"ada"}


WROTE = Fact("Reed Lake", "was written by", "the poet Ada Holm")
SCHOOL = Fact("The poet Ada Holm.", "was educated at", "Gorm College")
ROUNDS = [([Pair('"Reed Lake"', "author")], [WROTE]), ([Pair("Ada Holm", "school")], [SCHOOL])]


@pytest.mark.parametrize(("name", "kept"), [(normalize_entity, [WROTE, SCHOOL]), (casefold_entity, [])])
def test_entities_are_one_where_scorers_would_take_them_for_one(name: object, kept: list[Fact]) -> None:
    naming = casefold_entity if name is casefold_entity else normalize_entity
    targets = find_target_entities([WROTE, SCHOOL], "She went to the Gorm College.", naming)
    assert support([WROTE, SCHOOL], find_initial_entities(ROUNDS[:1], naming), targets, naming) == kept


@pytest.mark.parametrize("said", ["It is in the U.S.", "It is in the US.", "us"])
def test_an_entity_is_mentioned_with_or_without_its_full_stops(said: str) -> None:
    assert find_target_entities([Fact("Gorm", "is in", "the U.S.")], said) == {"us"}


def test_a_thought_is_read_whole() -> None:
    reply = " Yes\nThought: Ada Holm wrote Reed Lake.\n\nShe went to Gorm College.\nAnswer: Gorm College"
    thought = read_exploration(reply).thought
    assert thought == "Ada Holm wrote Reed Lake.\n\nShe went to Gorm College."
    assert "gorm college" in find_target_entities([SCHOOL], thought)


def test_only_shortest_paths_support() -> None:
    """From d back to a: over b, and not over c and e."""
    graph = [Fact("a", "r", "b"), Fact("b", "r", "d"), Fact("a", "r", "c"), Fact("c", "r", "e"), Fact("e", "r", "d")]
    assert support(graph, {"a"}, {"d"}) == graph[:2]
    assert support(graph, {"a"}, {"e"}) == graph[2:4]

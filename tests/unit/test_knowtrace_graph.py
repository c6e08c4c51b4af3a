"""Backtracing (KnowTrace §3.3): which triplets carry the answer, and when two entities are one."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.methods.steps.knowtrace_graph import (
    Fact,
    Pair,
    casefold_entity,
    find_initial_entities,
    find_target_entities,
    format_paths,
    normalize_entity,
    support,
)
from kgqa.methods.steps.knowtrace_replies import read_exploration, read_facts


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


WROTE = Fact("Reed Lake", "was written by", "the poet Ada Holm")
EDUCATED = Fact("The poet Ada Holm.", "was educated at", "Gorm College")
ROUNDS = [([Pair('"Reed Lake"', "author")], [WROTE]), ([Pair("Ada Holm", "school")], [EDUCATED])]


@pytest.mark.parametrize(("name", "kept"), [(normalize_entity, [WROTE, EDUCATED]), (casefold_entity, [])])
def test_entities_are_one_where_scorers_would_take_them_for_one(name: object, kept: list[Fact]) -> None:
    naming = casefold_entity if name is casefold_entity else normalize_entity
    targets = find_target_entities([WROTE, EDUCATED], "She went to the Gorm College.", naming)
    assert support([WROTE, EDUCATED], find_initial_entities(ROUNDS[:1], naming), targets, naming) == kept


def test_only_shortest_paths_support() -> None:
    """From d back to a: over b, and not over c and e."""
    graph = [Fact("a", "r", "b"), Fact("b", "r", "d"), Fact("a", "r", "c"), Fact("c", "r", "e"), Fact("e", "r", "d")]
    assert support(graph, {"a"}, {"d"}) == graph[:2]
    assert support(graph, {"a"}, {"e"}) == graph[2:4]


REED = Fact("Reed Lake", "was written by", "Ada Holm")
SCHOOL = Fact("Ada Holm", "was educated at", "Gorm College")


@given(st.lists(st.tuples(st.sampled_from(list(permutations("abcde", 2))), st.sampled_from("rst")), max_size=12))
def test_every_triplet_is_told_and_no_path_comes_to_an_entity_twice(edges: list[tuple[tuple[str, str], str]]) -> None:
    graph = [Fact(one, relation, other) for (one, other), relation in dict.fromkeys(edges)]
    told = format_paths(graph)
    for fact in graph:
        forwards, backwards = " → ".join(fact), " ← ".join(fact[::-1])
        assert any(forwards in path or backwards in path for path in told)
    for path in told:
        entities = path.replace("←", "→").split(" → ")[::2]
        assert len(set(entities)) == len(entities)


def test_a_path_prefers_its_own_direction_and_unused_triples() -> None:
    turned = Fact("Gorm", "has", "Ada Holm")
    assert format_paths([REED, turned, SCHOOL]) == [
        "Reed Lake → was written by → Ada Holm → was educated at → Gorm College",
        "Gorm → has → Ada Holm → was educated at → Gorm College",
    ]


WATT = Pair("James Watt", "which school he attended")
GLASGOW = Fact("James Watt", "was educated at", "University of Glasgow")


def test_a_pair_is_read_as_models_write_it() -> None:
    for reply in [
        " No\nExplore:\n- James Watt | which school he attended",
        " No\nExplore:\n- James Watt : which school he attended",  # as in the paper's Table 5
        "No\n- James Watt: which school he attended",
        "No.\n1. James Watt | which school he attended",
        "No\n\n* James Watt|which school he attended\n",
        "No\n2) **James Watt** | *which school he attended*",
        '**No**\n**Explore:**\n• "James Watt" | "which school he attended"',
        "No\nExplore: James Watt | which school he attended",
        "No\nJames Watt | which school he attended",
        "No\n- <James Watt | which school he attended>",
        "No - James Watt | which school he attended",
        "No\n- James Watt; which school he attended",
        "No\n<James Watt; which school he attended>",
        "No\nExplore: James Watt; which school he attended",
        "Not yet.\nExplore:\n- James Watt; which school he attended",
        "The knowledge is not enough.\nExplore:\n- James Watt | which school he attended",
        "The answer is not known yet.\nExplore:\n- James Watt; which school he attended",
    ]:
        read = read_exploration(reply)
        assert (read.sufficient, read.pairs, read.malformed) == (False, (WATT,), 0)


def test_lines_that_are_no_pairs_are_counted() -> None:
    read = read_exploration("No\nExplore:\n- James Watt\n- James Watt | \nHis school.\n- James Watt | school")
    assert (read.pairs, read.malformed) == ((Pair("James Watt", "school"),), 3)


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ('- "Reed; Lake" (novel): a story | who wrote it', Pair('"Reed; Lake" (novel): a story', "who wrote it")),
        ("- Star Wars: A New Hope : who directed it", Pair("Star Wars: A New Hope", "who directed it")),
        ("- Star Wars: A New Hope: who directed it", Pair("Star Wars: A New Hope", "who directed it")),
        ("- 1984 | who wrote it", Pair("1984", "who wrote it")),
        ("- 12 Monkeys | who directed it", Pair("12 Monkeys", "who directed it")),
    ],
)
def test_entities_keep_their_punctuation_and_numbers(line: str, pair: Pair) -> None:
    assert read_exploration(f" No\n{line}").pairs == (pair,)


def test_a_triplet_is_read_as_models_write_it() -> None:
    for reply in [
        "<James Watt; was educated at; University of Glasgow>",
        "( James Watt , was educated at , University of Glasgow )",  # as in the paper's Table 5
        "(James Watt; was educated at; University of Glasgow);",
        "1. (James Watt, was educated at, University of Glasgow)",
        '- <"James Watt"; was educated at; "University of Glasgow">',
        '("James Watt", "was educated at", "University of Glasgow").',
        "James Watt; was educated at; University of Glasgow",
        "- James Watt | was educated at | University of Glasgow",
        "2. James Watt; was educated at; University of Glasgow;",
        "Triples:\n<James Watt | was educated at | University of Glasgow>",
    ]:
        read = read_facts(reply)
        assert (read.facts, read.malformed) == ((GLASGOW,), 0)


@pytest.mark.parametrize(
    ("reply", "malformed"),
    [
        ("(James Watt, Glasgow)", 1),
        ("(James Watt, born in, Greenock, Scotland)", 1),  # which comma parts is not known
        ("James Watt; born in; Greenock; Scotland", 1),
        ("James Watt went to the University of Glasgow.", 1),
        ("(James Watt went", 1),
        ('<James Watt; went to; "">', 1),
        ("none", 0),
        (" None.", 0),
        ("", 0),
    ],
)
def test_what_is_no_triplet_is_counted_unless_it_says_none(reply: str, malformed: int) -> None:
    read = read_facts(reply)
    assert (read.facts, read.malformed) == ((), malformed)


@given(st.text())
def test_any_reply_can_be_read_and_nothing_is_made_up(text: str) -> None:
    read = read_exploration(text)
    for part in (read.thought, read.answer, *(part for pair in read.pairs for part in pair)):
        assert part in text
    assert not (read.answer and read.pairs)
    for fact in read_facts(text).facts:
        assert all(part in text for part in fact)

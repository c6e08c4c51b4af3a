"""KG-to-Paths: KnowTrace's graph told as paths."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from kgqa.methods.steps.knowtrace_graph import Fact, format_paths

REED = Fact("Reed Lake", "was written by", "Ada Holm")
SCHOOL = Fact("Ada Holm", "was educated at", "Gorm College")
BEES = Fact("ada holm", "kept", "bees")


def test_triplets_are_joined_where_the_object_of_one_is_the_subject_of_the_next() -> None:
    path = "Reed Lake → was written by → Ada Holm → was educated at → Gorm College"
    assert format_paths([REED, SCHOOL]) == [path]
    assert format_paths([SCHOOL, REED]) == [path]


def test_triplets_are_joined_at_a_common_subject_and_at_a_common_object() -> None:
    assert format_paths([SCHOOL, BEES]) == ["bees ← kept ← ada holm → was educated at → Gorm College"]
    other = Fact("Ilse Varn", "was educated at", "Gorm College")
    assert format_paths([SCHOOL, other]) == ["Ada Holm → was educated at → Gorm College ← was educated at ← Ilse Varn"]


def test_a_triplet_told_already_leads_to_one_that_is_not() -> None:
    assert format_paths([REED, SCHOOL, BEES]) == [
        "Reed Lake → was written by → Ada Holm → was educated at → Gorm College",
        "Reed Lake → was written by → Ada Holm → kept → bees",
    ]


def test_a_triplet_between_an_entity_and_itself_is_told() -> None:
    assert format_paths([Fact("a", "is", "a")]) == ["a → is → a"]


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

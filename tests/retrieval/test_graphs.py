"""Passage graphs: what links passages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.errors import ConfigError
from kgqa.retrieval.graphs.entities import Entities
from kgqa.retrieval.graphs.keywords import Keywords
from kgqa.retrieval.graphs.nearest import Nearest
from kgqa.retrieval.graphs.none import NoGraph
from kgqa.types import Passage
from kgqa.util import optional_deps as extras
from tests.retrieval.linked_passages import GRAPHS, WORDS, Hashed, neighbours, passages


def test_passages_that_hold_a_keyword_of_some_document_are_linked() -> None:
    pool = passages("the harbour harbour harbour of Wexcombe", "a harbour", "an orchard and an orchard", "lantern")
    assert neighbours(Keywords(1, 1).links(pool)) == [[1], [0], [], []]


def test_a_keyword_may_be_a_phrase_and_phrases_do_not_cross_passages() -> None:
    pool = [Passage.of("A", "salt road salt road"), Passage.of("B", "the salt road"), Passage.of("C", "salt"),
            Passage.of("D", "road")]  # fmt: skip
    longest = Keywords(1, 2).links(pool[:2])
    assert neighbours(longest) == [[1], [0]]
    assert neighbours(Keywords(0, 2).links(pool)) == [[], [], [], []]


def test_a_title_is_a_keyword_of_any_length_without_its_bracket() -> None:
    pool = [
        Passage.of("The Bridge of the Seven Winds of Carrow (painting)", "It hangs in a hall."),
        Passage.of("A", "He painted The Bridge of the Seven Winds of Carrow twice."),
        Passage.of("B", "They sold the bridge of the seven winds of Carrow."),
    ]
    assert neighbours(Keywords(0, 4).links(pool)) == [[], [2], [1]]


def test_a_title_of_hundreds_of_words_is_one_keyword() -> None:
    long = Passage.of("mill " * 300, "Unlike others.")
    assert neighbours(Keywords(0, 4).links([long, Passage.of("a", "mill " * 300), Passage.of("b", "mill " * 301)])) == [
        [],
        [2],
        [1],
    ]


def test_stop_words_begin_and_end_no_keyword() -> None:
    pool = passages("the of the of the", "the of the of the")
    assert neighbours(Keywords(9, 4).links(pool)) == [[], []]


def test_more_keywords_never_take_an_edge_away() -> None:
    pool = passages(*(" ".join(WORDS[number:] * 2) for number in range(6)))
    counts = [Keywords(number, 2).links(pool).edges() for number in range(8)]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_passages_that_mention_one_name_are_linked() -> None:
    pool = [
        Passage.of("Osmund Tarrel", "He was an engineer."),
        Passage.of("Bridge", "The bridge was drawn by Osmund Tarrel in 1902."),
        Passage.of("Song", "Later Osmund Tarrel sang it; the tarrel is a bird."),
        Passage.of("Bird", "A tarrel sings. Tarrel songs are short."),
    ]
    assert neighbours(Entities(1.0, titles=False).links(pool)) == [[], [2], [1], []]


def test_a_name_that_stands_in_one_passage_hides_no_other() -> None:
    pool = passages("Ida Ruhn sang.", "Ida Ruhn wept.", "Later Ida Ruhn left.")
    assert neighbours(Entities(1.0, titles=False).links(pool)) == [[1, 2], [0, 2], [0, 1]]


def test_the_longest_of_overlapping_names_counts_and_whole_words_alone() -> None:
    pool = [
        Passage.of("Ann", "x"),
        Passage.of("New Ostervik", "He left Ann in New Ostervik."),
        Passage.of("Annual", "The Annual Fair of New Ostervik is old."),
        Passage.of("Ostervik", "She saw Ostervik and Ann."),
    ]
    assert neighbours(Entities(1.0, titles=False).links(pool)) == [[], [2, 3], [1], [1]]


def test_names_that_most_passages_mention_can_be_left_out() -> None:
    pool = passages("in Wexcombe by Ida Ruhn", "of Wexcombe", "near Wexcombe by Ida Ruhn", "nothing")
    assert Entities(1.0, titles=False).links(pool).edges() == 3
    assert neighbours(Entities(0.5, titles=False).links(pool)) == [[2], [], [0], []]


def test_a_long_run_of_capitalised_words_is_no_name() -> None:
    twelve, thirteen = (" ".join(["Song"] * count) for count in (12, 13))
    assert Entities(1.0, titles=False).links(passages(f"a {twelve}", f"the {twelve}")).edges() == 1
    assert Entities(1.0, titles=False).links(passages(f"a {thirteen}", f"the {thirteen}")).edges() == 0


def test_a_missing_package_is_noticed_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "version", absent)
    with pytest.raises(ConfigError, match=r"ahocorasick-rs is not installed; pip install 'kgqa\[graphs\]'"):
        build(compose(["graph=entities"])["graph"], "graph").identity()


def test_a_month_and_the_first_word_of_a_sentence_are_no_names() -> None:
    pool = passages("Rain fell in March.", "Rain falls. It was March.")
    assert Entities(1.0, titles=False).links(pool).edges() == 0


def test_nearest_passages_are_linked_in_both_directions() -> None:
    pool = passages("harbour harbour", "harbour harbour lantern", "orchard orchard orchard orchard", "viaduct")
    scores = [[float(a @ b) for b in Hashed().encode("passage", [p.text for p in pool])]
              for a in Hashed().encode("passage", [p.text for p in pool])]  # fmt: skip
    wanted: list[set[int]] = [set(), set(), set(), set()]
    for place, row in enumerate(scores):
        best = max((other for other in range(4) if other != place), key=lambda other: (row[other], -other))
        wanted[place].add(best)
        wanted[best].add(place)
    assert neighbours(Nearest(Hashed(), 1).links(pool)) == [sorted(others) for others in wanted]


def test_a_passage_without_title_and_text_has_no_nearest() -> None:
    pool = [Passage.of("", " "), *passages("harbour", "lantern")]
    assert neighbours(Nearest(Hashed(), 5).links(pool)) == [[], [2], [1]]


def test_more_neighbours_than_passages_are_all_the_others() -> None:
    assert Nearest(Hashed(), 50).links(passages("harbour", "lantern", "orchard")).edges() == 3


def test_without_a_graph_all_passages_are_neighbours() -> None:
    assert neighbours(NoGraph().links(passages("a", "b", "c"))) == [[1, 2], [0, 2], [0, 1]]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: type(graph).__name__)
def test_no_passage_one_passage_and_empty_texts_make_a_graph(graph: Any) -> None:
    for pool in ([], passages("harbour"), [Passage.of("", "")], passages("", " "), passages("the", "of")):
        links = graph.links(pool)
        assert links.holds.shape[0] == len(pool)
        assert all(place not in around for place, around in enumerate(neighbours(links)))


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: type(graph).__name__)
def test_edges_have_no_direction_and_are_counted_once(graph: Any) -> None:
    pool = passages(*(" ".join(WORDS[number : number + 4]) for number in range(8)))
    links = graph.links(pool)
    around = neighbours(links)
    assert all(place in around[other] for place, others in enumerate(around) for other in others)
    assert links.edges() == sum(map(len, around)) // 2


def test_two_documents_of_one_title_count_as_one() -> None:
    pool = [Passage.of("A", "harbour harbour lantern"), Passage.of("A", "lantern lantern harbour"),
            Passage.of("B", "lantern harbour")]  # fmt: skip
    together = [Passage.of("A", "harbour harbour lantern lantern lantern harbour"), pool[2]]
    assert Keywords(1, 1).links(pool).edges() == 3
    assert Keywords(1, 1).links(together).edges() == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("graph=knn ranker@graph.encoder=lexical", r"graph\.encoder: Lexical gives scores but no vectors"),
    ],
)
def test_a_value_that_makes_no_graph_is_refused(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(compose(overrides.split())["graph"], "graph")


def test_passages_of_one_document_are_linked_where_they_mention_it() -> None:
    one, other, apart = Passage.of("A", "red"), Passage.of("A", "blue"), Passage.of("B", "red")
    assert neighbours(Entities(1.0, titles=True).links([one, other, apart])) == [[1], [0], []]
    assert neighbours(Entities(1.0, titles=False).links([one, other, apart])) == [[], [], []]
    assert Entities(1.0, titles=True).identity() != Entities(1.0, titles=False).identity()

"""How an index searches its scopes: the corpus, titles, a question's own pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kgqa.calls import Search
from kgqa.errors import ConfigError
from kgqa.retrieval.index import IndexFolder
from kgqa.types import Passage
from tests.retrieval.conftest import PASSAGES
from tests.retrieval.index_folders import QUERY, Stopping, opened, titles


def test_the_whole_corpus_is_searched(folder: IndexFolder) -> None:
    with opened(folder) as index:
        assert titles(index, Search(QUERY, 1), Search("pressed ferns of Vessin", 1)) == [
            ["Ostrand railway"],
            ["Vessin museum"],
        ]
        assert index.identity()["passages"] == len(PASSAGES)


def test_a_scope_of_titles_is_searched_alone(folder: IndexFolder) -> None:
    with opened(folder) as index:
        scope = ("vessin  RAILWAY", "Vessin_choir", "No such title")
        assert titles(index, Search(QUERY, 5, titles=scope))[0][0] == "Vessin railway"
        assert set(titles(index, Search("Vessin", 5, titles=scope))[0]) == {"Vessin railway", "Vessin choir"}
        assert titles(index, Search(QUERY, 5, titles=("No such title",)), Search(QUERY, 5, titles=())) == [[], []]


def test_a_title_may_have_several_passages(folder: IndexFolder) -> None:
    pages = [Passage.of("Ostrand", f"Paragraph {n} about the harbour.") for n in range(5)]
    with opened(folder, [*PASSAGES, *pages]) as index:
        assert set(titles(index, Search("harbour", 9, titles=("ostrand",)))[0]) == {"Ostrand"}
        assert len(index.search([Search("harbour", 9, titles=("ostrand",))])[0]) == 5


def test_a_pool_is_searched_as_if_it_were_the_corpus(folder: IndexFolder) -> None:
    outside = Passage.of("Elsewhere", "A railway that no corpus has.")
    with opened(folder) as index:
        found = index.search([Search("railway", 9, pool=(*PASSAGES[:7], outside)), Search("railway", 9, pool=())])
        assert [passage.title for passage in found[0]] == ["Halverby railway", "Elsewhere"]
        assert found[1] == ()
        assert index.search([Search("railway", 9, pool=PASSAGES[:4])])[0][0].title == "Halverby railway"


def test_a_pool_is_indexed_once_and_dropped_when_closed(folder: IndexFolder) -> None:
    counting = Stopping(folder.retriever)
    counting.dies = False
    folder = replace(folder, retriever=counting)
    with opened(folder) as index:
        for query in ("railway", "lighthouse", "choir"):
            index.search([Search(query, 3, pool=PASSAGES[:9]), Search(query, 3, pool=PASSAGES[9:])])
        assert counting.asked == 1 + 2
        kept = [Path(name.name) for _, name in index._pools._kept.values()]
        assert all(path.is_dir() for path in kept)
    assert not any(path.exists() for path in kept)


def test_a_retriever_without_pools_says_so(folder: IndexFolder) -> None:
    counting = Stopping(folder.retriever)
    counting.dies, counting.pools = False, False
    with (
        opened(replace(folder, retriever=counting)) as index,
        pytest.raises(ConfigError, match="choose another"),
    ):
        index.search([Search("railway", 3, pool=PASSAGES[:9])])


def test_passages_of_one_text_are_given_once_and_the_next_ones_move_up(folder: IndexFolder) -> None:
    """IRCoT collapses by lower-cased text; the best of them stays, and `k` passages are given all the same."""
    same = [
        Passage.of(f"Copy {n}", "The RAILWAY to Ostrand." if n % 2 else "the railway to ostrand.") for n in range(60)
    ]
    with opened(folder, [*same, *PASSAGES]) as index:
        assert index.corpus["equal_texts"] == 59
        assert titles(index, Search("copy", 3)) == [["Copy 0"]]
        (found,) = index.search([Search("railway", 9)])
        assert len({passage.text.lower() for passage in found}) == len(found) == 9
        assert [passage.title for passage in found if passage.title.startswith("Copy")] == ["Copy 0"]
        (in_pool,) = index.search([Search("railway", 9, pool=(*same, *PASSAGES))])
        assert in_pool == found


def test_a_repeated_text_stands_where_its_best_passage_stood(folder: IndexFolder) -> None:
    passages = [
        Passage.of("slate slate slate", "The harbour."),
        Passage.of("slate slate", "The quarry."),
        Passage.of("slate", "The tunnel, which was flooded."),
        Passage.of("a title of many other words and slate", "The HARBOUR."),
    ]
    with opened(folder, passages) as index:
        assert titles(index, Search("slate", 3)) == [["slate slate slate", "slate slate", "slate"]]
        assert titles(index, Search("slate", 3, pool=tuple(passages))) == titles(index, Search("slate", 3))


@pytest.mark.parametrize("query", ["", "  ", "?!… ()", "the of and"])
def test_a_query_without_words_finds_nothing(folder: IndexFolder, query: str) -> None:
    with opened(folder) as index:
        assert index.search([Search(query, 5), Search(QUERY, 0)]) == [(), ()]


def test_replies_keep_the_order_of_the_calls(folder: IndexFolder) -> None:
    calls = [
        Search("railway", 2, pool=PASSAGES[:9]),
        Search(QUERY, 1),
        Search(QUERY, 3, titles=("Vessin railway",)),
        Search("lighthouse", 1, pool=PASSAGES[9:]),
        Search("Ekelby museum", 1),
    ]
    with opened(folder) as index:
        assert list(index.search(calls)) == [index.search([call])[0] for call in calls]

"""`retriever=elasticsearch` against a server: noida-db, a stand-in, and whatever KGQA_TEST_ES_URL names."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Search
from kgqa.errors import ConfigError, DataError
from kgqa.protocols import Query
from kgqa.retrieval import elasticsearch, elasticsearch_index, elasticsearch_server
from kgqa.retrieval.bm25 import Bm25
from kgqa.retrieval.elasticsearch_server import Server
from kgqa.retrieval.index import IndexFolder
from kgqa.types import Passage
from tests.retrieval.elasticsearch_indexes import PASSAGES, Counter, built, index_name, settings

CORPUS = Path(os.environ.get("KGQA_DATA", "data")) / "corpora" / "hotpotqa_train_hipporag_corpus_994.json.gz"


@pytest.fixture(params=["stand-in", "KGQA_TEST_ES_URL"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a server that the environment names; the indexes a test made, and no others, are deleted after it."""
    monkeypatch.setattr(elasticsearch_server, "WAITS", (0.05, 0.1))
    if request.param == "stand-in":
        monkeypatch.setenv("KGQA_ES_URL", request.getfixturevalue("stand_in").url)
    elif url := os.environ.get("KGQA_TEST_ES_URL"):
        monkeypatch.setenv("KGQA_ES_URL", url)
    else:
        pytest.skip("KGQA_TEST_ES_URL names no server")
    server = Server()
    before = set(server._client.indices.get(index="kgqa-*"))
    yield server._client
    for name in set(server._client.indices.get(index="kgqa-*")) - before:
        server._client.indices.delete(index=name)
    server.close()


def test_a_passage_is_found_by_its_text_and_by_its_title(client: Any, tmp_path: Path) -> None:
    find = built(tmp_path).find
    assert list(find([Query("keeper", 5), Query("Ginger", 1), Query("Halverby", 5)])) == [[0], [5], [4]]


def test_words_match_in_their_stems_and_stop_words_do_not(client: Any, tmp_path: Path) -> None:
    assert built(tmp_path).find([Query("Lighthouses", 5), Query("the of and", 5)]) == [[0], []]


def test_equal_scores_are_in_the_order_of_the_corpus(client: Any, tmp_path: Path) -> None:
    same = tuple(Passage(f"p{number}", "Same", "The same words.") for number in range(12))
    assert built(tmp_path, same).find([Query("words", 7)]) == [[0, 1, 2, 3, 4, 5, 6]]


def test_only_the_places_asked_for_are_found(client: Any, tmp_path: Path) -> None:
    find = built(tmp_path).find
    assert find([Query("river Pellery", 5, among=(1, 3)), Query("soup", 5, among=(0, 1))]) == [[3, 1], []]


def test_more_queries_than_one_request_takes_keep_their_order(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticsearch, "TOGETHER", 2)
    words = ["keeper", "ginger title", "Halverby", "town", "keeper"]
    found = built(tmp_path).find([Query(word, 1) for word in words])
    assert found == [[0], [5], [4], [3], [0]]


def test_a_field_that_is_left_out_is_not_searched(client: Any, tmp_path: Path) -> None:
    assert built(tmp_path, fields={"text": 1.0}).find([Query("Ginger film", 5)]) == [[0, 2, 5]]
    assert built(tmp_path, fields={"title": 1.0}).find([Query("Ginger film", 5)]) == [[5, 0]]


def test_boosts_weigh_the_fields(client: Any, tmp_path: Path) -> None:
    by_title = built(tmp_path, fields={"title": 5.0, "text": 0.1}).find([Query("Maria Lund", 2)])
    by_text = built(tmp_path, fields={"title": 0.1, "text": 5.0}).find([Query("film Maria directed", 2)])
    assert (by_title[0][0], by_text[0][0]) == (1, 0)


def test_fields_that_differ_in_boosts_only_share_an_index(client: Any, tmp_path: Path) -> None:
    built(tmp_path / "a")
    built(tmp_path / "b", fields={"title": 2.0, "text": 1.0})
    built(tmp_path / "c", b=0.4)
    assert index_name(tmp_path / "a") == index_name(tmp_path / "b") != index_name(tmp_path / "c")


@pytest.mark.parametrize("text", ["?!…", '"film', "film AND (", "a\0film", "\ud800 film", "/film[/", "😀" * 50])
def test_a_query_is_words_and_never_a_language(client: Any, tmp_path: Path, text: str) -> None:
    assert built(tmp_path).find([Query(text, 5)])[0] == ([0] if "film" in text else [])


def test_a_query_of_five_thousand_words_is_searched_by_its_first_ones(client: Any, tmp_path: Path) -> None:
    text = " ".join(["keeper", *(f"word{number}" for number in range(5_000)), "Halverby"])
    assert built(tmp_path).find([Query(text, 5)]) == [[0]]


def test_a_passage_of_a_megabyte_is_indexed(client: Any, tmp_path: Path) -> None:
    long = Passage.of("Long", "carrot soup " * 90_000 + "zebra")
    assert built(tmp_path, (*PASSAGES, long)).find([Query("zebra", 3)]) == [[6]]


def test_an_interrupted_load_goes_on_where_it_stopped(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticsearch_index, "CHUNK", 2)
    steps = Counter()

    def interrupted(count: int) -> None:
        steps(count)
        if sum(steps.steps) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settings().build(PASSAGES, tmp_path, interrupted)
    assert not (tmp_path / elasticsearch.FOLDER_FILE).exists()
    resumed = Counter()
    settings().build(PASSAGES, tmp_path, resumed)
    assert resumed.steps == [4, 2]
    assert settings().open(PASSAGES, tmp_path).find([Query("keeper", 2), Query("ginger", 1)]) == [[0], [5]]


def test_what_is_no_beginning_of_the_corpus_is_loaded_afresh(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path)
    name = index_name(tmp_path)
    client.delete(index=name, id="2", refresh=True)
    steps = Counter()
    settings().build(PASSAGES, tmp_path, steps)
    assert steps.steps == [0, 6]
    assert client.count(index=name)["count"] == 6


def test_an_index_that_is_there_is_taken_as_it_is(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tmp_path)
    monkeypatch.setattr(elasticsearch_index, "_bulk", None)  # cannot be called
    assert built(tmp_path / "again").find([Query("keeper", 1)]) == [[0]]


def test_the_index_has_one_shard_no_replica_and_the_similarity(client: Any, tmp_path: Path) -> None:
    built(tmp_path, k1=0.9, b=0.4)
    (found,) = client.indices.get_settings(index=index_name(tmp_path)).values()
    index = found["settings"]["index"]
    assert (index["number_of_shards"], index["number_of_replicas"], index["refresh_interval"]) == ("1", "0", "-1")
    assert index["similarity"] == {"default": {"type": "BM25", "k1": "0.9", "b": "0.4"}}


def test_a_missing_index_of_a_large_corpus_is_told_with_its_remedy(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = built(tmp_path / "finder")
    client.indices.delete(index=index_name(tmp_path / "finder"))
    monkeypatch.setattr(elasticsearch, "LOADED_BY_RUNS", len(PASSAGES) - 1)
    with pytest.raises(DataError, match=r"index kgqa-\w+ is missing; run kgqa data index again"):
        finder.find([Query("keeper", 1)])


def test_an_index_that_was_not_loaded_to_its_end_is_refused(client: Any, tmp_path: Path) -> None:
    finder = built(tmp_path)
    client.indices.put_mapping(index=index_name(tmp_path), meta={"kgqa": {"complete": ""}})
    with pytest.raises(DataError, match="is another one, or was not loaded to its end"):
        finder.find([Query("keeper", 1)])


def test_an_index_of_another_corpus_is_refused(client: Any, tmp_path: Path) -> None:
    finder = built(tmp_path / "one")
    built(tmp_path / "other", (*PASSAGES[:5], Passage.of("Zebra", "Stripes.")))
    (other,) = client.indices.get_mapping(index=index_name(tmp_path / "other")).values()
    client.indices.put_mapping(index=index_name(tmp_path / "one"), meta=other["mappings"]["_meta"])
    with pytest.raises(DataError, match="is another one"):
        finder.find([Query("keeper", 1)])


def test_an_index_that_lost_a_passage_is_refused(client: Any, tmp_path: Path) -> None:
    finder = built(tmp_path)
    client.delete(index=index_name(tmp_path), id="2", refresh=True)
    with pytest.raises(DataError, match="has 5 passages instead of 6"):
        finder.find([Query("keeper", 1)])


def test_an_unknown_analyzer_is_refused(client: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"refuses these settings.*klingon"):
        built(tmp_path, analyzer="klingon")


def test_an_index_folder_answers_searches_by_titles_and_gives_a_text_once(client: Any, tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path / "index", settings(), {"corpus": "small"}, "kgqa data index dataset=small")
    folder.build(PASSAGES, lambda *_: None)
    index = folder.open()
    soups, towns = index.search([Search("carrot soup ginger", 5), Search("Pellery", 5, titles=("pellery",))])
    index.close()
    assert [passage.title for passage in soups] == ["Carrot soup"]  # the other has the same text
    assert [passage.title for passage in towns] == ["Pellery"]


def test_a_pool_is_refused_with_the_retriever_to_choose(client: Any, tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path / "index", settings(), {"corpus": "small"}, "kgqa data index dataset=small")
    folder.build(PASSAGES, lambda *_: None)
    index = folder.open()
    with pytest.raises(ConfigError, match=r"cannot search a question's own passages; choose another, e\.g\. bm25"):
        index.search([Search("soup", 5, pool=PASSAGES[:2])])
    index.close()


@pytest.mark.skipif(not CORPUS.is_file(), reason="KGQA_DATA does not have the corpora")
def test_the_embedded_bm25_finds_the_same_in_the_same_order(client: Any, tmp_path: Path) -> None:
    with gzip.open(CORPUS) as opened:
        articles = list(json.load(opened).items())[:200]
    corpus = tuple(Passage.of(title, " ".join(sentences)) for title, sentences in articles)
    queries = [Query(" ".join(passage.text.split()[2:14]), 10) for passage in corpus[::20]]
    (tmp_path / "embedded").mkdir()
    embedded = Bm25({"title": 1.0, "text": 1.0})
    embedded.build(corpus, tmp_path / "embedded", lambda _: None)
    wanted = [list(places) for places in embedded.open(corpus, tmp_path / "embedded").find(queries)]
    assert [len(places) for places in wanted] == [10] * 10
    assert built(tmp_path / "served", corpus).find(queries) == wanted

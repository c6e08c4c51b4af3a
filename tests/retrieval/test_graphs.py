"""Passage graphs: what links passages, that one grown and shrunk equals one built anew, and the files they lie in."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgqa.calls import Neighbours, Rank
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose
from kgqa.retrieval import hub
from kgqa.retrieval.graphs.entities import Entities
from kgqa.retrieval.graphs.growing import growing
from kgqa.retrieval.graphs.keywords import Keywords
from kgqa.retrieval.graphs.links import Links
from kgqa.retrieval.graphs.nearest import Nearest
from kgqa.retrieval.graphs.store import GraphStore, averages
from kgqa.retrieval.graphs.tagme import Tagme
from kgqa.retrieval.graphs.unlinked import NoGraph
from kgqa.types import Json, Passage

WORDS = ("harbour", "lantern", "orchard", "viaduct", "Quillmere", "Ostervik", "Wexcombe", "the", "of", "1902")


class Hashed:
    """Vectors from the counts of a few words: an encoder without weights."""

    def identity(self) -> Mapping[str, Json]:
        return {"ranker": "hashed"}

    def fingerprint(self, kind: str) -> Mapping[str, Json]:
        return {"kind": kind}

    def score(self, calls: Sequence[Rank]) -> Sequence[tuple[float, ...]]:
        raise NotImplementedError

    def encode(self, kind: str, texts: Sequence[str]) -> Any:
        return np.array([[1.0 + text.split().count(word) for word in WORDS] for text in texts], np.float32)


GRAPHS = [Keywords(2, 3), Entities(1.0), Entities(0.4), Nearest(Hashed(), 2), NoGraph()]


def neighbours(links: Links) -> list[list[int]]:
    return [links.neighbours(place).tolist() for place in range(links.holds.shape[0])]


def passages(*texts: str, title: str = "T") -> list[Passage]:
    return [Passage.of(f"{title} {number}", text) for number, text in enumerate(texts)]


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
    assert neighbours(Entities(1.0).links(pool)) == [[], [2], [1], []]


def test_a_name_that_stands_in_one_passage_hides_no_other() -> None:
    pool = passages("Ida Ruhn sang.", "Ida Ruhn wept.", "Later Ida Ruhn left.")
    assert neighbours(Entities(1.0).links(pool)) == [[1, 2], [0, 2], [0, 1]]


def test_the_longest_of_overlapping_names_counts_and_whole_words_alone() -> None:
    pool = [
        Passage.of("Ann", "x"),
        Passage.of("New Ostervik", "He left Ann in New Ostervik."),
        Passage.of("Annual", "The Annual Fair of New Ostervik is old."),
        Passage.of("Ostervik", "She saw Ostervik and Ann."),
    ]
    assert neighbours(Entities(1.0).links(pool)) == [[], [2, 3], [1], [1]]


def test_names_that_most_passages_mention_can_be_left_out() -> None:
    pool = passages("in Wexcombe by Ida Ruhn", "of Wexcombe", "near Wexcombe by Ida Ruhn", "nothing")
    assert Entities(1.0).links(pool).edges() == 3
    assert neighbours(Entities(0.5).links(pool)) == [[2], [], [0], []]


def test_a_long_run_of_capitalised_words_is_no_name() -> None:
    twelve, thirteen = (" ".join(["Song"] * count) for count in (12, 13))
    assert Entities(1.0).links(passages(f"a {twelve}", f"the {twelve}")).edges() == 1
    assert Entities(1.0).links(passages(f"a {thirteen}", f"the {thirteen}")).edges() == 0


def test_a_missing_package_is_noticed_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(hub, "version", absent)
    with pytest.raises(ConfigError, match=r"ahocorasick-rs is not installed; pip install 'kgqa\[graphs\]'"):
        build(compose(["graph=entities"])["graph"], "graph")


def test_a_month_and_the_first_word_of_a_sentence_are_no_names() -> None:
    pool = passages("Rain fell in March.", "Rain falls. It was March.")
    assert Entities(1.0).links(pool).edges() == 0


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


TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
DOCUMENTS = st.dictionaries(st.sampled_from("ABCDEFG"), st.lists(TEXT, min_size=1, max_size=3, unique=True), min_size=2)


@settings(max_examples=60, deadline=None)
@given(documents=DOCUMENTS, chance=st.randoms(use_true_random=False), which=st.integers(0, len(GRAPHS) - 1))
def test_a_graph_that_grew_and_shrank_equals_one_built_anew(
    documents: dict[str, list[str]], chance: Any, which: int
) -> None:
    graph: Any = GRAPHS[which]
    if isinstance(graph, NoGraph):
        return
    grown, held = growing(graph), dict[str, list[Passage]]()
    for _ in range(3):
        for title, texts in documents.items():
            if title in held and chance.random() < 0.5:
                grown.remove(title)
                del held[title]
            elif title not in held:
                held[title] = [Passage.of(title, text) for text in texts]
                grown.add(held[title])
        anew = [passage for document in held.values() for passage in document]
        assert list(grown.passages) == anew
        assert neighbours(grown.links()) == neighbours(graph.links(anew))


@pytest.mark.parametrize("graph", GRAPHS[:4], ids=lambda graph: type(graph).__name__)
def test_a_document_is_added_once_and_removed_where_it_is(graph: Any) -> None:
    grown = growing(graph)
    grown.add([Passage.of("A", "harbour")])
    with pytest.raises(DataError, match="'A': there is a document of this title already"):
        grown.add([Passage.of("A", "lantern")])
    with pytest.raises(DataError, match="'B': no document of this title"):
        grown.remove("B")
    with pytest.raises(DataError, match="a document has one title, these passages have 2"):
        grown.add([Passage.of("B", "x"), Passage.of("C", "y")])


POOL = tuple(passages("harbour of Wexcombe harbour", "harbour", "lantern", title="S"))


def store(folder: Path, keywords: int = 1) -> GraphStore:
    return GraphStore(folder, "tfidf", Keywords(keywords, 1), lambda: POOL)


def test_neighbours_come_in_the_pools_order_and_from_the_disk_the_second_time(tmp_path: Path) -> None:
    assert store(tmp_path).neighbours(Neighbours(POOL[1], POOL)) == (POOL[0],)
    assert store(tmp_path).has(POOL)
    kept = store(tmp_path)
    assert kept.neighbours(Neighbours(POOL[0], POOL)) == (POOL[1],)
    assert kept.neighbours(Neighbours(POOL[2], None)) == ()


def test_a_pool_that_repeats_a_passage_holds_it_once(tmp_path: Path) -> None:
    assert store(tmp_path).neighbours(Neighbours(POOL[0], (*POOL, *POOL))) == (POOL[1],)


def test_other_settings_and_other_passages_have_other_files(tmp_path: Path) -> None:
    store(tmp_path).build(POOL)
    assert not store(tmp_path, keywords=2).has(POOL)
    assert not store(tmp_path).has(POOL[:2])


def test_a_passage_outside_the_pool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not in the collection"):
        store(tmp_path).neighbours(Neighbours(Passage.of("elsewhere", "x"), POOL))


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_damaged_file_is_named_with_its_remedy(tmp_path: Path, content: bytes | None) -> None:
    store(tmp_path).build(POOL)
    (file,) = tmp_path.rglob("*.npz")
    file.write_bytes(file.read_bytes()[:100] if content is None else content)
    with pytest.raises(DataError, match=rf"{file.name}: damaged graph .* delete the file"):
        store(tmp_path).open(POOL)


def test_nothing_but_whole_files_lies_in_the_folder(tmp_path: Path) -> None:
    store(tmp_path).build(POOL)
    assert [file.suffix for file in tmp_path.rglob("*") if file.is_file()] == [".npz"]


def test_statistics_are_means_of_the_collections(tmp_path: Path) -> None:
    kept = store(tmp_path)
    figures = averages([kept.open(POOL), kept.open(POOL[1:])])
    assert figures["collections"] == 2
    assert figures["passages"] == 2.5
    assert figures["edges"] == 0.5
    assert figures["density"] == pytest.approx((1 / 3) / 2)
    assert figures["without_edges"] == 1
    assert figures["passage_words"] == pytest.approx((4 + 1 + 1 + 1 + 1) / 5)
    assert averages([])["density"] is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("graph=tfidf graph.keywords=-1", r"graph\.keywords=-1: must be at least 0"),
        ("graph=tfidf graph.longest=0", r"graph\.longest=0: must be between 1 and 8"),
        ("graph=knn graph.k=0", r"graph\.k=0: must be at least 1"),
        ("graph=knn ranker@graph.encoder=lexical", r"graph\.encoder: Lexical gives scores but no vectors"),
        ("graph=entities graph.most_common=0", r"graph\.most_common=0.*: must be above 0"),
    ],
)
def test_a_value_that_makes_no_graph_is_refused(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(compose(overrides.split())["graph"], "graph")


class _Tagme(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200 if form["gcube-token"] == ["key"] else 403)
        self.end_headers()
        notes = [{"id": len(word), "rho": 0.5 if word.isupper() else 0.05} for word in form["text"][0].split()]
        self.wfile.write(b"<html>" if "broken" in form["text"][0] else json.dumps({"annotations": notes}).encode())

    def log_message(self, *args: object) -> None:
        """Nothing: tests are quiet."""


@pytest.fixture
def tagme() -> Iterator[Tagme]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tagme) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Tagme(f"http://127.0.0.1:{server.server_port}/tag", "TAGME_TOKEN", 0.1, "en", 10)
        server.shutdown()


def test_tagmes_confident_entities_link_passages(tagme: Tagme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGME_TOKEN", "key")
    assert neighbours(tagme.links(passages("AAA b", "cc DDD", "d", ""))) == [[1], [0], [], []]


def test_another_tagme_service_gives_another_graph(tagme: Tagme) -> None:
    assert replace(tagme, url="http://127.0.0.1:1/tag").identity() != tagme.identity()


def test_tagme_without_a_key_or_an_answer_says_what_to_do(tagme: Tagme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAGME_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="no key in the environment variable TAGME_TOKEN; set it, or choose graph=e"):
        tagme.links(passages("A"))
    monkeypatch.setenv("TAGME_TOKEN", "wrong")
    with pytest.raises(DataError, match="HTTP 403; check TAGME_TOKEN"):
        tagme.links(passages("A"))
    monkeypatch.setenv("TAGME_TOKEN", "key")
    with pytest.raises(DataError, match="no annotations in its answer"):
        tagme.links(passages("broken"))
    with pytest.raises(DataError, match="cannot be reached"):
        replace(tagme, url="http://127.0.0.1:1/tag").links(passages("A"))

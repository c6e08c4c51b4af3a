"""Passage graphs: what links passages, and their files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from kgqa.calls import Neighbours
from kgqa.errors import ConfigError, DataError
from kgqa.identity.component import identity_of
from kgqa.retrieval.graphs.entities import Entities, Tagme
from kgqa.retrieval.graphs.keywords import Keywords
from kgqa.retrieval.graphs.links import GraphStore, Links, NoGraph, average_figures
from kgqa.retrieval.graphs.nearest import Nearest
from kgqa.retrieval.lexical import Lexical
from kgqa.types import Passage
from tests.http_server import serve
from tests.retrieval.word_vectors import Words

WORDS = (
    "harbour",
    "lantern",
    "orchard",
    "viaduct",
    "Quillmere",
    "Ostervik",
    "Wexcombe",
    "the",
    "of",
    "1902",
)


class Hashed(Words):
    """Vectors from the counts of a few words."""

    def encode(self, kind: str, texts: Sequence[str]) -> Any:
        return np.array(
            [[1.0 + text.split().count(word) for word in WORDS] for text in texts], np.float32
        )


NAMES = Entities(1.0, titles=False)
GRAPHS = [Keywords(2, 3), NAMES, Entities(0.4, titles=False), Nearest(Hashed(), 2), NoGraph()]


def neighbours(links: Links) -> list[list[int]]:
    return [links.neighbours(place).tolist() for place in range(links.holds.shape[0])]


def passages(*texts: str, title: str = "T") -> list[Passage]:
    return [Passage.of(f"{title} {number}", text) for number, text in enumerate(texts)]


SALT = [
    Passage.of("A", "salt road salt road"),
    Passage.of("B", "the salt road"),
    Passage.of("C", "salt"),
]
TWICE = [Passage.of("A", "harbour harbour lantern"), Passage.of("A", "lantern lantern harbour")]
CARROW = "The Bridge of the Seven Winds of Carrow"


@pytest.mark.parametrize(
    ("graph", "pool", "linked"),
    [
        (Keywords(1, 1), passages("the harbour harbour harbour of Wexcombe", "a harbour", "lantern"), [[1], [0], []]),
        (Keywords(1, 2), SALT[:2], [[1], [0]]),
        (Keywords(0, 2), SALT, [[], [], []]),
        # a title is a keyword of any length, without its bracket
        (
            Keywords(0, 4),
            [
                Passage.of(f"{CARROW} (painting)", "In a hall."), Passage.of("A", f"He painted {CARROW} twice."),
                Passage.of("B", f"They sold {CARROW.lower()}."),
            ],
            [[], [2], [1]],
        ),
        (
            Keywords(0, 4),
            [Passage.of("mill " * 300, "Unlike."), Passage.of("a", "mill " * 300), Passage.of("b", "mill " * 301)],
            [[], [2], [1]],
        ),
        (Keywords(9, 4), passages("the of the of the", "the of the of the"), [[], []]),  # stop words
        (
            NAMES,
            [
                Passage.of("Osmund Tarrel", "An engineer."), Passage.of("Bridge", "Drawn by Osmund Tarrel in 1902."),
                Passage.of("Song", "Later Osmund Tarrel sang it; the tarrel is a bird."),
                Passage.of("Bird", "A tarrel sings. Tarrel songs are short."),
            ],
            [[], [2], [1], []],
        ),
        (NAMES, passages("Ida Ruhn sang.", "Ida Ruhn wept.", "Later Ida Ruhn left."), [[1, 2], [0, 2], [0, 1]]),
        # the longest of overlapping names counts, and only whole words
        (
            NAMES,
            [
                Passage.of("Ann", "x"), Passage.of("New Ostervik", "He left Ann in New Ostervik."),
                Passage.of("Annual", "The Annual Fair of New Ostervik is old."),
                Passage.of("Ostervik", "She saw Ostervik and Ann."),
            ],
            [[], [2, 3], [1], [1]],
        ),
        (NAMES, passages("a " + "Song " * 12, "the " + "Song " * 12), [[1], [0]]),
        (NAMES, passages("a " + "Song " * 13, "the " + "Song " * 13), [[], []]),
        (NAMES, passages("Rain fell in March.", "Rain falls. It was March."), [[], []]),
        (Entities(0.5, titles=False), passages("in W by Ida Ruhn", "of W", "at W by Ida Ruhn", ""), [[2], [], [0], []]),
        (Entities(1.0, titles=True), [Passage.of(*each) for each in ("Ar", "Ab", "Br")], [[1], [0], []]),
        (Nearest(Hashed(), 5), [Passage.of("", " "), *passages("harbour", "lantern")], [[], [2], [1]]),
        (Nearest(Hashed(), 50), passages("harbour", "lantern", "orchard"), [[1, 2], [0, 2], [0, 1]]),
        # inner products: the nearest of 0 is 1, of 1 is 0, of 2 is 1, of 3 is 2, and links have no direction
        (
            Nearest(Hashed(), 1),
            passages("harbour harbour", "harbour harbour lantern", "orchard orchard orchard orchard", "viaduct"),
            [[1], [0, 2], [1, 3], [2]],
        ),
        (Keywords(1, 1), [*TWICE, Passage.of("B", "lantern harbour")], [[1, 2], [0, 2], [0, 1]]),
        # two documents of one title count as one
        (
            Keywords(1, 1),
            [Passage.of("A", " ".join(each.text for each in TWICE)), Passage.of("B", "lantern harbour")],
            [[1], [0]],
        ),
        (NoGraph(), passages("a", "b", "c"), [[1, 2], [0, 2], [0, 1]]),
    ],
)  # fmt: skip
def test_a_graph_links_passages(graph: Any, pool: list[Passage], linked: list[list[int]]) -> None:
    assert neighbours(graph.links(pool)) == linked


@pytest.mark.parametrize(
    "texts",
    [
        [" ".join(WORDS[number : number + 4]) for number in range(8)],
        [],
        ["harbour"],
        [None],
        ["", " "],
        ["the", "of"],
    ],
    ids=["eight", "no passage", "one", "empty title", "blanks", "stop words"],
)
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: type(graph).__name__)
def test_edges_have_no_direction_and_are_counted_once(graph: Any, texts: list[str | None]) -> None:
    pool = [Passage.of("", "")] if texts == [None] else passages(*(text or "" for text in texts))
    links = graph.links(pool)
    around = neighbours(links)
    assert len(around) == len(pool)
    edges = {(place, other) for place, others in enumerate(around) for other in others}
    assert edges == {(other, place) for place, other in edges}
    assert [place for place, other in edges if place == other] == []
    assert links.edges() == sum(map(len, around)) // 2


POOL = tuple(passages("harbour of Wexcombe harbour", "harbour", "lantern", title="S"))


def store(folder: Path, keywords: int = 1) -> GraphStore:
    return GraphStore(folder, "tfidf", Keywords(keywords, 1), lambda: POOL)


def test_neighbors_are_in_pool_order_and_stored(tmp_path: Path) -> None:
    assert store(tmp_path).neighbours(Neighbours(POOL[1], POOL)) == (POOL[0],)
    assert store(tmp_path).has(POOL)
    saved = store(tmp_path)
    assert saved.neighbours(Neighbours(POOL[0], POOL)) == (POOL[1],)
    assert saved.neighbours(Neighbours(POOL[2], None)) == ()
    assert saved.neighbours(Neighbours(POOL[0], (*POOL, *POOL))) == (POOL[1],)
    assert {file.suffix for file in tmp_path.rglob("*") if file.is_file()} == {".npz"}
    # other settings and passages have other files
    assert not store(tmp_path, keywords=2).has(POOL)
    assert not store(tmp_path).has(POOL[:2])
    with pytest.raises(DataError, match="is not in the collection"):
        saved.neighbours(Neighbours(Passage.of("elsewhere", "x"), POOL))
    figures = average_figures([saved.open(POOL), saved.open(POOL[1:])])
    assert (figures["collections"], figures["passages"], figures["edges"]) == (2, 2.5, 0.5)
    assert figures["density"] == pytest.approx((1 / 3) / 2)
    assert figures["passage_words"] == pytest.approx((4 + 1 + 1 + 1 + 1) / 5)
    assert average_figures([])["density"] is None
    file = max(tmp_path.rglob("*.npz"), key=lambda file: file.stat().st_mtime)
    for content in (b"", b"no archive", file.read_bytes()[:100]):
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"{file.name}: damaged graph .* Delete the file"):
            store(tmp_path).open(POOL[1:])
    assert store(tmp_path).open(POOL[:1]).density == 0.0
    with pytest.raises(ConfigError, match=r"graph\.encoder: Lexical returns scores, not vectors"):
        Nearest(Lexical(), 2)


class _Tagme(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if "moved" in form["text"][0]:
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.2:9/tag")
            self.end_headers()
            return
        self.send_response(200 if form["gcube-token"] == ["key"] else 403)
        self.end_headers()
        notes = [
            {
                "id": len(word),
                "rho": 0.5 if word.isupper() else 0.05,
                "link_probability": 0.05 * len(word),
            }
            for word in form["text"][0].split()
        ]
        self.wfile.write(
            b"<html>"
            if "broken" in form["text"][0]
            else json.dumps({"annotations": notes}).encode()
        )


@pytest.fixture
def tagme(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tagme]:
    monkeypatch.setenv("TAGME_TOKEN", "key")
    with serve(_Tagme) as url:
        yield Tagme(f"{url}/tag", "TAGME_TOKEN", "rho", 0.1, False, "en", 10)


@pytest.mark.parametrize(
    ("changes", "pool", "links"),
    [
        ({}, passages("AAA b", "cc DDD", "d", ""), [[1], [0], [], []]),
        ({"confidence": "link_probability"}, passages("AAA b", "cc DDD", "dd"), [[1], [0, 2], [1]]),
        (
            {"titles": True},
            [Passage.of("T", "AAA"), Passage.of("T", "BBBB"), Passage.of("U", "CC")],
            [[1], [0], []],
        ),
    ],
    ids=["default", "by link probability", "by titles"],
)
def test_tagmes_confident_entities_link_passages(
    tagme: Tagme, changes: Any, pool: Any, links: Any
) -> None:
    changed = replace(tagme, **changes)
    assert neighbours(changed.links(pool)) == links
    assert (identity_of(changed) == identity_of(tagme)) == (not changes)


def test_address_of_tagme_is_in_its_identity(tagme: Tagme) -> None:
    assert identity_of(replace(tagme, url="http://127.0.0.1:1/tag")) != identity_of(tagme)


def test_tagme_error_names_the_missing_key(tagme: Tagme, monkeypatch: pytest.MonkeyPatch) -> None:
    for token, text, message in (
        ("", "A", "no key in the environment variable TAGME_TOKEN. Set it, or choose graph=e"),
        ("wrong", "A", r"403.*Check TAGME_TOKEN and graph\.url"),
        ("key", "broken", "JSONDecodeError"),
        ("key", "moved", "JSONDecodeError"),
    ):
        monkeypatch.setenv("TAGME_TOKEN", token)
        with pytest.raises((ConfigError, DataError), match=message):
            tagme.links(passages(text))

"""Exported triples, read again by other readers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kgqa.errors import ConfigError
from kgqa.kg.export import FORMATS, write_triples
from kgqa.kg.graph import neighborhood
from kgqa.kg.imported import ImportedFile
from kgqa.kg.importers import FORMATS as READ
from kgqa.kg.importers import join_passages
from kgqa.types import Passage, Triple

PASSAGES = (
    Passage.of('The "Elm", & <co>', "Elm is a town; it has\ta mill."),
    Passage.of("Ash\x02", "Ash is a tree — 楡.", ("Ash is a tree — 楡.",)),
    Passage.of("Oak", "Nothing is said of it."),
)
GRAPH = {
    PASSAGES[0].id: (
        ('Elm, "the" town', "lies <in>", "Über & Co"),
        ("Elm, \"the\" town", "has; owns", "mill \\ 楡 😀"),
        ("it's", "next to\x03", "Elm, \"the\" town"),
    ),
    PASSAGES[1].id: (("mill \\ 楡 😀", "lies <in>", "\ud800"), ('Elm, "the" town', "lies <in>", "Über & Co")),
}  # fmt: skip
NAMESPACE = {"g": "http://graphml.graphdrawing.org/xmlns"}


def triples(passage: Passage) -> tuple[Triple, ...]:
    return tuple(Triple(*parts, passage.id) for parts in GRAPH.get(passage.id, ()))


def written(form: str, tmp_path: Path) -> Path:
    write_triples(PASSAGES, triples, tmp_path / "out", form)
    return tmp_path / "out"


def expected(control: str = "\ufffd", half: str = "\ufffd") -> Counter[tuple[str, str, str, str]]:
    """Count triples with their passage, as a format without control characters and lone surrogates gives them."""
    return Counter(
        (*(part.replace("\x03", control).replace("\ud800", half) for part in parts), id_)  # type: ignore[misc]
        for id_, listed in GRAPH.items()
        for parts in listed
    )


def test_jsonl_round_trip(tmp_path: Path) -> None:
    file = written("jsonl", tmp_path)
    for passage in PASSAGES:
        assert ImportedFile(str(file)).triples(passage) == triples(passage)
    assert ImportedFile(str(file)).missing(PASSAGES) == []
    assert [each.triples for each in join_passages(READ["jsonl"](file))] == [
        GRAPH.get(passage.id, ()) for passage in PASSAGES
    ]


def test_graphml_has_an_edge_per_triple(tmp_path: Path) -> None:
    graph = ElementTree.parse(written("graphml", tmp_path)).getroot().find("g:graph", NAMESPACE)
    assert graph is not None
    names = {node.get("id"): node.findtext("g:data", "", NAMESPACE) for node in graph.findall("g:node", NAMESPACE)}
    assert len(set(names.values())) == len(names)
    found = Counter[tuple[str, str, str, str]]()
    for edge in graph.findall("g:edge", NAMESPACE):
        told = {each.get("key"): each.text or "" for each in edge.findall("g:data", NAMESPACE)}
        found[names[edge.get("source")], told["relation"], names[edge.get("target")], told["passage"]] += 1
    assert found == expected()


def test_networkx_reads_the_graphml(tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.read_graphml(written("graphml", tmp_path))
    names = graph.nodes(data="name")
    found = Counter(
        (names[head], told["relation"], names[tail], told["passage"]) for head, tail, told in graph.edges(data=True)
    )
    assert found == expected()


def test_neighborhood_grows_in_both_directions() -> None:
    chain = [
        Triple("a", "r", "b", "p"),
        Triple("c", "r", "B", "p"),
        Triple("c", "r", "d", "q"),
        Triple("A ", "r", "b", "q"),
    ]
    assert neighborhood(chain, "b", 1) == [chain[0], chain[1]]
    assert neighborhood(chain, "a", 2) == [chain[0], chain[1]]
    assert neighborhood(chain, "a", 3) == chain[:3]


def test_tsv_round_trip(tmp_path: Path) -> None:
    file = written("tsv", tmp_path)
    read = join_passages(READ["tsv"](file))
    assert [len(each.triples) for each in read] == [3, 2]
    assert read[0].triples[0] == ('Elm, "the" town', "lies <in>", "Über & Co")
    assert read[0].text == "Elm is a town; it has a mill."


@pytest.mark.parametrize("form", FORMATS)
def test_existing_file_is_not_replaced(form: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        written(form, tmp_path)
    assert (tmp_path / "out").read_text() == "mine"

"""Triples for other programs, read again: by their own readers where those are installed, and by the plainest one."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from kgqa.errors import ConfigError
from kgqa.kg.imported_file import ImportedFile
from kgqa.kg.importing import FORMATS as READ
from kgqa.kg.importing import joined
from kgqa.kg.neighbourhood import neighbourhood
from kgqa.kg.writing import FORMATS, write_triples
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
    write_triples(lambda: PASSAGES, triples, tmp_path / "out", form)
    return tmp_path / "out"


def expected(control: str = "\ufffd", half: str = "\ufffd") -> Counter[tuple[str, str, str, str]]:
    """With its passage, as a form that has no control characters and no halves of characters gives them."""
    return Counter(
        (*(part.replace("\x03", control).replace("\ud800", half) for part in parts), id_)  # type: ignore[misc]
        for id_, listed in GRAPH.items()
        for parts in listed
    )


def test_json_lines_come_back_as_the_same_triples(tmp_path: Path) -> None:
    file = written("jsonl", tmp_path)
    for passage in PASSAGES:
        assert ImportedFile(str(file)).triples(passage) == triples(passage)
    assert ImportedFile(str(file)).lacking(PASSAGES) == []
    assert [each.triples for each in joined(READ["jsonl"](file))] == [GRAPH.get(passage.id, ()) for passage in PASSAGES]


def test_graphml_has_an_edge_for_each_triple(tmp_path: Path) -> None:
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


def test_rdflib_reads_the_turtle(tmp_path: Path) -> None:
    rdflib = pytest.importorskip("rdflib")
    graph = rdflib.Graph().parse(written("turtle", tmp_path), format="turtle")
    label = {str(about): str(words) for about, words in graph.subject_objects(rdflib.RDFS.label)}
    found = Counter[tuple[str, str, str, str]]()
    for statement in graph.subjects(rdflib.RDF.type, rdflib.RDF.Statement):
        head, relation, tail, source = (
            str(graph.value(statement, name))
            for name in (rdflib.RDF.subject, rdflib.RDF.predicate, rdflib.RDF.object, rdflib.DCTERMS.source)
        )
        assert (rdflib.URIRef(head), rdflib.URIRef(relation), rdflib.URIRef(tail)) in graph
        found[label[head], label[relation], label[tail], source.rpartition(":")[2]] += 1
    assert found == expected()
    title = graph.value(rdflib.URIRef(f"urn:kgqa:passage:{PASSAGES[0].id}"), rdflib.DCTERMS.title)
    assert str(title) == PASSAGES[0].title


def test_turtles_iris_are_the_words(tmp_path: Path) -> None:
    text = written("turtle", tmp_path).read_text("utf-8")
    labelled = [line for line in text.splitlines() if " rdfs:label " in line]
    assert len(labelled) == 5 + 3
    assert 'Elm, "the" town' in {unquote(line.split(">")[0].rpartition(":")[2]) for line in labelled}


def test_neo4j_finds_ids_labels_and_types_in_the_headers(tmp_path: Path) -> None:
    folder = written("neo4j", tmp_path)
    with (folder / "nodes.csv").open(encoding="utf-8", newline="") as file:
        nodes = list(csv.DictReader(file))
    with (folder / "relationships.csv").open(encoding="utf-8", newline="") as file:
        edges = list(csv.DictReader(file))
    names = {node["entity:ID"]: node["name"] for node in nodes}
    assert len(names) == len(nodes) == 5
    assert {node[":LABEL"] for node in nodes} == {"Entity"}
    assert {edge[":TYPE"] for edge in edges} == {"RELATION"}
    found = Counter(
        (names[edge[":START_ID"]], edge["relation"], names[edge[":END_ID"]], edge["passage"]) for edge in edges
    )
    assert found == expected()
    assert (folder / "nodes.csv").read_text("utf-8").count("\n") == 6  # neo4j-admin wants a record a line


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_there_is_left_alone(form: str, tmp_path: Path) -> None:
    place = tmp_path / "out"
    if form == "neo4j":
        place.mkdir()
        place /= "mine.txt"
    place.write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        written(form, tmp_path)
    assert place.read_text() == "mine"


def test_a_neighbourhood_grows_by_a_step_in_either_direction() -> None:
    chain = [
        Triple("a", "r", "b", "p"),
        Triple("c", "r", "B", "p"),
        Triple("c", "r", "d", "q"),
        Triple("A ", "r", "b", "q"),
    ]
    assert neighbourhood(chain, "b", 1) == [chain[0], chain[1]]
    assert neighbourhood(chain, "a", 2) == [chain[0], chain[1]]
    assert neighbourhood(chain, "a", 3) == chain[:3]

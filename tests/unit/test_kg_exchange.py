"""Triples of other programs: reading each format, finding passages, refusals, and exports that are read again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kgqa.errors import ConfigError, DataError
from kgqa.kg.exchange import (
    EXPORT_FORMATS,
    IMPORT_FORMATS,
    ImportedTriples,
    TripledPassage,
    read_passages,
    text_key,
    write_triples,
)
from kgqa.types import Json, Passage, Triple

ELM = Passage.of("Elm", "Elm is a town. It has a mill - and a bridge.")
TRIPLES = (("Elm", "is", "town"), ("Elm", "has", "mill"))


def read(form: str, text: str, tmp_path: Path, name: str = "theirs") -> list[TripledPassage]:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_passages(tmp_path / name, form)


def imported(passages: list[TripledPassage], tmp_path: Path) -> ImportedTriples:
    file = tmp_path / "ours.jsonl"
    file.write_text("".join(json.dumps(each.json()) + "\n" for each in passages), encoding="utf-8")
    return ImportedTriples(str(file))


def hipporag(**document: Json) -> str:
    return json.dumps({"docs": [document]})[:-1] + ', "avg_ent_chars": NaN}'


def stanford(*triples: tuple[str, str, str]) -> str:
    words = [{"originalText": word} for word in (f"{ELM.title} {ELM.text}").replace(".", " .").split()]
    found = [{"subject": head, "relation": relation, "object": tail} for head, relation, tail in triples]
    return json.dumps({"sentences": [{"tokens": words, "openie": found}]})


THEIRS = {
    "hipporag": hipporag(title=ELM.title, text=ELM.text, extracted_triples=TRIPLES),
    "openie": stanford(*TRIPLES),
    "jsonl": json.dumps({"title": ELM.title, "text": ELM.text, "triples": TRIPLES}),
    "tsv": "relation\thead\ttail\ttext\ttitle\n"
    + "".join(f"{relation}\t{head}\t{tail}\t{ELM.text}\tElm\n" for head, relation, tail in TRIPLES),
}


@pytest.mark.parametrize("form", IMPORT_FORMATS)
def test_each_form_gives_the_passage_its_triples(form: str, tmp_path: Path) -> None:
    assert imported(read(form, THEIRS[form], tmp_path), tmp_path).triples(ELM) == tuple(
        Triple(*parts, ELM.id) for parts in TRIPLES
    )


def test_the_later_form_of_hipporag_has_title_and_text_in_one(tmp_path: Path) -> None:
    text = hipporag(idx="1", passage=f"{ELM.title}\n{ELM.text}", extracted_triples=TRIPLES)
    assert len(imported(read("hipporag", text, tmp_path), tmp_path).triples(ELM)) == 2


def test_triples_a_line_are_joined_by_their_passage(tmp_path: Path) -> None:
    lines = [
        {"head": head, "relation": relation, "tail": tail, "title": "Elm", "text": ELM.text}
        for head, relation, tail in (*TRIPLES, TRIPLES[0])
    ]
    (passage,) = read("jsonl", "\n".join(map(json.dumps, lines)), tmp_path)
    assert passage.triples == TRIPLES


def test_a_passage_is_known_by_its_letters_and_digits() -> None:
    assert text_key("Elm", "A mill - and a Bridge.") == text_key("elm", "a mill-and a bridge")
    assert text_key("Elm", "a mill") != text_key("Elm", "a mall")
    assert text_key("—", "…") == b""


def test_an_untitled_text_is_found_by_the_text_alone_and_a_titled_one_is_not(tmp_path: Path) -> None:
    untitled = imported([TripledPassage("", ELM.text, TRIPLES)], tmp_path)
    assert untitled.triples(ELM)
    other = imported([TripledPassage("Elm (film)", ELM.text, TRIPLES)], tmp_path)
    assert other.missing([ELM]) == [ELM]
    assert other.triples(ELM) == ()


def test_triples_that_are_not_three_texts_are_counted(tmp_path: Path) -> None:
    written: list[Json] = [
        ["a", "b"],
        ["a", "b", "c", "d"],
        ["a", " ", "c"],
        ["a", 1, "c"],
        "abc",
        [" a ", "b\nb", "c"],
    ]
    (passage,) = read("jsonl", json.dumps({"title": "T", "text": "x", "triples": written}), tmp_path)
    assert (passage.triples, passage.malformed) == ((("a", "b b", "c"),), 5)


def test_counts_tell_passages_without_triples_from_those_that_are_not_there(tmp_path: Path) -> None:
    there, empty, absent = ELM, Passage.of("Ash", "Ash is a tree."), Passage.of("Oak", "Oak is one, too.")
    file = imported([TripledPassage("Elm", ELM.text, TRIPLES), TripledPassage("Ash", empty.text, ())], tmp_path)
    assert file.counts([there, empty, absent]) == {"passages": 3, "unmatched": 1, "empty": 2, "triples": 2}


REFUSED = {
    "no docs": ("hipporag", "{}", "no key 'docs'"),
    "docs no list": ("hipporag", '{"docs": 1}', "document 1: not in this format"),
    "no text": (
        "hipporag",
        '{"docs": [{"extracted_triples": []}]}',
        "document 1: no key 'passage'",
    ),
    "no triples": ("jsonl", '{"title": "a", "text": "b"}', "theirs:1: no key 'triples'"),
    "no letters": (
        "jsonl",
        '{"title": "", "text": "!", "triples": []}',
        "theirs:1: title and text contain no letters",
    ),
    "number": ("jsonl", "1", "theirs:1: not in this format"),
    "no JSON": ("openie", "{", "not JSON"),
    "no sentences": ("openie", "{}", "theirs:1: no key 'sentences'"),
    "no column": ("tsv", "head\ttail\n", "theirs:1: no column relation. Name the columns"),
    "short line": ("tsv", "head\trelation\ttail\ttext\na\tb\n", "theirs:2: 2 columns, the first line has 4"),
    "empty": ("jsonl", "", "the file is empty"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_file_is_refused_at_its_place(case: str, tmp_path: Path) -> None:
    form, text, said = REFUSED[case]
    with pytest.raises(DataError) as refusal:
        read(form, text, tmp_path)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"title": "a", "text": "b"}'], ":1: no key 'triples'"),
        (
            ['{"title": "a", "text": "b", "triples": [["a", "b"]]}'],
            "passage 'a': 1 triples are not three texts",
        ),
        (["no"], ":1: not JSON"),
    ],
)
def test_a_damaged_file_of_ours_names_its_line(lines: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "ours.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError) as refusal:
        ImportedTriples(str(tmp_path / "ours.jsonl")).triples(ELM)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("path", "said"), [(None, "kg.path=null: name"), ("gone.jsonl", "kg.path=gone.jsonl: no such")]
)
def test_a_file_that_is_not_there_is_named_with_the_remedy(path: str | None, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        _ = ImportedTriples(path).sha256
    assert said in str(refusal.value)
    assert "kgqa kg import FILE" in str(refusal.value)


# Export

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
        assert ImportedTriples(str(file)).triples(passage) == triples(passage)
    assert ImportedTriples(str(file)).missing(PASSAGES) == []
    assert [each.triples for each in read_passages(file, "jsonl")] == [
        GRAPH.get(passage.id, ()) for passage in PASSAGES
    ]


def test_graphml_has_an_edge_per_triple(tmp_path: Path) -> None:
    graph = ElementTree.parse(written("graphml", tmp_path)).getroot().find("g:graph", NAMESPACE)
    assert graph is not None
    names = {node.get("id"): node.findtext("g:data", "", NAMESPACE) for node in graph.findall("g:node", NAMESPACE)}
    assert len(set(names.values())) == len(names)
    found = Counter[tuple[str, str, str, str]]()
    for edge in graph.findall("g:edge", NAMESPACE):
        data = {each.get("key"): each.text or "" for each in edge.findall("g:data", NAMESPACE)}
        found[names[edge.get("source")], data["relation"], names[edge.get("target")], data["passage"]] += 1
    assert found == expected()


def test_tsv_round_trip(tmp_path: Path) -> None:
    file = written("tsv", tmp_path)
    read = read_passages(file, "tsv")
    assert [len(each.triples) for each in read] == [3, 2]
    assert read[0].triples[0] == ('Elm, "the" town', "lies <in>", "Über & Co")
    assert read[0].text == "Elm is a town; it has a mill."


@pytest.mark.parametrize("form", EXPORT_FORMATS)
def test_existing_file_is_not_replaced(form: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ConfigError, match="this file exists"):
        written(form, tmp_path)
    assert (tmp_path / "out").read_text() == "mine"

"""Triples: parsed from replies, measured as graphs, imported and exported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kgqa.calls import Generate
from kgqa.config.building import build
from kgqa.errors import ConfigError, DataError
from kgqa.kg.exchange import (
    EXPORT_FORMATS,
    IMPORT_FORMATS,
    ImportedTriples,
    RetrieverTriples,
    TripledPassage,
    read_passages,
    text_key,
    write_triples,
)
from kgqa.kg.extraction import UNREADABLE, Extraction, parse_triples
from kgqa.kg.graph import GraphSize, ReadChains, chain_statistics, graph_statistics, too_many_failed
from kgqa.kg.openie import OpenIe
from kgqa.testing import drive
from kgqa.types import Json, Passage, Triple
from tests.composed import composed_node
from tests.method_world import World
from tests.unit.files import jsonl, write

PASSAGE = Passage.of("Low Tide", "Low Tide is a painting by Oddny Fir; it hangs in Elm Hall.")


def parts(completion: str, passage: Passage = PASSAGE) -> list[tuple[str, str, str]]:
    return [(t.head, t.relation, t.tail) for t in parse_triples(completion, passage).triples]


def malformed(completion: str) -> int:
    return parse_triples(completion, PASSAGE).malformed


WRONG = [
    "<Low Tide; painter>", "<Low Tide; ; 1881>", "<; painter; Fir>", "<>", "<a, b, c>", "<a; b; c", "a; b; c",
    "<a; b; c\n>",
]  # fmt: skip
OTHER_TEXTS = ["", "\n\n", "Here are the triples:", "The text states nothing."]


@pytest.mark.parametrize(
    ("text", "count"),
    [*((text, 1) for text in WRONG), *((text, 0) for text in OTHER_TEXTS)],
    ids=repr,
)
def test_unreadable_triples_are_counted(text: str, count: int) -> None:
    assert parts(text) == []
    assert malformed(text) == count


@pytest.mark.parametrize(
    ("head", "subject"),
    [("low tide", "low tide"), ("Oddny fir", "Oddny fir"), ("The painting's owner", "Low Tide")],
)
def test_head_that_the_text_lacks_becomes_the_title(head: str, subject: str) -> None:
    assert parts(f"<{head}; year; 1881>") == [(subject, "year", "1881")]


@pytest.mark.parametrize("between", ["\n", ", "], ids=["lines", "commas"])
def test_triples_are_on_lines_or_between_commas(between: str) -> None:
    text = f"\n<Low Tide; painter; Fir>{between}<Low Tide; place; Elm>\n"
    assert parts(text) == [("Low Tide", "painter", "Fir"), ("Low Tide", "place", "Elm")]


def test_completion_parses_to_triples() -> None:
    passage = Passage.of("Stay; a song", "")
    assert parts("<Stay; a song; year; 1901>", passage) == [("Stay; a song", "year", "1901")]
    text = "<Low Tide; painter; Oddny Fir>\n<Low Tide;painter;  Oddny Fir >"
    assert (parts(text), malformed(text)) == ([("Low Tide", "painter", "Oddny Fir")], 0)
    assert parts("<Alder; year; 1881>", Passage.of("", "A text.")) == [("Alder", "year", "1881")]


TRIANGLE = (Triple("a", "r", "b"), Triple("b", "r", "c"), Triple("c", "r", "a"))


def test_statistics_of_graphs_and_chains() -> None:
    assert GraphSize.of(TRIANGLE).density == pytest.approx(50.0)
    assert GraphSize.of(()).density is None
    assert GraphSize.of((Triple("a", "r", "a"),)).density is None
    twice = (*TRIANGLE, Triple("a", "r", "b", "another passage"))
    statistics = graph_statistics(
        [GraphSize.of(graph) for graph in (twice, (Triple("a", "r", "b"),), ())]
    )
    assert statistics["entities_per_question"] == pytest.approx(5 / 3)
    assert statistics["triples_per_question"] == pytest.approx(4 / 3)
    # 50 and 50; the empty graph has none
    assert statistics["density_percent"] == pytest.approx(50.0)
    gold = frozenset({"gold"})
    read = [(("gold", "other"), (3, 2)), (("gold",), (1, 0)), ((), (0,))]
    statistics = chain_statistics([ReadChains(gold, *each) for each in read])
    assert [statistics["length"], statistics["documents_per_question"]] == pytest.approx([2.0, 1.0])
    assert statistics["document_error_rate_percent"] == pytest.approx(25.0)


HERRING = Passage.of(
    "The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt of Fauskenes."
)
ENTITIES = '{"named_entities": ["The Herring Queen", "Asbjarne Lyngholt"]}'


def extract(replies: Sequence[str]) -> tuple[Extraction, list[Generate]]:
    node = {
        key: value
        for key, value in composed_node("kg", "openie").items()
        if key != "require_existing"
    }
    extractor = build(node, "kg")
    assert isinstance(extractor, OpenIe)
    world = World(replies)
    return drive(extractor.extract(HERRING), world), world.generations


def test_openie_extracts_entities_then_triples() -> None:
    rows = [
        ["The Herring Queen", "composer", "Asbjarne Lyngholt"],
        ["Asbjarne Lyngholt; he", "town", "x"],
    ]
    triples = json.dumps({"triples": rows})
    extraction, calls = extract([ENTITIES, triples])
    assert ENTITIES in calls[1].prompt.messages[-1].content
    assert all(call.schema and call.role == "extractor" for call in calls)
    assert extraction.flags == {}
    parsed = parse_triples(extraction.completion, HERRING)
    assert (parsed.triples[0], parsed.malformed) == (
        Triple(rows[0][0], rows[0][1], rows[0][2], HERRING.id),
        0,
    )


@pytest.mark.parametrize(
    ("replies", "flags", "malformed"),
    [
        pytest.param(
            ["no JSON", '{"triples": []}'], {"unreadable_entities": 1}, 0, id="unreadable entities"
        ),
        pytest.param(
            [ENTITIES, '{"triples": "none"}'], {"unreadable_triples": 1}, 0, id="unreadable triples"
        ),
        pytest.param(
            [f"Here: {ENTITIES}.", 'Sure:\n{"triples": [["a", "b"]]}'], {}, 1, id="short triple"
        ),
    ],
)
def test_openie_flags_unreadable_replies(
    replies: list[str], flags: dict[str, int], malformed: int
) -> None:
    extraction, _ = extract(replies)
    assert extraction.flags == flags
    parsed = parse_triples(extraction.completion, HERRING)
    assert (parsed.triples, parsed.malformed) == ((), malformed)


ELM = Passage.of("Elm", "Elm is a town. It has a mill - and a bridge.")
TRIPLES = (("Elm", "is", "town"), ("Elm", "has", "mill"))


def read(form: str, text: str, tmp_path: Path) -> list[TripledPassage]:
    return read_passages(write(tmp_path / "theirs", text), form)


def imported(passages: list[TripledPassage], tmp_path: Path) -> ImportedTriples:
    return ImportedTriples(
        str(write(tmp_path / "ours.jsonl", jsonl(*(each.json() for each in passages))))
    )


def hipporag(**document: Json) -> str:
    return json.dumps({"docs": [document]})[:-1] + ', "avg_ent_chars": NaN}'


def stanford(*triples: tuple[str, str, str]) -> str:
    words = [
        {"originalText": word} for word in (f"{ELM.title} {ELM.text}").replace(".", " .").split()
    ]
    openie = [
        {"subject": head, "relation": relation, "object": tail} for head, relation, tail in triples
    ]
    return json.dumps({"sentences": [{"tokens": words, "openie": openie}]})


THEIRS = {
    "hipporag": hipporag(title=ELM.title, text=ELM.text, extracted_triples=TRIPLES),
    "openie": stanford(*TRIPLES),
    "jsonl": json.dumps({"title": ELM.title, "text": ELM.text, "triples": TRIPLES}),
    "tsv": "relation\thead\ttail\ttext\ttitle\n"
    + "".join(f"{relation}\t{head}\t{tail}\t{ELM.text}\tElm\n" for head, relation, tail in TRIPLES),
}


@pytest.mark.parametrize("form", IMPORT_FORMATS)
def test_forms_of_a_passage_and_its_triples(form: Any, tmp_path: Path) -> None:
    expected = tuple(Triple(*parts, ELM.id) for parts in TRIPLES)
    assert imported(read(form, THEIRS[form], tmp_path), tmp_path).triples(ELM) == expected


def test_titles_rows_and_invalid_triples_of_files(tmp_path: Path) -> None:
    text = hipporag(idx="1", passage=f"{ELM.title}\n{ELM.text}", extracted_triples=TRIPLES)
    assert len(imported(read("hipporag", text, tmp_path), tmp_path).triples(ELM)) == 2
    names = ("head", "relation", "tail", "title", "text")
    lines = [
        json.dumps(dict(zip(names, (*row, "Elm", ELM.text), strict=True)))
        for row in (*TRIPLES, TRIPLES[0])
    ]
    (passage,) = read("jsonl", "\n".join(lines), tmp_path)
    assert passage.triples == TRIPLES
    records: list[Json] = [
        ["a", "b"], ["a", "b", "c", "d"], ["a", " ", "c"], ["a", 1, "c"], "abc", [" a ", "b\nb", "c"],
    ]  # fmt: skip
    (passage,) = read(
        "jsonl", json.dumps({"title": "T", "text": "x", "triples": records}), tmp_path
    )
    assert (passage.triples, passage.malformed) == ((("a", "b b", "c"),), 5)


def test_passages_match_by_letters_digits_and_title(tmp_path: Path) -> None:
    assert text_key("Elm", "A mill - and a Bridge.") == text_key("elm", "a mill-and a bridge")
    assert text_key("Elm", "a mill") != text_key("Elm", "a mall")
    assert text_key("—", "…") == b""
    untitled = imported([TripledPassage("", ELM.text, TRIPLES)], tmp_path)
    assert untitled.triples(ELM)
    other = imported([TripledPassage("Elm (film)", ELM.text, TRIPLES)], tmp_path)
    assert (other.missing([ELM]), other.triples(ELM)) == ([ELM], ())
    there, empty, absent = (
        ELM,
        Passage.of("Ash", "Ash is a tree."),
        Passage.of("Oak", "Oak is one, too."),
    )
    file = imported(
        [TripledPassage("Elm", ELM.text, TRIPLES), TripledPassage("Ash", empty.text, ())], tmp_path
    )
    assert file.counts([there, empty, absent]) == {
        "passages": 3,
        "unmatched": 1,
        "empty": 2,
        "triples": 2,
    }


REFUSED = {
    "no docs": ("hipporag", "{}", "no key 'docs'"),
    "docs no list": ("hipporag", '{"docs": 1}', "document 1: not in this format"),
    "no text": (
        "hipporag",
        '{"docs": [{"extracted_triples": []}]}',
        "document 1: no key 'passage'",
    ),
    "no letters": (
        "jsonl",
        '{"title": "", "text": "!", "triples": []}',
        "theirs:1: title and text contain no letters",
    ),
    "number": ("jsonl", "1", "theirs:1: not in this format"),
    "no JSON": ("openie", "{", "not JSON"),
    "no sentences": ("openie", "{}", "theirs:1: no key 'sentences'"),
    "no column": ("tsv", "head\ttail\n", "theirs:1: no column relation. Name the columns"),
    "short line": (
        "tsv",
        "head\trelation\ttail\ttext\na\tb\n",
        "theirs:2: 2 columns, the first line has 4",
    ),
    "empty": ("jsonl", "", "the file is empty"),
}


def test_missing_or_damaged_own_file_is_reported(tmp_path: Path) -> None:
    for form, text, message in REFUSED.values():
        with pytest.raises(DataError, match=message):
            read(form, text, tmp_path)
    file = tmp_path / "ours.jsonl"
    for path, message in ((None, "kg.path=null: name"), (str(file), "ours.jsonl: no such")):
        with pytest.raises(ConfigError, match=f"{message}.*kgqa kg import FILE"):
            _ = ImportedTriples(path).sha256
    for line, message in (
        ('{"title": "a", "text": "b"}', ":1: no key 'triples'"),
        (
            '{"title": "a", "text": "b", "triples": [["a", "b"]]}',
            "passage 'a': 1 triples are not three texts",
        ),
        ("no", ":1: not JSON"),
    ):
        file.write_text(f"{line}\n")
        with pytest.raises(DataError, match=message):
            ImportedTriples(str(file)).triples(ELM)


EXPORTED = (
    Passage.of('The "Elm", & <co>', "Elm is a town; it has\ta mill."),
    Passage.of("Ash\x02", "Ash is a tree — 楡.", ("Ash is a tree — 楡.",)),
    Passage.of("Oak", "Nothing is said of it."),
)
GRAPH = {
    EXPORTED[0].id: (
        ('Elm, "the" town', "lies <in>", "Über & Co"),
        ("Elm, \"the\" town", "has; owns", "mill \\ 楡 😀"),
        ("it's", "next to\x03", "Elm, \"the\" town"),
    ),
    EXPORTED[1].id: (("mill \\ 楡 😀", "lies <in>", "\ud800"), ('Elm, "the" town', "lies <in>", "Über & Co")),
}  # fmt: skip
NAMESPACE = {"g": "http://graphml.graphdrawing.org/xmlns"}


def triples(passage: Passage) -> tuple[Triple, ...]:
    return tuple(Triple(*parts, passage.id) for parts in GRAPH.get(passage.id, ()))


def write_form(form: str, tmp_path: Path) -> Path:
    write_triples([(passage, triples(passage)) for passage in EXPORTED], tmp_path / form, form)
    return tmp_path / form


def test_every_export_has_every_triple(tmp_path: Path) -> None:
    file = write_form("jsonl", tmp_path)
    read_back = ImportedTriples(str(file))
    assert [read_back.triples(passage) for passage in EXPORTED] == [
        triples(passage) for passage in EXPORTED
    ]
    assert ImportedTriples(str(file)).missing(EXPORTED) == []
    assert [each.triples for each in read_passages(file, "jsonl")] == [
        GRAPH.get(each.id, ()) for each in EXPORTED
    ]
    read = read_passages(write_form("tsv", tmp_path), "tsv")
    assert [len(each.triples) for each in read] == [3, 2]
    assert read[0].triples[0] == ('Elm, "the" town', "lies <in>", "Über & Co")
    assert read[0].text == "Elm is a town; it has a mill."
    graph = ElementTree.parse(write_form("graphml", tmp_path)).getroot().find("g:graph", NAMESPACE)
    assert graph is not None
    names = {
        node.get("id"): node.findtext("g:data", "", NAMESPACE)
        for node in graph.findall("g:node", NAMESPACE)
    }
    assert len(set(names.values())) == len(names)
    counts = Counter[tuple[str, str, str, str]]()
    for edge in graph.findall("g:edge", NAMESPACE):
        data = {each.get("key"): each.text or "" for each in edge.findall("g:data", NAMESPACE)}
        counts[
            names[edge.get("source")], data["relation"], names[edge.get("target")], data["passage"]
        ] += 1
    ids = [edge.get("id") for edge in graph.findall("g:edge", NAMESPACE)]
    assert len(set(ids)) == len(ids)
    clean = str.maketrans("\x03\ud800", "\ufffd\ufffd")
    assert counts == Counter(
        (*(part.translate(clean) for part in row), id_) for id_ in GRAPH for row in GRAPH[id_]
    )


@pytest.mark.parametrize(
    ("completion", "flags", "count", "is_read"),
    [
        pytest.param("<Elm; has; a mill>", {}, 1, True, id="triple"),
        pytest.param("<Elm; has; a mill>\n<Elm; has>", {}, 1, True, id="triple and short triple"),
        pytest.param("<Elm; has>", {}, 0, False, id="short triple"),
        pytest.param("", {}, 0, True, id="no triples"),
        pytest.param("", {UNREADABLE: 1}, 0, False, id="unreadable reply"),
    ],
)
def test_index_extraction_reports_unreadable_replies(
    completion: str, flags: dict[str, int], count: int, is_read: bool
) -> None:
    class Fixed:
        async def extract(self, passage: Passage) -> Extraction:
            return Extraction(completion, flags=flags)

    passage = Passage.of("Elm", "Elm has a mill.")
    extracted = drive(RetrieverTriples("", extractor=Fixed()).extract(passage), None)  # type: ignore[arg-type]
    assert (len(extracted[0]), extracted[1]) == (count, is_read)


@pytest.mark.parametrize(
    ("count", "attempted", "is_error"),
    [
        (0, 1, False),
        (1, 1, True),
        (1, 2, False),
        (2, 2, True),
        (5, 100, False),
        (6, 100, True),
        (2, 39, True),
    ],
)
def test_extraction_may_fail_for_a_twentieth(count: int, attempted: int, is_error: bool) -> None:
    error = too_many_failed([f"Title {number}: no" for number in range(count)], attempted)
    assert (error is not None) == is_error
    if error:
        assert f"extraction failed for {count} of {attempted} passages, first Title 0: no" in str(
            error
        )


@pytest.mark.parametrize("form", EXPORT_FORMATS)
def test_export_does_not_replace_a_file(form: Any, tmp_path: Path) -> None:
    (tmp_path / form).write_text("mine")
    with pytest.raises(ConfigError, match="this file exists"):
        write_form(form, tmp_path)
    assert (tmp_path / form).read_text() == "mine"

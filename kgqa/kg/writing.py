"""Triples for other programs: JSON lines, GraphML, Turtle, and the two CSV files of neo4j-admin.

A graph has a node for each entity, told apart by its exact words, and an edge for each triple, which says the passage
it was read in. Nothing is in memory but the entities' names.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

from kgqa.errors import ConfigError
from kgqa.kg.imported import TripledPassage
from kgqa.storage import OUT_ELSEWHERE, made, replace_with_parts, storing
from kgqa.types import Passage, Triple

Triples = Callable[[Passage], tuple[Triple, ...]]
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # for XML, and for UTF-8
GRAPHML = '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
KEYS = (("name", "node"), ("relation", "edge"), ("passage", "edge"), ("title", "edge"))
TURTLE = """\
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix dcterms: <http://purl.org/dc/terms/> .
"""


class Entities:
    """Numbers of entities, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def new(self, triples: Iterable[Triple]) -> list[tuple[int, str]]:
        """Those that were not there yet, each once."""
        added: list[tuple[int, str]] = []
        for triple in triples:
            for name in (triple.head, triple.tail):
                if name not in self._numbers:
                    added.append((len(self._numbers), name))
                    self._numbers[name] = len(self._numbers)
        return added

    def __getitem__(self, name: str) -> int:
        return self._numbers[name]


def jsonl_lines(passages: Iterable[Passage], triples: Triples) -> Iterator[str]:
    """A passage a line, those without triples too: what `kg=imported` reads."""
    for passage in passages:
        parts = tuple((each.head, each.relation, each.tail) for each in triples(passage))
        yield json.dumps(TripledPassage(passage.title, passage.text, parts).json(), ensure_ascii=False) + "\n"


def graphml_parts(passages: Iterable[Passage], triples: Triples) -> Iterator[str]:
    entities, edges = Entities(), 0
    yield GRAPHML
    for name, kind in KEYS:
        yield f'<key id="{name}" for="{kind}" attr.name="{name}" attr.type="string"/>\n'
    yield '<graph id="triples" edgedefault="directed">\n'
    for passage in passages:
        extracted = triples(passage)
        for number, name in entities.new(extracted):
            yield f'<node id="n{number}"><data key="name">{_xml(name)}</data></node>\n'
        for triple in extracted:
            ends = f'source="n{entities[triple.head]}" target="n{entities[triple.tail]}"'
            said = (("relation", triple.relation), ("passage", passage.id), ("title", passage.title))
            told = "".join(f'<data key="{key}">{_xml(text)}</data>' for key, text in said)
            yield f'<edge id="e{edges}" {ends}>{told}</edge>\n'
            edges += 1
    yield "</graph>\n</graphml>\n"


def turtle_parts(passages: Iterable[Passage], triples: Triples) -> Iterator[str]:
    """Entities, relations and passages by IRIs of their words; a statement about each triple names its passage."""
    entities, relations = Entities(), set[str]()
    yield TURTLE
    for passage in passages:
        extracted = triples(passage)
        if extracted:
            yield f"<urn:kgqa:passage:{passage.id}> dcterms:title {_literal(passage.title)} .\n"
        for _, name in entities.new(extracted):
            yield f"{_iri('entity', name)} rdfs:label {_literal(name)} .\n"
        for triple in extracted:
            if triple.relation not in relations:
                relations.add(triple.relation)
                yield f"{_iri('relation', triple.relation)} rdfs:label {_literal(triple.relation)} .\n"
            head, relation = _iri("entity", triple.head), _iri("relation", triple.relation)
            tail = _iri("entity", triple.tail)
            yield f"{head} {relation} {tail} .\n"
            yield (
                f"[] a rdf:Statement ; rdf:subject {head} ; rdf:predicate {relation} ; rdf:object {tail} ; "
                f"dcterms:source <urn:kgqa:passage:{passage.id}> .\n"
            )


def neo4j_nodes(passages: Iterable[Passage], triples: Triples) -> Iterator[str]:
    """nodes.csv of `neo4j-admin database import`: its header says what is the id, a property, a label."""
    entities = Entities()
    yield _csv_row("entity:ID", "name", ":LABEL")
    for passage in passages:
        for number, name in entities.new(triples(passage)):
            yield _csv_row(str(number), name, "Entity")


def neo4j_relationships(passages: Iterable[Passage], triples: Triples) -> Iterator[str]:
    """relationships.csv. All of one type: relations are words of texts, and a database has room for 65,000 types."""
    entities = Entities()
    yield _csv_row(":START_ID", ":END_ID", "relation", "passage", "title", ":TYPE")
    for passage in passages:
        extracted = triples(passage)
        entities.new(extracted)
        for each in extracted:
            ends = (str(entities[each.head]), str(entities[each.tail]))
            yield _csv_row(*ends, each.relation, passage.id, " ".join(passage.title.split()), "RELATION")


Written = Callable[[Iterable[Passage], Triples], Iterator[str]]
FORMATS: Mapping[str, Mapping[str, Written]] = {  # as in kgqa/commands/kg_files.py; "": --out is the file itself
    "jsonl": {"": jsonl_lines},
    "graphml": {"": graphml_parts},
    "turtle": {"": turtle_parts},
    "neo4j": {"nodes.csv": neo4j_nodes, "relationships.csv": neo4j_relationships},
}


def write_triples(passages: Callable[[], Iterable[Passage]], triples: Triples, out: Path, form: str) -> list[Path]:
    """In one of `FORMATS`; gives the files. `passages`: distinct, asked for once a file.

    Raises:
        ConfigError: something is there already.
        StorageError: the disk is full or refuses.
    """
    files = {out / name if name else out: parts for name, parts in FORMATS[form].items()}
    if out.exists() and not (out.is_dir() and out not in files and not any(out.iterdir())):
        raise ConfigError(f"--out {out}: is there already; give another name")
    for file, parts in files.items():
        with storing(file.parent, OUT_ELSEWHERE):
            made(file.parent)
        replace_with_parts(file, parts(passages(), triples), OUT_ELSEWHERE)
    return list(files)


def _xml(text: str) -> str:
    return escape(_UNFIT.sub("\ufffd", text))


def _iri(kind: str, words: str) -> str:
    return f"<urn:kgqa:{kind}:{quote(words.encode('utf-8', 'replace'), safe='')}>"


def _literal(text: str) -> str:
    """JSON's escapes are Turtle's, too, but for characters beyond 16 bits, which stand as they are."""
    return json.dumps(_UNFIT.sub("\ufffd", text), ensure_ascii=False)


def _csv_row(*cells: str) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow([_UNFIT.sub("\ufffd", cell) for cell in cells])
    return row.getvalue()

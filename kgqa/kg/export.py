"""Write triples for other programs: JSON lines, TSV and GraphML.

A GraphML graph has a node per entity (equal words are one entity) and an edge per triple with its passage. Only the
names of entities are in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from kgqa.errors import ConfigError
from kgqa.kg.imported import TripledPassage
from kgqa.types import Passage, Triple
from kgqa.util.fs import OUT_ELSEWHERE, ensure_dir, explain_storage_errors, replace_file_parts

Triples = Callable[[Passage], tuple[Triple, ...]]
COLUMNS = ("head", "relation", "tail", "title", "text")
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # and not in UTF-8
GRAPHML = '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
KEYS = (("name", "node"), ("relation", "edge"), ("passage", "edge"), ("title", "edge"))


def jsonl_lines(passages: Iterable[Passage], triples: Triples) -> Iterator[str]:
    """Yield one line per passage, also for passages without triples: the format of `kg=imported`."""
    for passage in passages:
        parts = tuple((each.head, each.relation, each.tail) for each in triples(passage))
        yield json.dumps(TripledPassage(passage.title, passage.text, parts).json(), ensure_ascii=False) + "\n"


def tsv_lines(passages: Iterable[Passage], triples: Triples) -> Iterator[str]:
    """Yield a header and one line per triple; tabs and line ends in texts become spaces."""
    yield "\t".join(COLUMNS) + "\n"
    for passage in passages:
        for triple in triples(passage):
            cells = (triple.head, triple.relation, triple.tail, passage.title, passage.text)
            yield "\t".join(" ".join(NOT_IN_XML.sub("\ufffd", cell).split()) for cell in cells) + "\n"


def graphml_parts(passages: Iterable[Passage], triples: Triples) -> Iterator[str]:
    entities, edges = dict[str, int](), 0
    yield GRAPHML
    for name, kind in KEYS:
        yield f'<key id="{name}" for="{kind}" attr.name="{name}" attr.type="string"/>\n'
    yield '<graph id="triples" edgedefault="directed">\n'
    for passage in passages:
        for triple in triples(passage):
            for name in (triple.head, triple.tail):
                if name not in entities:
                    entities[name] = len(entities)
                    yield f'<node id="n{entities[name]}"><data key="name">{_xml(name)}</data></node>\n'
            ends = f'source="n{entities[triple.head]}" target="n{entities[triple.tail]}"'
            data = (("relation", triple.relation), ("passage", passage.id), ("title", passage.title))
            texts = "".join(f'<data key="{key}">{_xml(text)}</data>' for key, text in data)
            yield f'<edge id="e{edges}" {ends}>{texts}</edge>\n'
            edges += 1
    yield "</graph>\n</graphml>\n"


FORMATS: Mapping[str, Callable[[Iterable[Passage], Triples], Iterator[str]]] = {  # as in kgqa/cli/kg.py
    "jsonl": jsonl_lines,
    "tsv": tsv_lines,
    "graphml": graphml_parts,
}


def write_triples(passages: Iterable[Passage], triples: Triples, out: Path, form: str) -> Path:
    """Write the triples of distinct passages in one of `FORMATS`.

    Raises:
        ConfigError: the file exists.
        StorageError: the disk is full or not writable.
    """
    if out.exists():
        raise ConfigError(f"--out {out}: exists already; use another name")
    with explain_storage_errors(out.parent, OUT_ELSEWHERE):
        ensure_dir(out.parent)
    return replace_file_parts(out, FORMATS[form](passages, triples), OUT_ELSEWHERE)


def _xml(text: str) -> str:
    return escape(NOT_IN_XML.sub("\ufffd", text))

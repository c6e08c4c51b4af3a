"""What `kgqa kg` does beyond extracting: triples of others brought in, triples given out, a part of them shown."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import Parser, rows
from kgqa.errors import ConfigError
from kgqa.inert import inert

READ = {
    "hipporag": "docs with extracted_triples, plain or gzipped",
    "openie": "Stanford CoreNLP's JSON: sentences with openie and tokens",
    "jsonl": "a line a passage with title, text and triples; or a line a triple with head, relation, tail, title, text",
    "tsv": "a first line of names: head, relation, tail, text and, where there are, title",
}
WRITTEN = {
    "jsonl": "a line a passage with title, text and triples: what kg=imported reads",
    "graphml": "for Gephi, Cytoscape, networkx",
    "turtle": "RDF, with a statement for each triple that names its passage",
    "neo4j": "a folder with nodes.csv and relationships.csv for neo4j-admin database import full",
}
PRIVATE = "jsonl holds the passages' texts, the others titles and triples: where documents are private, so is the file."


def arguments(parser: Parser) -> None:
    brought = parser.command("import", "triples that others made, as a file that runs read: kg=imported kg.path=FILE")
    brought.takes_places("FILE", "what another program wrote")
    brought.takes_keys("of a dataset, e.g. dataset=musique: says how many of its passages the file has")
    brought.add_argument("--format", metavar="FORM", choices=tuple(READ), required=True, help=", ".join(READ))
    brought.add_argument(
        "--out", metavar="FILE", type=Path, help="what is written; outputs/kg/imported/NAME.jsonl unless given"
    )
    brought.notes = f"forms:\n{rows(READ.items())}"
    brought.examples = (
        "kgqa kg import openie.json --format hipporag",
        "kgqa kg import openie.json --format hipporag --out mine.jsonl dataset=musique",
    )
    given = parser.command("export", "triples that are there for other programs: JSON lines, GraphML, Turtle, Neo4j")
    given.takes_keys()
    given.add_argument("--out", metavar="PATH", type=Path, required=True, help="a file; of neo4j a folder")
    given.add_argument("--format", metavar="FORM", choices=tuple(WRITTEN), default="jsonl", help=", ".join(WRITTEN))
    given.add_argument(
        "--corpus", action="store_true", help="of every passage of dataset.corpus, not of the questions'"
    )
    given.notes = f"forms, jsonl unless given:\n{rows(WRITTEN.items())}\n\n{PRIVATE}"
    given.examples = (
        "kgqa kg export dataset=demo limit=3 --format graphml --out demo.graphml",
        "kgqa kg export kg=imported kg.path=mine.jsonl dataset=musique --format neo4j --out neo4j",
    )
    shown = parser.command("show", "the triples of a question, or what surrounds an entity")
    shown.takes_places("NAME", "a question's id, or an entity of the questions' passages")
    shown.takes_keys()
    shown.add_argument("--hops", metavar="N", type=int, default=1, help="from the entity; 1 unless given")
    shown.add_argument("--out", metavar="FILE", type=Path, help="a page with the picture, e.g. part.html")
    shown.add_argument("--open", action="store_true", help="the page in the browser; outputs/kg/part.html unless --out")
    shown.examples = (
        "kgqa kg show 2hop__demo_01 dataset=demo",
        "kgqa kg show Halverby dataset=demo --hops 2 --open",
    )


def bring_in(given: Namespace) -> int:
    from kgqa.kg.importing import FORMATS, joined
    from kgqa.storage import OUT_ELSEWHERE, jsonl_text, outputs, replace_with_parts

    source = Path(given.places[0])
    name = re.sub(r"(\.(jsonl?|tsv|txt|gz))+$", "", source.name) or "triples"
    out = given.out or outputs() / "kg" / "imported" / f"{name}.jsonl"
    if out.exists():
        raise ConfigError(f"--out {out}: is there already; give another name")
    passages = joined(FORMATS[given.format](source))
    triples, empty = sum(len(each.triples) for each in passages), sum(not each.triples for each in passages)
    if not triples:
        raise ConfigError(f"{source}: no triples in it; is --format {given.format} the right one?")
    replace_with_parts(out, (jsonl_text([each.json()]) for each in passages), OUT_ELSEWHERE)
    print(inert(f"{len(passages):,} passages ({empty:,} without triples), {triples:,} triples"))
    if malformed := sum(each.malformed for each in passages):
        print(inert(f"{malformed:,} left out: not of three texts"))
    if given.overrides:
        _tell_of_dataset(given.overrides, out)
    print(inert(f"a run's key: kg=imported kg.path={out}"))
    return 0


def _tell_of_dataset(overrides: list[str], out: Path) -> None:
    from kgqa.experiment.prepare.triples import distinct_passages
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.kg.imported_file import ImportedFile

    counts = ImportedFile(str(out)).counts(distinct_passages(Experiment.of(overrides).questions))
    matched = counts["passages"] - counts["unmatched"]
    of = f"{counts['passages']:,} passages of the questions"
    print(inert(f"{matched:,} of {of} are in it, with {counts['triples']:,} triples"))


def give_out(given: Namespace) -> int:
    from kgqa.experiment.prepare.given_triples import triples_of
    from kgqa.experiment.prepare.triples import distinct_passages
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.kg.writing import write_triples

    with Session(Experiment.of([*given.overrides, "kg.offline=true"])) as session:
        dataset, questions = session.experiment.dataset, session.experiment.questions
        source = triples_of(session)
        files = write_triples(
            lambda: dataset.passages() if given.corpus else distinct_passages(questions),
            source.store.triples, given.out, given.format,
        )  # fmt: skip
    for file in files:
        print(inert(str(file)))
    return 0


def show(given: Namespace) -> int:
    import webbrowser

    from kgqa.experiment.prepare.graph_part import graph_part
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.report.neighbourhood import part_lines, part_page
    from kgqa.storage import outputs, replace_with_parts
    from kgqa.terminal.console import Terminal

    terminal = Terminal(width=None)
    with Session(Experiment.of([*given.overrides, "kg.offline=true"])) as session:
        part = graph_part(session, given.places[0], given.hops)
    for line in (part.heading, *part_lines(part), part.told):
        terminal.line(line)
    if given.out or given.open:
        page = replace_with_parts(given.out or outputs() / "kg" / "part.html", part_page(part))
        terminal.line(str(page))
        if given.open:
            webbrowser.open(page.resolve().as_uri())  # does nothing where there is no browser
    return 0

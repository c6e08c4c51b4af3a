"""`kgqa kg`: extract, import, export and show the triples of a dataset's passages."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from kgqa.cli import graph
from kgqa.cli.parsing import Parser, rows
from kgqa.errors import ConfigError
from kgqa.util.terminal_text import escape_control
from kgqa.util.text import pluralize

NAME = "kg"
SUMMARY = "triples of passages: build, import, export and show them, their stats"
IMPORT_FORMATS = {
    "hipporag": "docs with extracted_triples, plain or gzipped",
    "openie": "Stanford CoreNLP's JSON: sentences with openie and tokens",
    "jsonl": "a line a passage with title, text and triples; or a line a triple with head, relation, tail, title, text",
    "tsv": "a header with head, relation, tail, text and perhaps title; a line a triple",
}
EXPORT_FORMATS = {
    "jsonl": "a line a passage with title, text and triples, as kg=imported reads it",
    "tsv": "a line a triple with head, relation, tail, title, text",
    "graphml": "for Gephi, Cytoscape, networkx",
}
PRIVATE = "jsonl and tsv contain the texts of the passages, graphml their titles: keep the file as private as they are."


def arguments(parser: Parser) -> None:
    build = parser.command("build", "extract the triples of the questions' passages, or of the whole corpus")
    build.takes_keys()
    build.add_argument(
        "--corpus", action="store_true",
        help="every passage of dataset.corpus instead of those of the questions; limit counts passages",
    )  # fmt: skip
    build.add_argument(
        "--ray", action="store_true",
        help="extract the corpus with Ray workers, on this machine or on the cluster of RAY_ADDRESS",
    )  # fmt: skip
    build.add_argument("--workers", metavar="N", type=int, help="number of Ray workers (default: 1)")
    build.add_argument("--gpus", metavar="N", type=int, help="GPUs per worker (default: 0)")
    parser.examples = build.examples = (
        "kgqa kg build dataset=demo limit=3",
        "kgqa kg build dataset=musique --corpus --ray --workers 4 --gpus 1",
    )
    stats = parser.command("stats", "figures per question of the existing triples (TRACE, Table 5)")
    stats.takes_keys()
    stats.examples = ("kgqa kg stats dataset=demo limit=3",)
    graph.arguments(parser)
    _file_arguments(parser)
    show = parser.command("show", "show the triples of a question, or those near an entity")
    show.takes_places("NAME", "a question's id, or an entity of the questions' passages")
    show.takes_keys()
    show.add_argument("--hops", metavar="N", type=int, default=1, help="distance from the entity (default: 1)")
    show.add_argument("--out", metavar="FILE", type=Path, help="write a page with the graph, e.g. part.html")
    show.add_argument(
        "--open", action="store_true", help="open the page in the browser (default: outputs/kg/part.html)"
    )
    show.examples = (
        "kgqa kg show 2hop__demo_01 dataset=demo",
        "kgqa kg show Halverby dataset=demo --hops 2 --open",
    )


def _file_arguments(parser: Parser) -> None:
    importer = parser.command("import", "convert triples of other programs for runs: kg=imported kg.path=FILE")
    importer.takes_places("FILE", "the output of another program")
    importer.takes_keys("of a dataset, e.g. dataset=musique: count how many of its passages the file has")
    importer.add_argument(
        "--format", metavar="FORM", choices=tuple(IMPORT_FORMATS), required=True, help=", ".join(IMPORT_FORMATS)
    )
    importer.add_argument(
        "--out", metavar="FILE", type=Path, help="output file (default: outputs/kg/imported/NAME.jsonl)"
    )
    importer.notes = f"forms:\n{rows(IMPORT_FORMATS.items())}"
    importer.examples = (
        "kgqa kg import openie.json --format hipporag",
        "kgqa kg import openie.json --format hipporag --out mine.jsonl dataset=musique",
    )
    export = parser.command("export", "write existing triples for other programs: JSON lines, TSV, GraphML")
    export.takes_keys()
    export.add_argument("--out", metavar="FILE", type=Path, required=True, help="output file")
    export.add_argument(
        "--format", metavar="FORM", choices=tuple(EXPORT_FORMATS), default="jsonl", help=", ".join(EXPORT_FORMATS)
    )
    export.add_argument(
        "--corpus", action="store_true", help="every passage of dataset.corpus instead of those of the questions"
    )
    export.notes = f"forms (default: jsonl):\n{rows(EXPORT_FORMATS.items())}\n\n{PRIVATE}"
    export.examples = (
        "kgqa kg export dataset=demo limit=3 --format graphml --out demo.graphml",
        "kgqa kg export kg=imported kg.path=mine.jsonl dataset=musique --format tsv --out triples.tsv",
    )


def run(given: Namespace) -> int:
    actions = {
        "build": build,
        "stats": show_statistics,
        "import": import_triples,
        "export": export_triples,
        "show": show_part,
        "link": graph.build,
        "link-stats": graph.stats,
        "link-quality": graph.quality,
    }
    return actions[given.action](given)


def build(given: Namespace) -> int:
    for option, least in (("workers", 1), ("gpus", 0)):
        value = getattr(given, option)
        if value is not None and not given.ray:
            raise ConfigError(f"--{option}={value}: only with --ray")
        if value is not None and value < least:
            raise ConfigError(f"--{option}={value}: must be at least {least}")
    overrides = [*given.overrides, "kg.require_existing=false"]
    return _build_corpus(overrides, given) if given.ray or given.corpus else _extract(overrides)


def _build_corpus(overrides: Sequence[str], given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.figures import show_figures
    from kgqa.experiment.prepare.corpus import build_corpus, extract_here
    from kgqa.experiment.prepare.ray_workers import extract_by_workers
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines

    extract = extract_by_workers(given.workers or 1, given.gpus or 0) if given.ray else extract_here
    terminal = Terminal(width=120)
    with log_lines(terminal), Session(Experiment.of(overrides)) as session:
        show_figures(("corpus", "sum"), build_corpus(session, extract, terminal), terminal)
    return 0


def show_statistics(given: Namespace) -> int:
    """Show the figures without model calls."""
    return _extract([*given.overrides, "kg.require_existing=true"], existing=True)


def _extract(overrides: Sequence[str], *, existing: bool = False) -> int:
    """Extract the missing triples of the questions' passages, and show the figures of all."""
    from contextlib import nullcontext

    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.figures import show_figures
    from kgqa.experiment.prepare.given_triples import triples_of
    from kgqa.experiment.prepare.triples import TripleBuilder
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines
    from kgqa.runtime.monitor import monitor_work

    terminal = Terminal(width=120)
    with log_lines(terminal), Session(Experiment.of(overrides)) as session:
        questions = session.experiment.questions
        source = triples_of(session) if existing else TripleBuilder(session)
        if isinstance(source, TripleBuilder):
            watch = nullcontext(terminal) if existing else monitor_work(terminal, "kg build", source.store.folder)
            with watch as display:
                source.extract(questions, display)
        figures = source.statistics(questions)
        show_figures(
            ("per question (TRACE, Table 5)", "mean"), figures, terminal, pluralize(len(questions), "question")
        )
        if isinstance(source, TripleBuilder):
            source.store.write_statistics({"questions": len(questions), **figures})
    return 0


def import_triples(given: Namespace) -> int:
    from kgqa.kg.importers import FORMATS, join_passages
    from kgqa.util.fs import OUT_ELSEWHERE, jsonl_text, outputs, replace_file_parts

    source = Path(given.places[0])
    name = re.sub(r"(\.(jsonl?|tsv|txt|gz))+$", "", source.name) or "triples"
    out = given.out or outputs() / "kg" / "imported" / f"{name}.jsonl"
    if out.exists():
        raise ConfigError(f"--out {out}: exists already; use another name")
    passages = join_passages(FORMATS[given.format](source))
    triples, empty = sum(len(each.triples) for each in passages), sum(not each.triples for each in passages)
    if not triples:
        raise ConfigError(f"{source}: no triples in it; is --format {given.format} the right one?")
    replace_file_parts(out, (jsonl_text([each.json()]) for each in passages), OUT_ELSEWHERE)
    print(escape_control(f"{len(passages):,} passages ({empty:,} without triples), {triples:,} triples"))
    if malformed := sum(each.malformed for each in passages):
        print(escape_control(f"{malformed:,} skipped: not three texts"))
    if given.overrides:
        _count_passages(given.overrides, out)
    print(escape_control(f"use them in a run: kg=imported kg.path={out}"))
    return 0


def _count_passages(overrides: list[str], out: Path) -> None:
    """Print how many passages of a dataset the file has."""
    from kgqa.experiment.prepare.triples import distinct_passages
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.kg.imported import ImportedFile

    counts = ImportedFile(str(out)).counts(distinct_passages(Experiment.of(overrides).questions))
    matched = counts["passages"] - counts["unmatched"]
    of = f"{counts['passages']:,} passages of the questions"
    print(escape_control(f"{matched:,} of {of} are in it, with {counts['triples']:,} triples"))


def export_triples(given: Namespace) -> int:
    from kgqa.experiment.prepare.given_triples import triples_of
    from kgqa.experiment.prepare.triples import distinct_passages
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.kg.export import write_triples

    with Session(Experiment.of([*given.overrides, "kg.require_existing=true"])) as session:
        experiment = session.experiment
        passages = experiment.dataset.passages() if given.corpus else distinct_passages(experiment.questions)
        file = write_triples(passages, triples_of(session).store.triples, given.out, given.format)
    print(escape_control(str(file)))
    return 0


def show_part(given: Namespace) -> int:
    import webbrowser

    from kgqa.cli.terminal.console import Terminal
    from kgqa.experiment.prepare.graph_part import graph_part
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.report.neighbourhood import part_lines, part_page
    from kgqa.util.fs import outputs, replace_file_parts

    terminal = Terminal(width=None)
    with Session(Experiment.of([*given.overrides, "kg.require_existing=true"])) as session:
        part = graph_part(session, given.places[0], given.hops)
    for line in (part.heading, *part_lines(part), part.told):
        terminal.line(line)
    if given.out or given.open:
        page = replace_file_parts(given.out or outputs() / "kg" / "part.html", part_page(part))
        terminal.line(str(page))
        if given.open:
            webbrowser.open(page.resolve().as_uri())  # does nothing if there is no browser
    return 0

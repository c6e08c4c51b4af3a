"""`kgqa kg`: triples of passages and KGP's graphs of passages."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from kgqa.cli.dry_run import show_plan
from kgqa.cli.terminal import Terminal
from kgqa.config.files import groups
from kgqa.datasets.passages import distinct_passages
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.dry_run import plan_extraction
from kgqa.experiment.prepare.passage_graphs import PassageGraphs
from kgqa.experiment.prepare.triples import (
    corpus_passages,
    describe_triples,
    extract_all,
    measure_graphs,
    prepare_triples,
    read_triples,
)
from kgqa.experiment.session import Session
from kgqa.kg.exchange import ImportedTriples, read_passages, write_triples
from kgqa.report.section import cell_text
from kgqa.reproduce.tables import find_published
from kgqa.runtime.display import QUIET, Display
from kgqa.runtime.monitor import KG_BUILD, monitor_work
from kgqa.types import Json
from kgqa.util.fs import jsonl_text, replace_file
from kgqa.util.places import outputs
from kgqa.util.text import pluralize


def build(args: Namespace, terminal: Terminal) -> None:
    """Extract the triples of the questions' passages, or of the corpus."""
    with Session(compose_experiment(args.overrides)) as session:
        experiment = session.experiment
        experiment.extractor  # noqa: B018 - raises an error if the triples are imported
        if experiment.settings.dry_run:
            passages = list(
                corpus_passages(session)
                if args.corpus
                else distinct_passages(experiment.data.questions)
            )
            show_plan(plan_extraction(session, passages), len(passages), terminal, unit="passage")
            return
        with monitor_work(
            terminal, KG_BUILD, outputs() / "kg" / experiment.name("dataset")
        ) as display:
            if args.corpus:
                triples, _ = extract_all(session, lambda: corpus_passages(session), display)
                per_passage = triples.figures["triples"] / triples.figures["passages"]
                figures = {"triples_per_passage": per_passage, **triples.figures}
                terminal.table(("corpus", "sum"), _write_rows(figures))
            else:
                _show_graphs(session, terminal, display, new_calls=True)
        terminal.result(session.cache.path)


def show_statistics(args: Namespace, terminal: Terminal) -> None:
    """Show the figures of existing triples without model calls."""
    with Session(compose_experiment(args.overrides)) as session:
        _show_graphs(session, terminal, QUIET, new_calls=False)
        imported = session.experiment.triple_file
        terminal.result(imported.file if imported else session.cache.path)


def _show_graphs(
    session: Session, terminal: Terminal, display: Display, *, new_calls: bool
) -> None:
    """Show the means over the graphs of the questions."""
    questions = session.experiment.data.questions
    triples, _ = prepare_triples(session, questions, display, new_calls=new_calls)
    rows = _write_rows(describe_triples(triples, measure_graphs(session, triples), questions))
    title = pluralize(len(questions), "question")
    terminal.table(("per question (TRACE, Table 5)", "mean"), rows, title=title)


def _write_rows(figures: Mapping[str, Json]) -> list[tuple[str, str]]:
    return [(key.replace("_", " "), cell_text(value)) for key, value in figures.items()]


def link(args: Namespace, terminal: Terminal) -> None:
    """Show KGP's Table 3 over the collections of the questions. `kgqa kg link` links the missing ones before."""
    experiment = compose_experiment(args.overrides)
    if not experiment.config["choices"]["graph"]:
        raise ConfigError(f"set a graph: graph=NAME. {nearest('', groups()['graph'])}")
    dataset, questions = experiment.name("dataset"), experiment.data.questions
    with Session(experiment) as session:
        collections = PassageGraphs(session.experiment, session.linker)
        if args.command.name == "kg link":
            terminal.line(
                f"{collections.build(questions, terminal)} built, the others already existed"
            )
        if missing := collections.missing(questions):
            command = " ".join(["kgqa kg link", *args.overrides])
            raise ConfigError(f"{len(missing)} collections are not linked yet. Run: {command}")
        figures = collections.statistics(questions)
    published = find_published("kgp/table3", experiment)
    rows = []
    for key, value in figures.items():
        if key != "folder":
            ours = f"{value:,.4g}" if isinstance(value, float) else cell_text(value)
            rows.append(
                (key.replace("_", " "), ours, f"{published[key]:,.7g}" if key in published else "")
            )
    count = pluralize(len(questions), "question")
    title = f"dataset={dataset} graph={experiment.name('graph')}, {count}: means of a collection"
    terminal.table(("", "here", "KGP, Table 3 (TAGME)" if published else ""), rows, title=title)
    terminal.result(figures["folder"])


def import_triples(args: Namespace, terminal: Terminal) -> None:
    """Convert triples of another program, and count the passages of a dataset that it has."""
    if args.format is None:
        raise args.command.missing("--format FORM")
    source = Path(args.positionals[0])
    name = re.sub(r"(\.(jsonl?|tsv|txt|gz))+$", "", source.name) or "triples"
    out = args.out or outputs() / "kg" / "imported" / f"{name}.jsonl"
    if out.exists():
        raise ConfigError(f"--out {out}: this file exists. Use another name.")
    passages = read_passages(source, args.format)
    triples, empty = (
        sum(len(each.triples) for each in passages),
        sum(not each.triples for each in passages),
    )
    if not triples:
        raise ConfigError(f"{source}: no triples found. Check --format {args.format}")
    replace_file(out, (jsonl_text([each.json()]) for each in passages))
    terminal.line(f"{len(passages):,} passages ({empty:,} without triples), {triples:,} triples")
    if malformed := sum(each.malformed for each in passages):
        terminal.line(f"{malformed:,} skipped: not three texts")
    if args.overrides:
        counts = ImportedTriples(str(out)).counts(
            distinct_passages(compose_experiment(args.overrides).data.questions)
        )
        matched = counts["passages"] - counts["unmatched"]
        terminal.line(
            f"{matched:,} of {counts['passages']:,} passages of the questions are in it, with {counts['triples']:,} "
            "triples"
        )
    terminal.line(f"use them in a run: kg=imported kg.path={out}")


def export_triples(args: Namespace, terminal: Terminal) -> None:
    """Write existing triples for other programs."""
    if args.out is None:
        raise args.command.missing("--out FILE")
    with Session(compose_experiment(args.overrides)) as session:
        experiment = session.experiment
        passages = (
            experiment.data.corpus.passages()
            if args.corpus
            else distinct_passages(experiment.data.questions)
        )
        file = write_triples(read_triples(session, passages), args.out, args.format or "jsonl")
    terminal.result(file)

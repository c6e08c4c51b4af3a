"""The bodies of commands, until each stands in its file of kgqa/commands."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.collect.instructions import instructions
from kgqa.experiment.config.composing import compose, groups, yaml_text
from kgqa.experiment.prepare.corpus import build_corpus, extract_here
from kgqa.experiment.prepare.graph_quality import SEEDS, quality_curve, write_quality
from kgqa.experiment.prepare.index_check import DEPTH, SAMPLE_WORDS, known_items
from kgqa.experiment.prepare.indexes import build_index as build
from kgqa.experiment.prepare.indexes import index_folder
from kgqa.experiment.prepare.passage_graphs import PassageGraphs
from kgqa.experiment.prepare.ray_workers import extract_by_workers
from kgqa.experiment.prepare.triples import TripleBuilder
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.executing import execute
from kgqa.experiment.run.planning import Shared, planned
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.report.arguments import Parser
from kgqa.runtime.display import log_lines
from kgqa.runtime.folder import replace_file
from kgqa.terminal.console import Terminal
from kgqa.terminal.figures import show_collections, show_figures, show_quality
from kgqa.terminal.plan import show_plan
from kgqa.terminal.summary import show_summary

WIDTH = 120  # columns of a run's tables in a pipe


def run(overrides: Sequence[str]) -> int:
    """Run one experiment, or plan it with `dry_run=true`; the run's folder is the last line printed."""
    terminal, experiment = Terminal(WIDTH), Experiment.of(overrides)
    with log_lines(terminal), Session(experiment) as session:
        check(session)
        if experiment.settings.dry_run:
            show_plan(planned(session, Shared()), len(experiment.questions), terminal)
            return 0
        executed = execute(session, terminal)
    show_summary(experiment.choices, executed.metrics, executed.errors, terminal)
    terminal.line(f"report: {executed.folder / 'report.html'}")
    terminal.result(executed.folder)
    return 0


def print_configuration(overrides: Sequence[str]) -> None:
    """The configuration a command line stands for, as YAML."""
    sys.stdout.write(yaml_text({key: value for key, value in compose(overrides).items() if key != "choices"}))


def build_index(overrides: Sequence[str]) -> int:
    """`kgqa index build`: the folder is the last line printed."""
    terminal = Terminal(WIDTH)
    with log_lines(terminal), Session(Experiment.of(overrides)) as session:
        folder, started = index_folder(session), time.monotonic()
        before = folder.finished()
        manifest = build(session, terminal)
        took = "was there already" if before else f"built in {time.monotonic() - started:,.1f} s"
        terminal.line(_described(manifest) + f"; {took}")
        terminal.line(str(folder.path))
    return 0


def check_index(overrides: Sequence[str]) -> int:
    """`kgqa index check`: every file against its hash, then whether passages are found by their own first words."""
    terminal = Terminal(WIDTH)
    with log_lines(terminal), Session(Experiment.of(overrides)) as session:
        folder = index_folder(session)
        folder.verify()
        terminal.line(_described(folder.manifest()) + "; every file is as it was written")
        with closing(folder.open()) as index:
            known = known_items(index, session.experiment.settings.seed)
        first, among = (100 * count / max(known.searched, 1) for count in (known.first, known.among))
        terminal.line(
            f"{known.searched} passages searched by their first {SAMPLE_WORDS} words: {first:.1f} % found "
            f"first, {among:.1f} % among {DEPTH}"
        )
        terminal.line(str(folder.path))
    return 0


def _described(manifest: Mapping[str, Any]) -> str:
    corpus = manifest["corpus"]
    size = sum(written["bytes"] for written in manifest["files"].values()) / 1e6
    parts = [f"{corpus['count']:,} passages", f"{size:,.1f} MB"]
    for key, label in (
        ("duplicates", "identical ones left out"),
        ("equal_texts", "with the text of another"),
        ("without_text", "without text"),
    ):
        if corpus[key]:
            parts.append(f"{corpus[key]:,} {label}")
    return ", ".join(parts)


def build_triples(arguments: Sequence[str]) -> int:
    """`kgqa kg build`: extract the triples of the questions' passages, or of the whole corpus, and arrange them."""
    given = _build_arguments(arguments)
    overrides = [*given.overrides, "kg.offline=false"]
    if not given.ray and not given.corpus:
        return _extract(overrides)
    extract = extract_by_workers(given.workers, given.gpus) if given.ray else extract_here
    terminal = Terminal(WIDTH)
    with log_lines(terminal), Session(Experiment.of(overrides)) as session:
        show_figures(("corpus", "sum"), build_corpus(session, extract, terminal), terminal)
    return 0


def _build_arguments(arguments: Sequence[str]) -> Namespace:
    parser = Parser("kgqa kg build", description="Extract the triples of a dataset's passages ahead of a run.")
    parser.add_argument("overrides", metavar="key=value", nargs="*", help="as for kgqa run")
    parser.add_argument(
        "--corpus", action="store_true",
        help="every passage of dataset.corpus instead of those that come with the questions; limit counts passages",
    )  # fmt: skip
    parser.add_argument(
        "--ray", action="store_true",
        help="the corpus by workers of Ray, each with a model of its own, on this machine or on RAY_ADDRESS's cluster",
    )  # fmt: skip
    parser.add_argument("--workers", metavar="N", type=int, help="of Ray; 1 unless given")
    parser.add_argument("--gpus", metavar="N", type=int, help="for each worker; 0 unless given")
    given = parser.parse_intermixed_args(arguments)
    for option, least, unless_given in (("workers", 1, 1), ("gpus", 0, 0)):
        value = getattr(given, option)
        if value is not None and not given.ray:
            raise ConfigError(f"--{option}={value}: only with --ray")
        if value is not None and value < least:
            raise ConfigError(f"--{option}={value}: must be at least {least}")
        setattr(given, option, unless_given if value is None else value)
    return given


def print_statistics(overrides: Sequence[str]) -> int:
    """`kgqa kg stats`: figures of what is extracted already; asks no model."""
    return _extract([*overrides, "kg.offline=true"])


def _extract(overrides: Sequence[str]) -> int:
    terminal = Terminal(WIDTH)
    with log_lines(terminal), Session(Experiment.of(overrides)) as session:
        builder, questions = TripleBuilder(session), session.experiment.questions
        builder.extract(questions, terminal)
        builder.store.arrange()
        figures = builder.statistics(questions)
        show_figures(("per question (TRACE, Table 5)", "mean"), figures, terminal, f"{len(questions)} questions")
        builder.store.write_statistics({"questions": len(questions), **figures})
    return 0


def build_graphs(overrides: Sequence[str]) -> int:
    """`kgqa graph build`: link the collections of a dataset's questions ahead of a run."""
    return _graph_statistics(overrides, build=True)


def graph_statistics(overrides: Sequence[str]) -> int:
    """`kgqa graph stats`: the figures of the paper's Table 3 over the collections whose graphs are built."""
    return _graph_statistics(overrides, build=False)


def _graph_statistics(overrides: Sequence[str], *, build: bool) -> int:
    terminal, experiment = Terminal(WIDTH), Experiment.of(overrides)
    if not experiment.config["choices"]["graph"]:
        raise ConfigError(f"kgqa graph needs a graph=; {nearest('', groups()['graph'])}")
    dataset, questions = experiment.name("dataset"), experiment.questions
    with log_lines(terminal), Session(experiment) as session:
        collections = PassageGraphs(session)
        if build:
            terminal.line(f"{collections.build(questions, terminal)} built, the others were there")
        if missing := collections.missing(questions):
            own = " ".join(overrides)
            raise ConfigError(f"{len(missing)} collections are not linked yet; run: kgqa graph build {own}".rstrip())
        title = f"dataset={dataset} graph={experiment.name('graph')}, {len(questions)} questions: means of a collection"
        show_collections(collections.statistics(questions), dataset, title, terminal)
    return 0


def measure_quality(arguments: Sequence[str]) -> int:
    """Print a table and write it as CSV, with a picture."""
    parser = Parser(prog="kgqa graph quality", description=measure_quality.__doc__)
    parser.add_argument("--values", help="of the key that makes the graph denser, e.g. 1,2,5,10")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"passages found by TF-IDF; default {SEEDS}")
    given, overrides = parser.parse_known_args(arguments)
    if given.seeds < 1:
        raise ConfigError(f"--seeds={given.seeds}: must be at least 1")
    terminal = Terminal(WIDTH)
    with log_lines(terminal):
        curve = quality_curve(overrides, given.values.split(",") if given.values else None, given.seeds, terminal)
    show_quality(curve, terminal)
    for file in write_quality(curve):
        terminal.line(str(file))
    return 0


def export_instructions(arguments: Sequence[str]) -> int:
    parser = Parser(prog="kgqa kgp export-instructions", description=instructions.__doc__)
    parser.add_argument("--out", type=Path, help="the file; without it, standard output")
    given, overrides = parser.parse_known_args(arguments)
    texts = instructions(Experiment.of(["method=kgp", *overrides]))
    lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in texts.lines]
    if given.out:
        replace_file(given.out, "".join(lines))
    else:
        sys.stdout.writelines(lines)
    counts = [f"{len(lines):,} lines from {texts.questions:,} questions"]
    if texts.left_out:
        counts.append(f"{texts.left_out:,} left out, which name fewer than two facts in order")
    sys.stderr.write("; ".join(counts) + "\n")
    return 0

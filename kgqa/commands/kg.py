"""`kgqa kg`: the triples of a dataset's passages."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from kgqa.commands import kg_files
from kgqa.commands.parsing import Parser
from kgqa.counting import counted
from kgqa.errors import ConfigError

NAME = "kg"
SUMMARY = "triples of passages: build, import, export and show them, their stats"


def arguments(parser: Parser) -> None:
    build = parser.command("build", "extract the triples of the questions' passages, or of the whole corpus")
    build.takes_keys()
    build.add_argument(
        "--corpus", action="store_true",
        help="every passage of dataset.corpus instead of those that come with the questions; limit counts passages",
    )  # fmt: skip
    build.add_argument(
        "--ray", action="store_true",
        help="the corpus by workers of Ray, each with a model of its own, on this machine or on RAY_ADDRESS's cluster",
    )  # fmt: skip
    build.add_argument("--workers", metavar="N", type=int, help="of Ray; 1 unless given")
    build.add_argument("--gpus", metavar="N", type=int, help="for each worker; 0 unless given")
    parser.examples = build.examples = (
        "kgqa kg build dataset=demo limit=3",
        "kgqa kg build dataset=musique --corpus --ray --workers 4 --gpus 1",
    )
    stats = parser.command("stats", "figures per question of what is extracted already (TRACE, Table 5)")
    stats.takes_keys()
    stats.examples = ("kgqa kg stats dataset=demo limit=3",)
    kg_files.arguments(parser)


def run(given: Namespace) -> int:
    beyond = {"import": kg_files.bring_in, "export": kg_files.give_out, "show": kg_files.show}
    return {"build": build, "stats": stats, **beyond}[given.action](given)


def build(given: Namespace) -> int:
    for option, least in (("workers", 1), ("gpus", 0)):
        value = getattr(given, option)
        if value is not None and not given.ray:
            raise ConfigError(f"--{option}={value}: only with --ray")
        if value is not None and value < least:
            raise ConfigError(f"--{option}={value}: must be at least {least}")
    overrides = [*given.overrides, "kg.offline=false"]
    return build_corpus(overrides, given) if given.ray or given.corpus else extract(overrides)


def build_corpus(overrides: Sequence[str], given: Namespace) -> int:
    from kgqa.experiment.prepare.corpus import build_corpus, extract_here
    from kgqa.experiment.prepare.ray_workers import extract_by_workers
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.figures import show_figures

    extract = extract_by_workers(given.workers or 1, given.gpus or 0) if given.ray else extract_here
    terminal = Terminal(width=120)
    with log_lines(terminal), Session(Experiment.of(overrides)) as session:
        show_figures(("corpus", "sum"), build_corpus(session, extract, terminal), terminal)
    return 0


def stats(given: Namespace) -> int:
    """Asks no model."""
    return extract([*given.overrides, "kg.offline=true"], offline=True)


def extract(overrides: Sequence[str], *, offline: bool = False) -> int:
    """What is missing of the triples of the questions' passages, then the figures of all of them."""
    from contextlib import nullcontext

    from kgqa.experiment.prepare.given_triples import triples_of
    from kgqa.experiment.prepare.triples import TripleBuilder
    from kgqa.experiment.session.experiment import Experiment
    from kgqa.experiment.session.session import Session
    from kgqa.runtime.display import log_lines
    from kgqa.runtime.watch import watched
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.figures import show_figures

    terminal = Terminal(width=120)
    with log_lines(terminal), Session(Experiment.of(overrides)) as session:
        questions = session.experiment.questions
        source = triples_of(session) if offline else TripleBuilder(session)
        if isinstance(source, TripleBuilder):
            with nullcontext(terminal) if offline else watched(terminal, "kg build", source.store.folder) as told:
                source.extract(questions, told)
            source.store.arrange()
        figures = source.statistics(questions)
        show_figures(("per question (TRACE, Table 5)", "mean"), figures, terminal, counted(len(questions), "question"))
        if isinstance(source, TripleBuilder):
            source.store.write_statistics({"questions": len(questions), **figures})
    return 0
